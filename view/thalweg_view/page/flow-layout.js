// Where the parts of the flow stand. Pure: an answer and a size in, coordinates out.
import { sankey, sankeyLinkHorizontal } from "./vendor/d3-sankey/index.js";
import { count, plural } from "./format.js";

export const TOP = 26;
export const BOTTOM = 10;
export const BLOCK = 12;
/** Room for labels, in pixels: beside the sources and beside the nodes. */
const SIDES = [250, 190];
/** Pixels below which a picture is narrow: labels need a larger part of it. */
export const NARROW = 640;
/** Least distance of two labels, in pixels. */
const LABEL = 11;

/** Lays `flow` of the view's API out in a box. What pods wait for is a block "left-WORDS"; links have ids "from>to".
 *  `measure` tells the width of a text in pixels. */
export function layFlow(flow, width, height, measure) {
  const graph = toGraph(flow);
  if (!graph.links.length) return { empty: true };
  const [before, after] = SIDES.map((each) => Math.min(each, width * (width < NARROW ? 0.28 : 0.22)));
  const most = Math.max(...[0, 1, 2].map((column) => graph.nodes.filter((each) => each.column === column).length));
  const padding = Math.max(1, Math.min(10, (height - TOP - BOTTOM) / (most * 2.2)));
  sankey()
    .nodeId((each) => each.id)
    .nodeAlign((each) => each.column)
    .nodeSort((one, other) => one.order - other.order)
    .linkSort((one, other) => one.left - other.left || one.target.order - other.target.order || one.source.order - other.source.order)
    .nodeWidth(BLOCK)
    .nodePadding(padding)
    .iterations(graph.nodes.length > 120 ? 4 : 8)
    .extent([[before, TOP], [width - after, height - BOTTOM]])(graph);
  const prices = priceRange(graph.links);
  const path = sankeyLinkHorizontal();
  // What is left out is drawn first, below the flows to nodes.
  const links = graph.links.toSorted((one, other) => other.left - one.left || other.width - one.width).map((each) => ({
    id: each.id,
    path: path(each),
    width: Math.max(1, each.width),
    kind: each.left ? "left" : "",
    part: (each.price - prices[0]) / (prices[1] - prices[0] || 1),
    words: [
      `${each.source.name} → ${each.target.name}`,
      plural(each.value, "pod"),
      ...(each.left ? [] : [`price ${count(Math.round(each.price))} each`]),
    ],
  }));
  const labelled = withLabels(graph.nodes);
  const nodes = graph.nodes.map((each) => toBlock(each, each.column === 0 ? before : after, measure, labelled.has(each.id)));
  const byId = new Map([...nodes, ...links].map((each) => [each.id, each]));
  return {
    empty: false,
    links,
    labels: [],
    nodes,
    prices,
    columns: titles(before, after, width),
    summary: summary(flow),
    find: (id) => byId.get(id),
    reach: (id) => reach(graph, id),
    neighbour: (id, key) => neighbour(graph, id, key),
  };
}

function toGraph(flow) {
  const nodes = [
    ...flow.sources.map((each, order) => ({ id: each.id, name: each.name, note: each.policy && `policy ${each.policy}`, kind: "pods", column: 0, order })),
    ...flow.groups.map((each, order) => ({ id: each.id, name: each.name || "without the label", note: plural(each.nodes, "node"), kind: "group", column: 1, order })),
    ...flow.nodes.map((each, order) => ({ id: each.id, name: each.name, kind: "node", column: 2, order: order + groupOrder(flow, each) * 1e4 })),
  ];
  const left = new Map();
  const links = flow.links.map((each) => ({ source: each.from, target: each.to, value: each.pods, price: each.price / each.pods, left: false }));
  for (const each of flow.left) {
    if (!left.has(each.short)) left.set(each.short, { id: `left-${each.short}`, name: each.short, note: each.reason, kind: "left", column: 2, order: 1e9 + left.size });
    links.push({ source: each.from, target: `left-${each.short}`, value: each.pods, price: 0, left: true });
  }
  nodes.push(...left.values());
  const merged = merge(links);
  const used = new Set(merged.flatMap((each) => [each.source, each.target]));
  return { nodes: nodes.filter((each) => used.has(each.id)), links: merged };
}

const groupOrder = (flow, node) => Math.max(0, flow.groups.findIndex((each) => each.id === node.group));

// One link between two blocks, with the mean price.
function merge(links) {
  const merged = new Map();
  for (const each of links) {
    const id = `${each.source}>${each.target}`;
    const known = merged.get(id);
    if (!known) merged.set(id, { ...each, id });
    else {
      known.price = (known.price * known.value + each.price * each.value) / (known.value + each.value);
      known.value += each.value;
    }
  }
  return [...merged.values()].filter((each) => each.value > 0);
}

