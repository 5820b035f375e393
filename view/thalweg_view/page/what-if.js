// What if: hypothetical changes, and the plans without and with them side by side. Nothing is changed in the cluster.
import { useEffect, useRef, useState } from "./vendor/preact-hooks.js";
import { post } from "./api.js";
import { CHANGES, describe } from "./changes.js";
import { useShown } from "./data.js";
import { count, percent, plural } from "./format.js";
import { html } from "./html.js";
import { Bar, Choice, Empty, PodLink, RECORD } from "./parts.js";
import { link } from "./route.js";

/** Names of one list that are shown. */
const SOME = 200;
let kept = [];

/** Opens the form with changes, from a fix of a pod. */
export function tryChanges(changes) {
  kept = changes;
  window.location.hash = link("what-if");
}

export function WhatIf() {
  const { refused, overview } = useShown();
  const [changes, setChanges] = useState(kept);
  const [state, setState] = useState({ answer: null, error: null, loading: false });
  const abort = useRef(null);
  const put = (next) => {
    kept = next;
    setChanges(next);
  };
  const run = () => {
    abort.current?.abort();
    abort.current = new AbortController();
    setState((before) => ({ ...before, error: null, loading: true }));
    post("what-if", { changes }, abort.current.signal).then(
      (answer) => setState({ answer, error: null, loading: false }),
      (error) => {
        if (error.name === "AbortError") return;
        refused(error);
        setState({ answer: null, error, loading: false });
      },
    );
  };
  useEffect(() => {
    if (changes.length) run();
    return () => abort.current?.abort();
  }, []);
  if (overview?.source === "record") return html`<div class="tools"><h1>What if</h1></div><${Empty}>${RECORD}<//>`;
  return html`
    <div class="tools"><h1>What if</h1><p class="quiet">Two plans are made, without and with the changes. The cluster stays as it is.</p></div>
    <div class="what-if">
      <section class="card" aria-label="Changes">
        <${ChangeForm} add=${(change) => put([...changes, change])} />
        ${changes.length ? html`
          <ol class="changes">
            ${changes.map((change, index) => html`
              <li><span>${describe(change)}</span>
                <button type="button" aria-label=${`Remove: ${describe(change)}`} onClick=${() => put(changes.filter((_, at) => at !== index))}>Remove</button></li>`)}
          </ol>
          <button type="button" class="main" onClick=${run} disabled=${state.loading}>Plan with ${plural(changes.length, "change")}</button>`
        : html`<p class="quiet">Add a change first.</p>`}
      </section>
      <section class="outcome" aria-label="Outcome" aria-live="polite" aria-busy=${state.loading}>
        ${state.loading ? html`<p class="quiet" role="status">Planning…</p>` : null}
        ${state.error ? html`<p class="problem" role="alert">${state.error.message}</p>` : null}
        ${state.answer ? html`<${Outcome} answer=${state.answer} />` : null}
      </section>
    </div>`;
}

function ChangeForm({ add }) {
  const [kind, setKind] = useState("Drain");
  const [problem, setProblem] = useState("");
  const [added, setAdded] = useState(0);
  const { fields } = CHANGES.find((each) => each.kind === kind);
  const submit = (event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    try {
      const values = fields.map(([name, title, , convert = String]) => {
        const text = String(form.get(name) ?? "").trim();
        if (!text) throw new Error(`${title}: a value is needed`);
        const value = convert(text);
        if (Number.isNaN(value)) throw new Error(`${title}: "${text}" is no number`);
        return [name, value];
      });
      add({ kind, ...Object.fromEntries(values) });
      setProblem("");
      setAdded(added + 1);
    } catch (error) {
      setProblem(error.message);
    }
  };
  return html`
    <form class="change-form" onSubmit=${submit}>
      <${Choice} title="Change" value=${kind} choices=${CHANGES.map((each) => [each.kind, each.title])} choose=${setKind} />
      ${fields.map(([name, title, initial = "", convert]) => html`
        <label key=${`${kind} ${name} ${added}`}>${title}
          ${convert === JSON.parse
            ? html`<textarea name=${name} rows="6" spellcheck="false"></textarea>`
            : html`<input name=${name} defaultValue=${initial} autocomplete="off" spellcheck="false" inputmode=${convert === Number ? "numeric" : undefined} />`}
        </label>`)}
      <button type="submit">Add</button>
      ${problem ? html`<p class="problem" role="alert">${problem}</p>` : null}
    </form>`;
}

