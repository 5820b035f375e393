// The network of one policy: what enters each arc, its limits and its price, as a picture and row by row.
import { useMemo, useState } from "./vendor/preact-hooks.js";
import { useData, useShown } from "./data.js";
import { Picture, widthOf } from "./flow-picture.js";
import { count, plural } from "./format.js";
import { html } from "./html.js";
import { hasMost, layNetwork, priceOf, stateOf } from "./network-layout.js";
import { Empty, Problem, RECORD, useSize, useTheme } from "./parts.js";

/** Rows that are asked for; where the network has more arcs some stand for several. */
const MOST = 40;
const LEGEND = [["some", "has room"], ["full", "full"], ["over", "over or short"], ["left", "Unscheduled"], ["none", "no flow"]];

/** `choice`: what else is shown here. The waiting pods are planned again for it: not with each round, but when asked. */
export function Network({ policy, choice }) {
  const { overview, attempt, round } = useShown();
  const [asked, setAsked] = useState(0);
  const isRecord = overview?.source === "record";
  const { data, error, loading } = useData("network", { policy, most: MOST }, false, `${attempt} ${asked}`);
  const flow = data?.policies[0];
  return html`
    <div class="tools">
      <h1>Flow</h1>
      ${choice}
      ${overview?.source === "live" ? html`<button type="button" disabled=${loading} onClick=${() => setAsked(asked + 1)}>Plan again</button>` : null}
      ${flow ? LEGEND.map(([kind, words]) => html`<span class="scale"><span class=${`swatch arc-${kind}`} aria-hidden="true"></span> ${words}</span>`) : null}
    </div>
    ${isRecord ? html`<${Empty}>${RECORD}<//>` : html`<${Problem} error=${error} loading=${loading} data=${data} />`}
    ${flow ? html`
      <p role="status"><b>${count(flow.placed)}</b> of ${plural(flow.placed + flow.left, "waiting pod")} of policy <b>${flow.policy}</b> placed. ${" "}
        <span class="quiet">${round ? "This is what waits now, not the chosen round. " : ""}Width: flow; on an arc: flow of limit, and the price of the next unit. ${summed(flow)}</span></p>
      ${flow.notes.map((each) => html`<p class="quiet">${each}</p>`)}
      <${Drawing} flow=${flow} />
      <${Rows} arcs=${flow.arcs} />` : null}`;
}

const summed = (flow) => (flow.allArcs > flow.arcs.length
  ? `The network has ${count(flow.allArcs)} arcs: those that tell most are drawn, others together. thalweg network -o json has each.` : "");

function Drawing({ flow }) {
  const [box, size] = useSize();
  const theme = useTheme();
  const laid = useMemo(() => (size.width ? layNetwork(flow, size.width, widthOf) : null), [flow, size.width]);
  return html`
    <div class="network" ref=${box}>
      ${laid?.empty ? html`<${Empty}>No arc has any flow.<//>` : null}
      ${laid && !laid.empty ? html`<${Picture} laid=${laid} size=${laid} theme=${theme} />` : null}
    </div>
    ${laid?.hidden ? html`<p class="quiet">${plural(laid.hidden, "arc")} that would close a circle ${laid.hidden === 1 ? "is" : "are"} in the table alone.</p>` : null}`;
}

const Rows = ({ arcs }) => html`
  <div class="scroll">
    <table class="wide">
      <thead><tr>
        <th>From</th><th>To</th><th class="number">Flow</th><th class="number">Least</th><th class="number">Most</th>
        <th class="number">Price</th><th class="number">Gain</th><th>State</th>
      </tr></thead>
      <tbody>
        ${arcs.map((each) => html`
          <tr>
            <td class="name">${each.from}</td><td>${each.to}</td><td class="number">${count(each.flow)}</td>
            <td class="number">${each.minimum ? `${count(each.minimum)}${each.wholeOrNone ? " or none" : ""}` : ""}</td>
            <td class="number">${hasMost(each) ? count(each.maximum) : ""}</td>
            <td class="number">${each.price === null ? "" : priceOf(each)}</td>
            <td class="number">${each.gain === "1" ? "" : each.gain}</td><td>${stateOf(each)}</td>
          </tr>`)}
      </tbody>
    </table>
  </div>`;
