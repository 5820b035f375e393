// The flow: from pods, by workload or otherwise, to groups of nodes to nodes. Width is pods, colour is price.
import { useMemo, useState } from "./vendor/preact-hooks.js";
import { useData, useShown } from "./data.js";
import { clock, compact, count } from "./format.js";
import { layFlow } from "./flow-layout.js";
import { html } from "./html.js";
import { viridis } from "./colours.js";
import { Choice, Empty, Problem, Scale, Tip, useSize, useTheme } from "./parts.js";
import { link } from "./route.js";

const ruler = document.createElement("canvas").getContext("2d");

function widthOf(text) {
  ruler.font = `12px ${getComputedStyle(document.body).fontFamily}`;
  return ruler.measureText(text).width;
}

const SOURCES = [["workload", "workload"], ["class", "requests"], ["policy", "policy"], ["queue", "queue"], ["priority", "priority"], ["namespace", "namespace"]];
const GROUPINGS = [["zone", "zone"], ["rack", "rack"]];

export function Flow() {
  const [of, setOf] = useState("workload");
  const [by, setBy] = useState("zone");
  const { round, rounds } = useShown();
  const earlier = round ? 0 : lastThatPlaced(rounds);
  const { data, error, loading } = useData("flow", earlier ? { of, by, round: earlier } : { of, by });
  const [box, size] = useSize();
  const theme = useTheme();
  const laid = useMemo(() => (data && size.width ? layFlow(data, size.width, size.height, widthOf) : null), [data, size]);
  return html`
    <div class="tools">
      <h1>Flow</h1>
      <${Choice} title="Pods by" value=${of} choices=${SOURCES} choose=${setOf} />
      <${Choice} title="Nodes by" value=${by} choices=${GROUPINGS} choose=${setBy} />
      ${laid && !laid.empty ? html`
        <${Scale} title="price" from=${compact(laid.prices[0])} to=${compact(laid.prices[1])} />
        <span class="scale"><span class="swatch left" aria-hidden="true"></span> left out</span>
        <span class="quiet">width: pods</span>` : null}
    </div>
    ${earlier ? html`
      <p class="quiet" role="status">Round ${earlier} at ${clock(rounds.time[rounds.number.indexOf(earlier)])}: the last that placed a pod. The newest placed none.</p>` : null}
    <${Problem} error=${error} loading=${loading} data=${data} />
    <div class="flow" ref=${box}>
      ${laid?.empty ? html`<${Empty}>No pod was planned in this round.<//>` : null}
      ${laid && !laid.empty ? html`<${Picture} laid=${laid} size=${size} theme=${theme} />` : null}
    </div>`;
}

/** Number of the last round that placed a pod, where the newest placed none; 0: the newest did, or none is kept. */
function lastThatPlaced(rounds) {
  const newest = (rounds?.number.length ?? 0) - 1;
  if (newest < 0 || rounds.placed[newest]) return 0;
  for (let at = newest - 1; at >= 0 && rounds.whole[at]; at -= 1) if (rounds.placed[at]) return rounds.number[at];
  return 0;
}

function Picture({ laid, size, theme }) {
  const [over, setOver] = useState(null);
  const [tip, setTip] = useState(null);
  const lit = useMemo(() => (over === null ? null : laid.reach(over)), [laid, over]);
  const enter = (event) => {
    setOver(event.currentTarget.dataset.id);
    setTip(event.clientX ? { x: event.clientX, y: event.clientY } : null);
  };
  const leave = () => {
    setOver(null);
    setTip(null);
  };
  const keys = (event) => {
    const next = laid.neighbour(event.target.dataset?.id, event.key);
    if (!next) return;
    event.preventDefault();
    event.currentTarget.querySelector(`[data-id="${CSS.escape(next)}"]`)?.focus();
  };
  // The pointer moves the tip at each frame; what is drawn changes only with what it points at.
  const links = useMemo(() => html`
    <g class="links" aria-hidden="true">
      ${laid.links.map((each) => html`
        <path key=${each.id} data-id=${each.id} d=${each.path} stroke-width=${each.width}
          class=${`link${each.left ? " left" : ""}${lit && !lit.has(each.id) ? " dim" : ""}`}
          stroke=${each.left ? "url(#hatch)" : viridis(each.part)} onMouseEnter=${enter} onMouseMove=${enter} />`)}
    </g>`, [laid, lit, theme]);
  const blocks = useMemo(() => laid.nodes.map((each, index) => html`
    <${Block} key=${each.id} node=${each} first=${index === 0} dim=${lit && !lit.has(each.id)} enter=${enter} leave=${leave} />`), [laid, lit]);
  const told = over === null ? null : laid.find(over);
  return html`
    <svg width=${size.width} height=${size.height} viewBox=${`0 0 ${size.width} ${size.height}`} role="group"
      aria-label=${laid.summary} onKeyDown=${keys} onMouseLeave=${leave}>
      <defs>
        <pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
          <rect class="hatch-ground" width="6" height="6" /><line class="hatch-line" x1="0" y1="0" x2="0" y2="6" />
        </pattern>
      </defs>
      ${links}
      <g class="columns" aria-hidden="true">
        ${laid.columns.map((each) => html`<text x=${each.x} y="14" text-anchor=${each.anchor}>${each.title}</text>`)}
      </g>
      ${blocks}
    </svg>
    <p class="unseen" role="status">${told && !tip ? told.words.join(", ") : ""}</p>
    <${Tip} at=${tip && told ? tip : null}>${told?.words.map((line, index) => (index ? html`<div>${line}</div>` : html`<b>${line}</b>`))}<//>`;
}

function Block({ node, first, dim, enter, leave }) {
  const open = () => {
    if (node.opens) window.location.hash = link("pending") + node.opens;
  };
  return html`
    <g class=${`block ${node.kind}${dim ? " dim" : ""}${node.opens ? " opens" : ""}`} tabindex=${first ? 0 : -1} data-id=${node.id}
      role=${node.opens ? "link" : "img"} aria-label=${node.words.join(", ")} onFocus=${enter} onBlur=${leave}
      onMouseEnter=${enter} onMouseMove=${enter} onMouseLeave=${leave} onClick=${open}
      onKeyDown=${(event) => event.key === "Enter" && open()}>
      <rect x=${node.x0} y=${node.y0} width=${node.x1 - node.x0} height=${Math.max(1, node.y1 - node.y0)}
        fill=${node.kind === "left" ? "url(#hatch)" : undefined} />
      ${node.label ? html`
        <text x=${node.labelX} y=${(node.y0 + node.y1) / 2} dy="0.35em" text-anchor=${node.anchor}>
          ${node.label} <tspan class="number">${count(node.pods)}</tspan>
        </text>` : null}
    </g>`;
}