function Outcome({ answer }) {
  const { before, after } = answer;
  const lists = [
    ["Newly placed", answer.placed, (key) => [key, answer.nodes?.[key]]],
    ["Newly waiting", answer.waiting, (key) => [key, answer.reasons?.[key]]],
    ["Moved", Object.keys(answer.moved), (key) => [key, `${answer.moved[key].from} → ${answer.moved[key].to}`]],
    ["Planned elsewhere", Object.keys(answer.replanned ?? {}), (key) => [key, `${answer.replanned[key].from} → ${answer.replanned[key].to}`]],
    ["Gone", answer.gone ?? [], (key) => [key, ""]],
  ].filter(([, keys]) => keys.length);
  const asked = Object.keys(after.resources).filter((name) => before.resources[name]?.requested || after.resources[name].requested);
  return html`
    <p class="in-short"><b>${answer.inShort || "No number of pods differs."}</b></p>
    <table class="wide compare card">
      <thead><tr><th></th><th class="number">Without</th><th class="number">With</th><th class="number">Difference</th></tr></thead>
      <tbody>
        ${[["Pods with a node", "withNode"], ["Waiting pods", "waiting"], ["Of them evicted", "evicted"], ["Moved pods", "moved"], ["Nodes", "nodes"]].map(([title, name]) => html`
          <tr><th scope="row">${title}</th><td class="number">${count(before[name])}</td><td class="number">${count(after[name])}</td>
            <td class="number">${signed(after[name] - before[name])}</td></tr>`)}
        ${asked.map((name) => html`<${Resource} name=${name} before=${before.resources[name]} after=${after.resources[name]} />`)}
      </tbody>
    </table>
    ${(answer.notes ?? []).map((note) => html`<p class="quiet">${note}</p>`)}
    ${lists.length ? null : html`<${Empty}>No pod is placed otherwise.<//>`}
    ${answer.workloads?.length ? html`<${Workloads} workloads=${answer.workloads} />` : null}
    ${lists.length ? html`
      <details class="pods"><summary>Pod by pod</summary>
        <div class="lists">
          ${lists.map(([title, keys, row]) => html`
            <section class="card"><h2>${title} <small>${count(keys.length)}</small></h2>
              <ul class="plain">
                ${keys.slice(0, SOME).map((key) => {
                  const [pod, note] = row(key);
                  return html`<li key=${pod}><${PodLink} pod=${pod} /> ${note ? html`<span class="quiet">${note}</span>` : null}</li>`;
                })}
                ${keys.length > SOME ? html`<li class="quiet">and ${count(keys.length - SOME)} more</li>` : null}
              </ul>
            </section>`)}
        </div>
      </details>` : null}
    ${answer.hidden ? html`<p class="quiet">${plural(answer.hidden, "pod")} of namespaces that you may not read changed too.</p>` : null}`;
}

/** The workloads that the two plans treat differently, those that lose most first. */
function Workloads({ workloads }) {
  const both = (one, other) => (one === other ? count(other) : `${count(one)} → ${count(other)}`);
  return html`
    <table class="wide workloads card" aria-label="Workloads that differ">
      <thead><tr><th>Workload</th><th class="number">Pods</th><th class="number">With a node</th><th class="number">Moved</th><th class="number">Evicted</th></tr></thead>
      <tbody>
        ${workloads.slice(0, SOME).map(({ workload, before, after }) => html`
          <tr key=${workload}><td class="name">${workload}</td>
            ${["pods", "placed", "moved", "evicted"].map((name) => html`<td class="number">${both(before[name] ?? 0, after[name] ?? 0)}</td>`)}</tr>`)}
        ${workloads.length > SOME ? html`<tr><td class="quiet" colspan="5">and ${count(workloads.length - SOME)} more</td></tr>` : null}
      </tbody>
    </table>`;
}

function Resource({ name, before, after }) {
  const [one, other] = [part(before), part(after)];
  return html`
    <tr><th scope="row">Use of ${name}</th><td class="number">${percent(one)}</td><td class="number">${percent(other)}</td>
      <td><${Bar} part=${other} tick=${one} label=${`from ${percent(one)} to ${percent(other)}`} /></td></tr>`;
}

const part = (use) => (use?.allocatable ? use.requested / use.allocatable : 0);
const signed = (value) => (value > 0 ? `+${count(value)}` : count(value));
