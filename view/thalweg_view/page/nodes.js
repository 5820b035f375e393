// All nodes as a map: zones, racks, and a square for each node, coloured by use of a resource. On a canvas: 5,000 nodes.
import { useLayoutEffect, useMemo, useRef, useState } from "./vendor/preact-hooks.js";
import { useData } from "./data.js";
import { amount, count, percent, plural } from "./format.js";
import { html } from "./html.js";
import { layMap } from "./nodes-layout.js";
import { drawCursor, drawMap } from "./nodes-draw.js";
import { Bar, Choice, Empty, Problem, Scale, Tip, useSize, useTheme } from "./parts.js";

/** Pixels above the map and below, and the height that it has in any case. */
const [ABOVE, LOWEST] = [260, 420];

export function Nodes() {
  const { data, error, loading } = useData("nodes");
  const [resource, setResource] = useState("");
  const [query, setQuery] = useState("");
  const [withPlan, setWithPlan] = useState(true);
  const [chosen, setChosen] = useState(-1);
  const names = data ? ordered(Object.keys(data.resources)) : [];
  const shown = names.includes(resource) ? resource : names[0];
  const parts = useMemo(() => (data && shown ? uses(data.resources[shown], withPlan) : null), [data, shown, withPlan]);
  const found = useMemo(() => match(data, query), [data, query]);
  return html`
    <div class="tools">
      <h1>Nodes</h1>
      <${Choice} title="Use of" value=${shown} choices=${names.map((name) => [name, name])} choose=${setResource} />
      <label><input type="checkbox" checked=${withPlan} onChange=${(event) => setWithPlan(event.target.checked)} /> with the round's placements</label>
      <label>Find <input type="search" placeholder="node, zone or rack" value=${query} onInput=${(event) => setQuery(event.target.value)} /></label>
      <${Scale} title="requested" from="0 %" to="100 %" />
      <span class="scale"><span class="swatch cordoned" aria-hidden="true"></span> unschedulable or not ready</span>
      <span class="scale"><span class="swatch tainted" aria-hidden="true"></span> tainted</span>
      <span class="scale"><span class="swatch none" aria-hidden="true"></span> has none</span>
    </div>
    <${Problem} error=${error} loading=${loading} data=${data} />
    ${data?.unsearched ? html`<p class="quiet">The devices of ${plural(data.unsearched, "placed pod")} are not counted: only those of the first 2,000 pods with claims are.</p>` : null}
    ${data && !data.names.length ? html`<${Empty}>There are no nodes.<//>` : null}
    ${parts ? html`
      <div class="map-and-side">
        <${NodeMap} data=${data} resource=${shown} parts=${parts} found=${found} chosen=${chosen} choose=${setChosen} />
        <${Side} data=${data} resource=${shown} parts=${parts} withPlan=${withPlan} found=${found} query=${query} chosen=${chosen} />
      </div>` : null}`;
}

function NodeMap({ data, resource, parts, found, chosen, choose }) {
  const [box, size] = useSize();
  const [base, top] = [useRef(null), useRef(null)];
  const [over, setOver] = useState(null);
  const theme = useTheme();
  const laid = useMemo(() => (size.width ? layMap(data, size.width, Math.max(LOWEST, window.innerHeight - ABOVE)) : null), [data, size.width]);
  useLayoutEffect(() => {
    if (laid) drawMap(base.current, laid, { parts, found, closed: data.unschedulable.map((each, node) => each || data.notReady[node]), tainted: data.taints.map((each) => each.length > 0) });
  }, [laid, parts, found, theme]);
  useLayoutEffect(() => {
    if (laid) drawCursor(top.current, laid, chosen, over?.node ?? -1);
  }, [laid, chosen, over, theme]);
  const move = (event) => {
    const { left, top: above } = event.currentTarget.getBoundingClientRect();
    const node = laid.at(event.clientX - left, event.clientY - above);
    if (node < 0) setOver(null);
    else setOver({ node, x: event.clientX, y: event.clientY });
  };
  const keys = (event) => {
    const next = laid.step(chosen, event.key);
    if (next < 0) return;
    event.preventDefault();
    choose(next);
    const cell = laid.cells[next];
    box.current.scrollTo({ top: Math.max(0, cell.y - box.current.clientHeight / 2) });
  };
  const words = chosen < 0 ? "no node chosen" : describe(data, resource, chosen, parts).join(", ");
  return html`
    <div class="map" ref=${box} role="application" tabindex="0" aria-label=${`Map of ${plural(data.names.length, "node")}. Arrow keys choose a node.`}
      aria-describedby="map-chosen" onKeyDown=${keys}>
      ${laid ? html`
        <div class="map-sheet" style=${{ height: `${laid.height}px` }} onMouseMove=${move} onMouseLeave=${() => setOver(null)}
          onClick=${() => choose(over ? over.node : -1)}>
          <canvas ref=${base} aria-hidden="true"></canvas>
          <canvas ref=${top} aria-hidden="true"></canvas>
        </div>` : null}
      <p class="unseen" id="map-chosen" role="status">${words}</p>
      <${Tip} at=${over}>${over ? describe(data, resource, over.node, parts).map((line, index) => (index ? html`<div>${line}</div>` : html`<b>${line}</b>`)) : null}<//>
    </div>`;
}

function Side({ data, resource, parts, withPlan, found, query, chosen }) {
  const zones = useMemo(() => byZone(data, resource, withPlan), [data, resource, withPlan]);
  return html`
    <aside class="side" aria-label="About the nodes">
      ${query ? html`<p role="status">${plural(found.size, "node")} found</p>` : null}
      ${chosen >= 0 && chosen < data.names.length ? html`<${Chosen} data=${data} node=${chosen} />` : html`<p class="quiet">Choose a node to see its resources.</p>`}
      <h2>${resource} by zone</h2>
      <table>
        <thead><tr><th>Zone</th><th class="number">Nodes</th><th colspan="2">Requested</th></tr></thead>
        <tbody>
          ${zones.map((each) => html`
            <tr key=${each.zone}><td>${each.zone || "no zone"}</td><td class="number" title=${`${each.having} of ${plural(each.nodes, "node")} have ${resource}`}>${each.having < each.nodes ? `${count(each.having)} of ${count(each.nodes)}` : count(each.nodes)}</td>
              <td><${Bar} part=${each.part} label=${percent(each.part)} /></td><td class="number">${percent(each.part)}</td></tr>`)}
        </tbody>
      </table>
      <${Histogram} parts=${parts} />
    </aside>`;
}

function Chosen({ data, node }) {
  return html`
    <h2>${data.names[node]}</h2>
    <p class="quiet">${place(data, node)}${state(data, node)}, ${plural(data.pods[node], "pod")}</p>
    ${data.taints[node].length ? html`<p class="quiet">Taints: ${data.taints[node].join(", ")}</p>` : null}
    <table>
      <tbody>
        ${ordered(Object.keys(data.resources)).filter((name) => data.resources[name].allocatable[node] > 0).map((name) => {
          const { unit, allocatable, used, planned } = data.resources[name];
          const all = used[node] + (planned?.[node] ?? 0);
          const part = all / allocatable[node];
          return html`
            <tr key=${name}><td>${name}</td><td><${Bar} part=${part} label=${percent(part)} /></td>
              <td class="number">${amount(all, unit)} of ${amount(allocatable[node], unit)}</td></tr>`;
        })}
      </tbody>
    </table>`;
}

/** How many nodes are used by how much, in ten steps. */
function Histogram({ parts }) {
  const steps = new Array(10).fill(0);
  for (const part of parts) if (part >= 0) steps[Math.min(9, Math.floor(part * 10))] += 1;
  const most = Math.max(1, ...steps);
  return html`
    <h2>Nodes by use</h2>
    <ol class="histogram" aria-label="Number of nodes by use">
      ${steps.map((number, index) => html`
        <li title=${`${index * 10} to ${index * 10 + 10} %: ${plural(number, "node")}`}>
          <span class="histogram-bar" style=${{ height: `${(number / most) * 100}%` }}></span>
          <span class="unseen">${index * 10} to ${index * 10 + 10} %: ${number}</span>
        </li>`)}
    </ol>
    <p class="histogram-ends quiet" aria-hidden="true"><span>0 %</span><span>100 %</span></p>`;
}

const FIRST = ["cpu", "memory"];
const LAST = ["pods", "ephemeral-storage"];
const rank = (name) => (FIRST.includes(name) ? FIRST.indexOf(name) : 10 + LAST.indexOf(name));
const ordered = (names) => names.toSorted((one, other) => rank(one) - rank(other) || one.localeCompare(other));

/** Used part of each node; -1: the node has none of the resource. */
function uses({ allocatable, used, planned }, withPlan) {
  return allocatable.map((all, node) => (all > 0 ? (used[node] + (withPlan ? planned?.[node] ?? 0 : 0)) / all : -1));
}

function match(data, query) {
  const text = query.trim().toLowerCase();
  if (!data || !text) return null;
  const found = new Set();
  data.names.forEach((name, node) => {
    if (`${name} ${data.zone[node]} ${data.rack[node]}`.toLowerCase().includes(text)) found.add(node);
  });
  return found;
}

const state = (data, node) => (data.unschedulable[node] ? ", unschedulable" : "") + (data.notReady[node] ? ", not ready" : "");

const place = (data, node) => [data.zone[node], data.rack[node]].filter(Boolean).join(" · ") || "no zone";

function describe(data, resource, node, parts) {
  const { unit, allocatable, used, planned } = data.resources[resource];
  const all = used[node] + (planned?.[node] ?? 0);
  return [
    data.names[node],
    place(data, node),
    parts[node] < 0 ? `no ${resource}` : `${resource}: ${percent(parts[node])} (${amount(all, unit)} of ${amount(allocatable[node], unit)})`,
    plural(data.pods[node], "pod") + state(data, node),
    ...data.taints[node],
  ];
}

/** Of each zone what its pods request, as a part of what its nodes offer together. */
function byZone(data, resource, withPlan) {
  const { allocatable, used, planned } = data.resources[resource];
  const zones = new Map();
  allocatable.forEach((all, node) => {
    const zone = zones.get(data.zone[node]) ?? { zone: data.zone[node], nodes: 0, having: 0, requested: 0, allocatable: 0 };
    zone.nodes += 1;
    zone.having += all > 0;
    zone.requested += used[node] + (withPlan ? planned?.[node] ?? 0 : 0);
    zone.allocatable += all;
    zones.set(data.zone[node], zone);
  });
  return [...zones.values()]
    .map((each) => ({ ...each, part: each.allocatable ? each.requested / each.allocatable : NaN }))
    .sort((one, other) => one.zone.localeCompare(other.zone, "en", { numeric: true }));
}