// From the 2nd to the 98th hundredth, so that one dear pod does not make all others look the same.
function priceRange(links) {
  const prices = links.filter((each) => !each.left).map((each) => each.price).sort((one, other) => one - other);
  if (!prices.length) return [0, 0];
  return [prices[Math.floor((prices.length - 1) * 0.02)], prices[Math.ceil((prices.length - 1) * 0.98)]];
}

/** Ids of the blocks whose label has room: what is short first, then the larger ones, and no two labels on each other. */
export function withLabels(nodes) {
  const found = new Set();
  const taken = [];
  const isLeft = (node) => Number(node.kind === "left");
  for (const node of nodes.toSorted((one, other) => isLeft(other) - isLeft(one) || other.value - one.value)) {
    const middle = (node.y0 + node.y1) / 2;
    taken[node.column] ??= [];
    if (taken[node.column].some((other) => Math.abs(other - middle) < LABEL)) continue;
    taken[node.column].push(middle);
    found.add(node.id);
  }
  return found;
}

export function toBlock(node, room, measure, labelled) {
  const before = node.column === 0;
  return {
    id: node.id,
    kind: node.kind,
    pods: node.value,
    x0: node.x0, x1: node.x1, y0: node.y0, y1: node.y1,
    label: labelled ? fitted(node.name, room - 12 - measure(` ${count(node.value)}`), measure) : "",
    labelX: before ? node.x0 - 8 : node.x1 + 8,
    anchor: before ? "end" : "start",
    opens: node.kind === "left" ? `?short=${encodeURIComponent(node.name)}` : "",
    words: [node.name, plural(node.value, "pod"), ...(node.note ? [node.note] : [])],
  };
}

/** A label that fits. What tells a name from others is at its end: it is cut from the left, where a part of it ends if
 *  possible. Words are cut at their end. */
function fitted(name, room, measure) {
  const fits = (text) => measure(text) <= room;
  if (fits(name)) return name;
  if (name.includes(" ")) {
    let length = name.length - 1;
    while (length > 1 && !fits(`${name.slice(0, length)}…`)) length -= 1;
    return `${name.slice(0, length)}…`;
  }
  for (let at = name.indexOf("/"); at >= 0; at = name.indexOf("/", at + 1)) if (fits(`…${name.slice(at)}`)) return `…${name.slice(at)}`;
  let from = 1;
  while (from < name.length - 1 && !fits(`…${name.slice(from)}`)) from += 1;
  return `…${name.slice(from)}`;
}

function titles(before, after, width) {
  return [
    width < NARROW ? { x: 0, anchor: "start", title: "pending" } : { x: before + BLOCK, anchor: "end", title: "pending pods" },
    { x: (before + width - after) / 2, anchor: "middle", title: width < NARROW ? "groups" : "groups of nodes" },
    { x: width - after - BLOCK, anchor: "start", title: "nodes" },
  ];
}

function summary(flow) {
  return `Flow of ${plural(flow.placed, "placed pod")} to ${plural(flow.groups.length, "group")} of nodes; ${plural(flow.unplaced, "pod")} left out. Arrow keys move.`;
}

// Everything up and down the stream of a block or a link.
export function reach(graph, id) {
  const lit = new Set([id]);
  const link = graph.links.find((each) => each.id === id);
  const walk = (node, side, far) => {
    lit.add(node.id);
    for (const each of node[side] ?? []) {
      lit.add(each.id);
      walk(each[far], side, far);
    }
  };
  if (link) {
    walk(link.source, "targetLinks", "source");
    walk(link.target, "sourceLinks", "target");
    return lit;
  }
  const node = graph.nodes.find((each) => each.id === id);
  if (node) {
    walk(node, "targetLinks", "source");
    walk(node, "sourceLinks", "target");
  }
  return lit;
}

// The block that an arrow key leads to.
export function neighbour(graph, id, key) {
  const node = graph.nodes.find((each) => each.id === id);
  if (!node) return null;
  const column = graph.nodes.filter((each) => each.column === node.column).sort((one, other) => one.y0 - other.y0);
  const widest = (links, end) => links.toSorted((one, other) => other.value - one.value)[0]?.[end].id ?? null;
  switch (key) {
    case "ArrowDown": return column[column.indexOf(node) + 1]?.id ?? null;
    case "ArrowUp": return column[column.indexOf(node) - 1]?.id ?? null;
    case "ArrowRight": return widest(node.sourceLinks, "target");
    case "ArrowLeft": return widest(node.targetLinks, "source");
    default: return null;
  }
}
