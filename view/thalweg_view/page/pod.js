// One pod: what is known of it, why it waits and what would help.
import { useEffect, useState } from "./vendor/preact-hooks.js";
import { post } from "./api.js";
import { useData, useShown } from "./data.js";
import { age, count, plural } from "./format.js";
import { html } from "./html.js";
import { PodLink, Problem, RECORD } from "./parts.js";
import { link } from "./route.js";
import { tryChanges } from "./what-if.js";

export function Pod({ parts }) {
  const [namespace = "", name = ""] = parts;
  const { data, error, loading } = useData(`pods/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`);
  return html`
    <div class="tools"><h1 class="pod"><span class="namespace">${namespace}/</span>${name}</h1>
      ${data ? html`<span class=${`badge state-${data.state}`}>${data.state}</span>` : null}
      <a class="back" href=${link("pending")}>All pending pods</a>
    </div>
    <${Problem} error=${error} loading=${loading} data=${data} />
    ${data ? html`
      <div class="pod-page">
        <${Facts} pod=${data} />
        ${data.state === "Waiting" ? html`<${Waiting} pod=${data} />` : html`<${Placed} pod=${data} />`}
      </div>` : null}`;
}

/** Name of what stands for the policy of pods that no policy governs, in plans. */
const OBSERVED = "(observed)";

const Fact = ({ name, children }) => html`<div><dt>${name}</dt><dd>${children}</dd></div>`;

