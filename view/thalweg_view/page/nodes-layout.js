// Where each node of the map stands. Pure: columns of the view's API and a width in, cells out.
const HEADING = 22;
const RACK_HEADING = 13;
const RACK_GAP = 8;
const ZONE_GAP = 14;
const GAP = 1;
/** Sides of a cell that are tried, the largest first. */
const SIDES = [30, 28, 26, 24, 22, 20, 18, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6];

/** Lays the map out with the largest cells that keep it within `tallest` pixels, where that is possible:
 *  {cells: [{x, y}] by node, side, width, height, headings, racks, at(x, y), step(node, key)}. */
export function layMap(data, width, tallest) {
  const zones = grouped(data);
  let laid;
  for (const side of SIDES) {
    laid = place(data, zones, width, side);
    if (laid.height <= tallest) break;
  }
  return { ...laid, width, at: (x, y) => find(laid, x, y), step: (node, key) => step(laid, node, key) };
}

const byName = (one, other) => one.localeCompare(other, "en", { numeric: true });

// [[zone, [[rack, nodes]]]] in the order of names.
function grouped(data) {
  const zones = new Map();
  data.names.forEach((_, node) => {
    const zone = data.zone[node];
    if (!zones.has(zone)) zones.set(zone, new Map());
    const racks = zones.get(zone);
    if (!racks.has(data.rack[node])) racks.set(data.rack[node], []);
    racks.get(data.rack[node]).push(node);
  });
  return [...zones].sort(([one], [other]) => byName(one, other))
    .map(([zone, racks]) => [zone, [...racks].sort(([one], [other]) => byName(one, other))]);
}

function place(data, zones, width, side) {
  const pitch = side + GAP;
  const cells = new Array(data.names.length);
  const headings = [];
  const racks = [];
  let y = 0;
  for (const [zone, members] of zones) {
    const total = members.reduce((sum, [, nodes]) => sum + nodes.length, 0);
    headings.push({ text: zone || "no zone", count: total, x: 0, y: y + 14 });
    y += HEADING;
    const named = members.some(([rack]) => rack);
    let x = 0;
    let tallest = 0;
    for (const [rack, nodes] of members) {
      const columns = Math.max(1, Math.min(columnsOf(nodes.length, named), Math.floor(width / pitch)));
      const rows = Math.ceil(nodes.length / columns);
      const wide = Math.max(columns * pitch, named ? Math.min(34, width) : 0);
      if (x && x + wide > width) {
        x = 0;
        y += tallest + RACK_GAP;
        tallest = 0;
      }
      const below = named ? RACK_HEADING : 0;
      if (named) racks.push({ text: rack || "no rack", x, y: y + 9, width: wide });
      nodes.forEach((node, index) => {
        cells[node] = { x: x + (index % columns) * pitch, y: y + below + Math.floor(index / columns) * pitch };
      });
      tallest = Math.max(tallest, below + rows * pitch);
      x += wide + RACK_GAP;
    }
    y += tallest + ZONE_GAP;
  }
  return { cells, side, pitch, headings, racks, height: Math.max(1, y) };
}

// A rack is about twice as wide as high; without racks a zone is as wide as the map.
const columnsOf = (nodes, named) => (named ? Math.ceil(Math.sqrt(nodes * 2)) : nodes);

function find(laid, x, y) {
  const index = (laid.index ??= indexed(laid));
  for (const node of index.get(Math.floor(y / 32)) ?? []) {
    const cell = laid.cells[node];
    if (x >= cell.x && x < cell.x + laid.pitch && y >= cell.y && y < cell.y + laid.pitch) return node;
  }
  return -1;
}

// Nodes by bands of 32 pixels.
function indexed(laid) {
  const bands = new Map();
  laid.cells.forEach((cell, node) => {
    for (let band = Math.floor(cell.y / 32); band <= Math.floor((cell.y + laid.pitch) / 32); band += 1) {
      if (!bands.has(band)) bands.set(band, []);
      bands.get(band).push(node);
    }
  });
  return bands;
}

// The node that a key leads to; -1: the key is not for the map.
function step(laid, node, key) {
  const { cells } = laid;
  const order = (laid.order ??= cells.map((_, index) => index)
    .sort((one, other) => cells[one].y - cells[other].y || cells[one].x - cells[other].x));
  if (key === "Home") return order[0];
  if (key === "End") return order.at(-1);
  if (!key.startsWith("Arrow")) return -1;
  if (node < 0) return order[0];
  const at = order.indexOf(node);
  if (key === "ArrowRight") return order[Math.min(order.length - 1, at + 1)];
  if (key === "ArrowLeft") return order[Math.max(0, at - 1)];
  const down = key === "ArrowDown";
  const here = cells[node];
  const rows = down ? order.slice(at + 1) : order.slice(0, at).reverse();
  const row = rows.find((each) => cells[each].y !== here.y);
  if (row === undefined) return node;
  const level = rows.filter((each) => cells[each].y === cells[row].y);
  return level.reduce((best, each) => (Math.abs(cells[each].x - here.x) < Math.abs(cells[best].x - here.x) ? each : best));
}
