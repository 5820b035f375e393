// The gangs: whole, or waiting, and why.
import { useData } from "./data.js";
import { count, plural } from "./format.js";
import { html } from "./html.js";
import { Bar, Empty, PodLink, Problem, useSome } from "./parts.js";

/** Gangs that are drawn; a name finds the others. */
const SOME = 300;

export function Gangs() {
  const { data, error, loading } = useData("gangs");
  const [gangs, field] = useSome(data?.gangs ?? [], "gang", SOME);
  const waiting = data?.gangs.filter((each) => each.waiting).length ?? 0;
  return html`
    <div class="tools">
      <h1>Gangs</h1>
      ${data ? html`<p class="quiet" role="status">${plural(data.gangs.length, "gang")}, ${waiting} waiting</p>` : null}
      ${field}
    </div>
    <${Problem} error=${error} loading=${loading} data=${data} />
    ${data && !data.gangs.length ? html`<${Empty}>There are no gangs.<//>` : null}
    ${data?.gangs.length ? html`
      <div class="scroll">
        <table class="wide stacks">
          <thead><tr>
            <th>Gang</th><th class="number">Running</th><th class="number">Planned</th><th class="number">Waiting</th>
            <th class="number">Needs</th><th>Pods with a node</th><th>Reason</th>
          </tr></thead>
          <tbody>${gangs.map((each) => html`<${Gang} key=${each.gang} gang=${each} />`)}</tbody>
        </table>
      </div>` : null}`;
}

function Gang({ gang }) {
  const all = gang.running + gang.planned + gang.waiting;
  const placed = gang.running + gang.planned;
  const tick = gang.minMember && all ? gang.minMember / Math.max(all, gang.minMember) : undefined;
  const words = `${placed} of ${plural(all, "pod")} with a node${gang.minMember ? `, ${gang.minMember} needed` : ""}`;
  return html`
    <tr>
      <td class="name">${gang.gang}<div class="quiet">${gang.pods.length ? html`<${PodLink} pod=${gang.pods[0]} />` : null}</div></td>
      <td class="number" data-title="Running">${count(gang.running)}</td>
      <td class="number" data-title="Planned">${count(gang.planned)}</td>
      <td class="number" data-title="Waiting">${count(gang.waiting)}</td>
      <td class="number" data-title="Needs">${gang.minMember ?? "–"}</td>
      <td><${Bar} part=${all ? placed / Math.max(all, gang.minMember ?? 0) : 0} tick=${tick} label=${words} /></td>
      <td class="text">${gang.short ? html`<b class="code">${gang.short}</b> ` : null}${gang.reason}</td>
    </tr>`;
}
