// Policies and the pods that they govern; queues and their shares.
import { useData } from "./data.js";
import { compact, count, percent, plural } from "./format.js";
import { html } from "./html.js";
import { Bar, Empty, Problem, useSome } from "./parts.js";
import { link } from "./route.js";

/** Policies, and queues, that are drawn; a name finds the others. */
const SOME = 300;

export function Policies() {
  const policies = useData("policies");
  const queues = useData("queues");
  const [somePolicies, policyField] = useSome(policies.data?.policies ?? [], "name", SOME);
  const [someQueues, queueField] = useSome(queues.data?.queues ?? [], "name", SOME);
  return html`
    <div class="tools"><h1>Policies</h1>${policyField}</div>
    <${Problem} ...${policies} />
    ${policies.data && !policies.data.policies.length ? html`<${Empty}>No policy governs a pod of this round.<//>` : null}
    ${policies.data?.policies.length ? html`
      <div class="cards">${somePolicies.map((each) => html`<${Policy} key=${each.name} policy=${each} />`)}</div>` : null}
    <div class="tools"><h1>Queues and shares</h1>${queueField}</div>
    <${Problem} ...${queues} />
    ${queues.data && !queues.data.queues.length ? html`<${Empty}>There are no queues: all pods share the cluster by priority and age.<//>` : null}
    ${queues.data?.queues.length ? html`<${Queues} all=${queues.data.queues} queues=${someQueues} />` : null}`;
}

function Policy({ policy }) {
  const planned = policy.placed + policy.left;
  return html`
    <section class="card" aria-label=${`Policy ${policy.name}`}>
      <h2>${policy.name} ${policy.delivery ? html`<span class="badge">${policy.delivery}</span>` : null}</h2>
      <p class="quiet">${policy.selects}</p>
      <dl class="small">
        ${policy.running === null ? null : html`<div><dt>Running</dt><dd>${count(policy.running)}</dd></div>`}
        <div><dt>Placed</dt><dd>${count(policy.placed)}</dd></div>
        <div><dt>Waiting</dt><dd>${count(policy.waiting)}</dd></div>
        <div><dt>Price</dt><dd title=${count(policy.price)}>${compact(policy.price)}</dd></div>
      </dl>
      ${planned ? html`<${Bar} part=${policy.placed / planned} label=${`${policy.placed} of ${plural(planned, "pod")} placed`} />` : null}
      ${policy.draws ? html`<p><a href=${`${link("flow")}?network=${encodeURIComponent(policy.name)}`}>The network that it draws</a></p>` : null}
      ${policy.constraints.length ? html`<ul class="plain">${policy.constraints.map((each) => html`<li>${each}</li>`)}</ul>` : null}
    </section>`;
}

function Queues({ all, queues }) {
  const depths = new Map();
  for (const each of all) depths.set(each.name, each.parent ? (depths.get(each.parent) ?? 0) + 1 : 0);
  return html`
    <div class="scroll">
      <table class="wide">
        <thead><tr>
          <th>Queue</th><th class="number">Weight</th><th>Dominant share, fair share marked</th><th class="number">Has</th>
          <th class="number">Fair</th><th class="number">Borrowed</th><th class="number">Placed</th><th class="number">Waiting</th><th>Problem</th>
        </tr></thead>
        <tbody>
          ${queues.map((each) => html`
            <tr key=${each.name}>
              <td class="name"><span style=${{ paddingLeft: `${depths.get(each.name) * 16}px` }}>${each.name}</span></td>
              <td class="number">${each.weight}</td>
              <td><${Bar} part=${each.usedShare} tick=${each.fairShare} label=${`has ${percent(each.usedShare)}, fair share ${percent(each.fairShare)}`} /></td>
              <td class="number">${percent(each.usedShare)}</td>
              <td class="number">${percent(each.fairShare)}</td>
              <td class="number">${each.borrowedShare ? percent(each.borrowedShare) : "–"}</td>
              <td class="number">${count(each.placed)}</td>
              <td class="number">${count(each.waiting)}</td>
              <td class="text">${each.problem}</td>
            </tr>`)}
        </tbody>
      </table>
    </div>`;
}
