// Where the points and arcs of a policy's network stand. Pure: an answer and a size in, coordinates out.
import { sankey, sankeyLinkHorizontal } from "./vendor/d3-sankey/index.js";
import { BLOCK, BOTTOM, TOP, neighbour, reach, toBlock, withLabels } from "./flow-layout.js";
import { count, plural } from "./format.js";

/** Room for labels, in pixels: beside the first and the last column at most, and from one column to the next. */
const BESIDE = 220;
const BETWEEN = 250;
/** Pixels between two blocks, and of a column for each of its blocks. */
const PADDING = 15;
const EACH = 30;
/** Pixels of the smallest block: an arc without flow is drawn, too. */
const THIN = 2;
/** Height of a line of text, in pixels. */
const LINE = 13;
const STATES = ["over", "short", "full", ""];

/** Lays the network of one policy out in a box that is as wide, or wider where it has many columns. Its height follows
 *  from its points. `measure` tells the width of a text in pixels. */
export function layNetwork(flow, width, measure) {
  const graph = toGraph(flow);
  if (!graph.links.length) return { empty: true };
  const columns = Math.max(...graph.nodes.map((each) => each.column)) + 1;
  const most = Math.max(...Array.from({ length: columns }, (_, column) => graph.nodes.filter((each) => each.column === column).length));
  const [before, after] = [0, columns - 1].map((column) => besideOf(graph.nodes.filter((each) => each.column === column), measure));
  const size = { width: Math.max(width, before + after + (columns - 1) * BETWEEN), height: Math.max(300, TOP + BOTTOM + most * EACH) };
  const least = (Math.max(...graph.links.map((each) => each.flow)) || 1) * (THIN / (size.height / 2));
  graph.links.forEach((each) => { each.value = Math.max(each.flow, least); });
  sankey()
    .nodeId((each) => each.id)
    .nodeAlign((each) => each.column)
    .nodeSort((one, other) => one.order - other.order)
    .nodeWidth(BLOCK)
    .nodePadding(PADDING)
    .iterations(16)
    .extent([[before, TOP], [size.width - after, size.height - BOTTOM]])(graph);
  const path = sankeyLinkHorizontal();
  const links = graph.links.toSorted((one, other) => other.width - one.width).map((each) => ({
    id: each.id,
    path: path(each),
    width: each.flow ? Math.max(1.5, each.width) : 1.5,
    kind: each.kind,
    words: [`${each.source.name} → ${each.target.name}`, ...wordsOf(each.arc)],
  }));
  const room = (size.width - after - before) / Math.max(1, columns - 1) - BLOCK;
  const labelled = withLabels(graph.nodes);
  const nodes = graph.nodes.map((each) => {
    const beside = each.column === 0 ? before : each.column === columns - 1 ? after : room;
    const words = [each.name, `${plural(each.flow, "unit")} of flow`];
    return { ...toBlock(each, beside, measure, labelled.has(each.id)), pods: each.flow, opens: "", words };
  });
  const byId = new Map([...nodes, ...links].map((each) => [each.id, each]));
  return {
    ...size,
    empty: false,
    links,
    labels: withoutOverlaps(graph.links, nodes, measure),
    nodes,
    columns: [],
    hidden: graph.hidden,
    summary: `Network of policy ${flow.policy}: ${plural(flow.placed, "pod")} placed, ${count(flow.left)} left out. Arrow keys move.`,
    find: (id) => byId.get(id),
    reach: (id) => reach(graph, id),
    neighbour: (id, key) => neighbour(graph, id, key),
  };
}

const besideOf = (nodes, measure) => Math.min(BESIDE, 24 + Math.max(...nodes.map((each) => measure(`${each.name} ${count(each.flow)}`, 600))));

/** What an arc's flow, limits, price and state are, as phrases. */
export function wordsOf(arc) {
  return [
    `flow ${flowOf(arc)}`,
    ...(arc.gain !== "1" ? [`${arc.gain} leave it for each that enters`] : []),
    ...(arc.price === null || arc.price === undefined ? [] : [`price ${priceOf(arc)}`]),
    ...(stateOf(arc) ? [stateOf(arc)] : []),
  ];
}

const flowOf = (arc) => [
  count(arc.flow) + (hasMost(arc) ? ` of ${count(arc.maximum)}` : ""),
  ...(arc.minimum ? [`at least ${count(arc.minimum)}${arc.wholeOrNone ? " or none" : ""}`] : []),
].join(", ");

export const hasMost = (arc) => arc.maximum !== null && arc.maximum !== undefined;

export const priceOf = (arc) => (arc.price === arc.highestPrice ? count(arc.price) : `${count(arc.price)} to ${count(arc.highestPrice)}`);

/** The state of an arc; of one that stands for several, how many are in it, and where it is not beside the limit of how many. */
export function stateOf(arc, isBeside = false) {
  const some = `${count(arc.full)}${isBeside ? "" : ` of ${count(arc.arcs)}`} full`;
  if (arc.state === "full") return "full";
  if (arc.state) return arc.arcs > 1 ? `some ${arc.state}${arc.full ? `, ${some}` : ""}` : arc.state;
  return arc.full ? some : "";
}

