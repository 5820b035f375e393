// Asks for the token. It stays in this tab's session storage.
import { useEffect, useRef } from "./vendor/preact-hooks.js";
import { html } from "./html.js";

export function TokenForm({ problem, enter }) {
  const field = useRef(null);
  useEffect(() => field.current.focus(), []);
  const submit = (event) => {
    event.preventDefault();
    if (field.current.value.trim()) enter(field.current.value);
  };
  return html`
    <main class="token">
      <form onSubmit=${submit}>
        <img src="icon.svg" alt="" width="40" height="40" />
        <h1>Thalweg</h1>
        ${problem ? html`<p class="problem" role="alert" id="token-problem">${problem}</p>` : null}
        <label for="token">Bearer token</label>
        <input id="token" name="token" type="password" autocomplete="off" spellcheck="false" ref=${field}
          aria-describedby=${problem ? "token-problem token-help" : "token-help"} />
        <p class="quiet" id="token-help">
          A token for this page alone, of a ServiceAccount that may list pods and nodes:
          ${" "}<code>kubectl create token -n thalweg-system thalweg-viewer --audience thalweg-view</code>. It stays in
          this tab. Give no token of the API server.
        </p>
        <button type="submit">Open</button>
      </form>
    </main>`;
}
