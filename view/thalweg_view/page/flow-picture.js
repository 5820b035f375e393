// The picture of a flow: blocks, and links between them. What the pointer or the focus is on shows all that it is connected to.
import { useMemo, useState } from "./vendor/preact-hooks.js";
import { viridis } from "./colours.js";
import { count } from "./format.js";
import { html } from "./html.js";
import { Tip } from "./parts.js";
import { link } from "./route.js";

const ruler = document.createElement("canvas").getContext("2d");

/** Pixels that a label is wide. */
export function widthOf(text, weight = 400) {
  ruler.font = `${weight} 12px ${getComputedStyle(document.body).fontFamily}`;
  return ruler.measureText(text).width;
}

/** Blocks and the links between them, as `layFlow` or `layNetwork` lays them out. */
export function Picture({ laid, size, theme }) {
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
          class=${`link ${each.kind}${lit && !lit.has(each.id) ? " dim" : ""}`}
          stroke=${each.kind === "left" ? "url(#hatch)" : each.kind ? undefined : viridis(each.part)} onMouseEnter=${enter} onMouseMove=${enter} />`)}
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
      <g class="link-labels" aria-hidden="true">
        ${laid.labels.map((each) => html`
          <text key=${each.id} x=${each.x} y=${each.y} dy="0.35em" text-anchor=${each.anchor}
            class=${`${each.kind}${lit && !lit.has(each.id) ? " dim" : ""}`}>${each.text}</text>`)}
      </g>
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
