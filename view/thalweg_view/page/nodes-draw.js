// Draws the map of nodes. The map itself is drawn when it changes, the cursor on a canvas of its own: moving is cheap.
import { themed, viridis } from "./colours.js";

const STEPS = 64;

export function drawMap(canvas, laid, { parts, found, closed, tainted }) {
  const context = prepared(canvas, laid);
  const [ink, quiet, none] = [themed("ink"), themed("quiet"), themed("none")];
  context.textBaseline = "alphabetic";
  for (const { text, count, x, y } of laid.headings) {
    context.font = "600 13px system-ui, sans-serif";
    context.fillStyle = ink;
    context.fillText(text, x, y);
    const after = context.measureText(text).width;
    context.font = "12px system-ui, sans-serif";
    context.fillStyle = quiet;
    context.fillText(`${count} node${count === 1 ? "" : "s"}`, x + after + 8, y);
  }
  context.font = "10px system-ui, sans-serif";
  context.fillStyle = quiet;
  for (const { text, x, y, width } of laid.racks) context.fillText(cut(context, text, width), x, y);
  const colours = Array.from({ length: STEPS + 1 }, (_, step) => viridis(step / STEPS));
  const { side } = laid;
  laid.cells.forEach(({ x, y }, node) => {
    context.globalAlpha = found && !found.has(node) ? 0.15 : 1;
    const part = parts[node];
    if (part < 0) {
      context.strokeStyle = none;
      context.lineWidth = 1;
      context.strokeRect(x + 0.5, y + 0.5, side - 1, side - 1);
    } else {
      context.fillStyle = colours[Math.round(Math.min(1, part) * STEPS)];
      context.fillRect(x, y, side, side);
    }
    if (tainted[node]) corner(context, x, y, side);
    if (closed[node]) cross(context, x, y, side);
  });
  context.globalAlpha = 1;
}

export function drawCursor(canvas, laid, chosen, over) {
  const context = prepared(canvas, laid);
  const mark = (node, width) => {
    const cell = laid.cells[node];
    if (!cell) return;
    context.lineWidth = width + 2;
    context.strokeStyle = themed("ground");
    context.strokeRect(cell.x - 1.5, cell.y - 1.5, laid.side + 3, laid.side + 3);
    context.lineWidth = width;
    context.strokeStyle = themed("ink");
    context.strokeRect(cell.x - 1.5, cell.y - 1.5, laid.side + 3, laid.side + 3);
  };
  mark(over, 1.5);
  mark(chosen, 2.5);
}

// Tainted: a corner is cut off, in the colour of the ground with an edge.
function corner(context, x, y, side) {
  const cut = Math.max(3, side / 3);
  context.beginPath();
  context.moveTo(x + side - cut, y);
  context.lineTo(x + side, y);
  context.lineTo(x + side, y + cut);
  context.closePath();
  context.fillStyle = themed("ground");
  context.fill();
  context.strokeStyle = themed("ink");
  context.lineWidth = 1;
  context.stroke();
}

// Unschedulable or not ready: a cross, so that it does not hang on colour.
function cross(context, x, y, side) {
  for (const [width, colour] of [[3, themed("ground")], [1.2, themed("ink")]]) {
    context.lineWidth = width;
    context.strokeStyle = colour;
    context.beginPath();
    context.moveTo(x + 1, y + 1);
    context.lineTo(x + side - 1, y + side - 1);
    context.moveTo(x + side - 1, y + 1);
    context.lineTo(x + 1, y + side - 1);
    context.stroke();
  }
}

function prepared(canvas, { width, height }) {
  const scale = window.devicePixelRatio || 1;
  const [across, down] = [Math.round(width * scale), Math.round(height * scale)];
  if (canvas.width !== across || canvas.height !== down) {
    canvas.width = across;
    canvas.height = down;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

function cut(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let length = text.length;
  while (length > 1 && context.measureText(`…${text.slice(-length)}`).width > width) length -= 1;
  return `…${text.slice(-length)}`;
}