function Facts({ pod }) {
  const { now } = useShown();
  return html`
    <dl class="facts card">
      ${pod.node ? html`<${Fact} name=${pod.state === "Planned" ? "Planned node" : "Node"}>${pod.node}<//>` : null}
      ${pod.state === "Planned" ? html`<${Fact} name="Price">${count(pod.price)}<//>` : null}
      ${pod.position ? html`<${Fact} name="Position">${count(pod.position)}<//>` : null}
      <${Fact} name="Requests">
        ${Object.entries(pod.requests).map(([resource, value]) => html`<div>${resource}: ${requested(resource, value)}</div>`)}
        ${Object.keys(pod.requests).length ? null : "none"}
      <//>
      ${pod.claims.length ? html`
        <${Fact} name="Claims">${pod.claims.map((each) => html`<div>${each.name}: ${claimed(each)}</div>`)}<//>` : null}
      <${Fact} name="Priority">${pod.priority}<//>
      <${Fact} name="Policy">${pod.ungoverned || pod.policy === OBSERVED ? "none" : pod.policy || "none"}
        ${pod.ungoverned ? html`<div class="quiet">${pod.ungoverned}</div>` : null}<//>
      ${pod.queue ? html`<${Fact} name="Queue">${pod.queue}<//>` : null}
      ${pod.gangs.length ? html`<${Fact} name="Gangs">${pod.gangs.join(", ")}<//>` : null}
      <${Fact} name="Age">${age(pod.created, now)}<//>
      ${pod.state === "Waiting" ? html`<${Fact} name="Waits">${age(pod.since || pod.created, now)}<//>` : null}
    </dl>`;
}

function Placed({ pod }) {
  return html`
    <section class="card">
      ${pod.leaves ? html`<${Leaves} pod=${pod} />` : null}
      ${pod.state === "Planned" ? html`<p>The round places it on <b>${pod.node}</b> at a price of ${count(pod.price)}.</p>` : null}
      ${pod.state === "Running" && !pod.leaves ? html`<p>It runs on <b>${pod.node}</b>.</p>` : null}
      ${pod.proposedTo ? html`<p>Its policy proposes to move it to <b>${pod.proposedTo}</b>${pod.reason ? `: ${pod.reason}` : ""}.</p>` : null}
      ${pod.victims.length || pod.otherVictims ? html`
        <h2>Pods that leave for it</h2>
        <ul>${pod.victims.map((each) => html`<li><${PodLink} pod=${each} /></li>`)}
          ${pod.otherVictims ? html`<li>${pod.otherVictims} of namespaces that you may not read</li>` : null}</ul>` : null}
    </section>`;
}

/** Of a pod that leaves: why, for whom, and where its replacement goes. */
function Leaves({ pod }) {
  const others = pod.leavesForOthers ? `${plural(pod.leavesForOthers, "pod")} of namespaces that you may not read` : "";
  return html`
    <p>It leaves its node: <b class="code">${pod.leaves}</b> ${pod.reason}</p>
    ${pod.leavesFor.length || others ? html`
      <p>It leaves for <${Keys} keys=${pod.leavesFor} />${pod.leavesFor.length && others ? " and " : ""}${others}.</p>` : null}
    <p>${pod.leavesTo ? html`Its replacement goes to <b>${pod.leavesTo}</b>.` : "No node is planned for its replacement."}</p>`;
}

/** A round that was has its reasons only; the state that would be planned for an answer is the newest one. */
function Waiting({ pod }) {
  const { overview, round } = useShown();
  if (!overview) return null;
  const record = overview.source === "record";
  if (!record && !round) return html`<${Why} pod=${pod.pod} />`;
  return html`
    <section class="card why" aria-label="Why it waits">
      <h2>Why it waits</h2>
      <p class="headline"><b class="code">${pod.code}</b> ${pod.reason}</p>
      <p class="quiet">${record ? RECORD : "This is the reason of the chosen round. Fixes are looked for in the newest."}</p>
    </section>`;
}

function Why({ pod }) {
  const { generation, refused } = useShown();
  const [turn, setTurn] = useState(0);
  const [state, setState] = useState({ answer: null, error: null, loading: true });
  // A round may know a pod before the state does: then it is asked again with the next state.
  const again = state.error?.status === 404 ? generation : 0;
  useEffect(() => {
    const abort = new AbortController();
    // The reason comes at once; fixes are planned one by one, and may take long.
    const ask = async () => {
      try {
        const answer = await post("why", { target: pod, fixes: false }, abort.signal);
        setState({ answer, error: null, loading: true });
        setState({ answer: await post("why", { target: pod }, abort.signal), error: null, loading: false });
      } catch (error) {
        if (error.name === "AbortError") return;
        if (error.status === 401) refused(error);
        setState((before) => ({ ...before, error, loading: false }));
      }
    };
    ask();
    return () => abort.abort();
  }, [pod, again, turn]);
  const { answer, error, loading } = state;
  const askAgain = () => {
    setState({ answer, error: null, loading: true });
    setTurn(turn + 1);
  };
  return html`
    <section class="card why" aria-label="Why it waits" aria-busy=${loading}>
      <h2>Why it waits</h2>
      ${loading ? html`<p class="quiet" role="status">${answer ? "Looking for fixes…" : "Looking for the reason…"}</p>` : null}
      ${error ? html`
        <p class="problem" role="alert">${error.message}</p>
        <button type="button" onClick=${askAgain}>Ask again</button>` : null}
      ${answer ? html`
        <p class="headline"><b class="code">${answer.kind}</b> ${answer.text}</p>
        ${answer.evidence?.length ? html`<ul class="plain">${answer.evidence.map((each) => html`<li>${each}</li>`)}</ul>` : null}
        ${answer.next ? html`<p class="next">${answer.next}</p>` : null}
        <${Fixes} fixes=${answer.fixes ?? []} />` : null}
    </section>`;
}

function Fixes({ fixes }) {
  if (!fixes.length) return null;
  return html`
    <h2>What would place it</h2>
    <ol class="fixes">
      ${fixes.map((fix) => html`
        <li>
          <p>${fix.text}</p>
          ${fix.loses.length ? html`<p class="quiet">Loses: <${Keys} keys=${fix.loses} /></p>` : null}
          ${fix.places.length > 1 ? html`<p class="quiet">Places ${count(fix.places.length)} pods.</p>` : null}
          <button type="button" onClick=${() => tryChanges(fix.change)}>Ask what if</button>
        </li>`)}
    </ol>`;
}

const Keys = ({ keys }) => html`${keys.slice(0, 5).map((key, index) => html`${index ? ", " : ""}<${PodLink} pod=${key} />`)}${keys.length > 5 ? ` and ${keys.length - 5} more` : ""}`;

/** What a claim to devices has, or asks for. */
function claimed({ claim, asks, allocated, devices }) {
  if (!claim) return "not made yet";
  return allocated ? `${devices.join(", ") || "no device"} (${claim})` : `${asks.join(", ")}, not allocated (${claim})`;
}

const BYTES = /^(memory|ephemeral-storage|hugepages-.*)$/;

function requested(resource, value) {
  if (resource === "cpu") return value % 1000 ? `${value}m` : count(value / 1000);
  if (!BYTES.test(resource)) return count(value);
  const power = Math.min(4, Math.floor(Math.log2(Math.max(1, value)) / 10));
  return `${Math.round((value / 1024 ** power) * 100) / 100}${["", "Ki", "Mi", "Gi", "Ti"][power]}`;
}