/** Points by column, and an arc for each row. Nodes and Unscheduled are the last column. */
function toGraph(flow) {
  const points = new Map();
  const point = (id, name, kind) => {
    if (!points.has(id)) points.set(id, { id, name, kind, column: 0, flow: 0, into: 0 });
    return points.get(id);
  };
  const links = flow.arcs.map((arc, order) => {
    const start = `${arc.fromPods ? "pods" : "point"} ${arc.from}`;
    const end = arc.toNodes ? `nodes of ${start}: ${arc.to}` : `point ${arc.to}`;
    const waits = !arc.toNodes && arc.to === "Unscheduled";
    const source = point(start, arc.from, arc.fromPods ? "pods" : "group");
    const target = point(end, arc.to, waits ? "left" : arc.toNodes ? "node" : "group");
    source.flow += arc.flow;
    target.into += arc.flow;
    return { id: `${order}`, source: start, target: end, arc, flow: arc.flow, kind: waits ? "left" : kindOf(arc) };
  });
  const drawn = withColumns(points, links);
  for (const each of points.values()) each.flow = Math.max(each.flow, each.into);
  const used = new Set(drawn.flatMap((each) => [each.source, each.target]));
  const nodes = [...points.values()].filter((each) => used.has(each.id)).sort((one, other) => one.column - other.column || other.flow - one.flow);
  order(nodes, drawn);
  return { nodes, links: drawn, hidden: links.length - drawn.length };
}

/** Points stand beside those that lead to them, so that arcs cross seldom; Unscheduled is the last. */
function order(nodes, links) {
  const sources = Map.groupBy(links, (each) => each.target);
  const place = new Map();
  for (const column of Map.groupBy(nodes, (each) => each.column).values()) {
    const beside = (node) => {
      const ends = (sources.get(node.id) ?? []).map((each) => place.get(each.source) ?? 0);
      return node.kind === "left" ? Infinity : ends.reduce((sum, each) => sum + each, 0) / (ends.length || 1);
    };
    const places = new Map(column.map((each) => [each, beside(each)]));
    column.toSorted((one, other) => (places.get(one) === places.get(other) ? 0 : places.get(one) - places.get(other))).forEach((each, at) => {
      each.order = at;
      place.set(each.id, at / column.length);
    });
  }
}

/** How an arc is drawn. One that stands for several is no whole arc above or below a limit: its words say that some are. */
function kindOf(arc) {
  if (arc.state && (arc.arcs === 1 || arc.state === "full")) return arc.state;
  return arc.flow ? "some" : "none";
}

/** Each point is right of all that lead to it. Points that stand for several may form a cycle: the arc that closes it is left out. */
function withColumns(points, links) {
  const onward = new Map([...points.keys()].map((id) => [id, []]));
  for (const each of links) onward.get(each.source).push(each);
  const closing = new Set();
  const ahead = new Map();
  const walk = (id) => {
    ahead.set(id, -1); // under way
    let far = 0;
    for (const each of onward.get(id)) {
      if (!ahead.has(each.target)) walk(each.target);
      if (ahead.get(each.target) < 0) closing.add(each);
      else far = Math.max(far, ahead.get(each.target) + 1);
    }
    ahead.set(id, far);
  };
  for (const id of points.keys()) if (!ahead.has(id)) walk(id);
  const last = Math.max(0, ...ahead.values());
  for (const each of points.values()) each.column = each.kind === "pods" ? 0 : last - ahead.get(each.id);
  return links.filter((each) => !closing.has(each));
}

/** The figures beside arcs, those of arcs at a limit first; where there is no room an arc has none. */
function withoutOverlaps(links, nodes, measure) {
  const taken = nodes.flatMap((each) => [boxOf(each.x0, (each.y0 + each.y1) / 2, each.x1 - each.x0), ...labelBox(each, measure)]);
  const labels = [];
  const rank = (each) => STATES.indexOf(each.arc.state) * 2 - Number(each.kind === "left");
  for (const each of links.toSorted((one, other) => rank(one) - rank(other) || other.flow - one.flow)) {
    const text = labelOf(each.arc);
    const isBad = ["over", "short"].includes(each.arc.state);
    const wide = measure(text, isBad ? 650 : 400);
    const beside = each.target.x0 - 6;
    const places = [
      // A wide arc has room above and below the name of the block that it leaves.
      ...[0, LINE + 3, -LINE - 3].filter((by) => each.width > 2 * Math.abs(by)).map((by) => ({ x: beside, y: each.y1 + by, anchor: "end", from: beside - wide })),
      { x: (each.source.x1 + each.target.x0) / 2, y: (each.y0 + each.y1) / 2, anchor: "middle", from: (each.source.x1 + each.target.x0 - wide) / 2 },
    ];
    const place = places.find(({ from, y }) => {
      const box = boxOf(from, y, wide);
      return !taken.some((other) => box.x0 < other.x1 && other.x0 < box.x1 && box.y0 < other.y1 && other.y0 < box.y1);
    });
    if (!place) continue;
    taken.push(boxOf(place.from, place.y, wide));
    labels.push({ id: each.id, text, kind: isBad ? each.arc.state : each.kind, ...place });
  }
  return labels;
}

const labelOf = (arc) => [flowOf(arc), ...(arc.gain !== "1" ? [`× ${arc.gain}`] : []), ...(arc.price ? [`price ${priceOf(arc)}`] : []), ...(stateOf(arc) ? [stateOf(arc, arc.maximum === arc.arcs)] : [])].join(" · ");

const boxOf = (x0, y, width) => ({ x0: x0 - 3, x1: x0 + width + 3, y0: y - LINE / 2, y1: y + LINE / 2 });

function labelBox(block, measure) {
  if (!block.label) return [];
  const wide = measure(`${block.label} `, block.kind === "group" ? 600 : 400) + measure(count(block.pods));
  return [boxOf(block.anchor === "end" ? block.labelX - wide : block.labelX, (block.y0 + block.y1) / 2, wide)];
}
