// The rounds over time: cost and bound, gap, pods, duration. A click on a chart chooses the round for all views.
import { useLayoutEffect, useRef } from "./vendor/preact-hooks.js";
import uPlot from "./vendor/uplot.js";
import { themed } from "./colours.js";
import { useShown } from "./data.js";
import { clock, compact, count, duration, gapOf, percent } from "./format.js";
import { html } from "./html.js";
import { Empty, useSize, useTheme } from "./parts.js";

/** Height of a chart in pixels. */
const HEIGHT = 190;

const gapsOf = ({ gap, evicted, certified }) => gap.map((each, at) => gapOf({ gap: each, evicted: evicted[at], certified: certified[at] }));

export function Rounds() {
  const { rounds } = useShown();
  if (!rounds) return html`<div class="tools"><h1>Rounds</h1></div>`;
  if (!rounds.number.length) return html`<div class="tools"><h1>Rounds</h1></div><${Empty}>There was no round yet.<//>`;
  return html`
    <div class="tools"><h1>Rounds</h1>${rounds.number.length > 1 ? html`<p class="quiet">A click chooses the round that all views show.</p>` : null}</div>
    ${rounds.number.length > 1 ? html`<${Charts} rounds=${rounds} />` : null}
    <${Table} rounds=${rounds} />`;
}

function Charts({ rounds }) {
  const stepped = { paths: uPlot.paths.stepped({ align: 1 }) };
  return html`
    <div class="charts">
      <${Chart} title="Cost and lower bound" rounds=${rounds} format=${compact} series=${[
        { label: "cost", values: rounds.cost, colour: "series-1", ...stepped },
        { label: "lower bound", values: rounds.lowerBound.map((bound, at) => (rounds.gap[at] === null ? null : bound)), colour: "series-2", dash: [5, 3], ...stepped },
      ]} />
      <${Chart} title="Gap" rounds=${rounds} format=${percent} series=${[{ label: "gap", values: gapsOf(rounds), colour: "series-3", fill: true, ...stepped }]} />
      <${Chart} title="Pods" rounds=${rounds} format=${compact} series=${[
        { label: "placed", values: rounds.placed, colour: "series-1", ...stepped },
        { label: "waiting", values: rounds.waiting, colour: "series-4", dash: [5, 3], ...stepped },
      ]} />
      <${Chart} title="Duration" rounds=${rounds} format=${duration} series=${[{ label: "duration", values: rounds.seconds, colour: "series-2", ...stepped }]} />
    </div>`;
}

function Chart({ title, rounds, series, format }) {
  const { round, setRound } = useShown();
  const [box, size] = useSize();
  const chart = useRef(null);
  const chosen = useRef(0);
  const theme = useTheme();
  chosen.current = round ? rounds.number.indexOf(round) : rounds.number.length - 1;
  const data = [rounds.number, ...series.map((each) => each.values)];
  useLayoutEffect(() => {
    if (!size.width) return undefined;
    chart.current = new uPlot(options(title, size.width, series, format, rounds, chosen), data, box.current);
    const { over } = chart.current;
    const choose = () => {
      const at = chart.current.cursor.idx;
      if (at !== null && at !== undefined) setRound(choice(rounds, at));
    };
    over.addEventListener("click", choose);
    return () => chart.current.destroy();
  }, [size.width, theme, rounds]);
  useLayoutEffect(() => chart.current?.redraw(false), [round]);
  return html`<section class="card chart" aria-label=${title}><h2>${title}</h2><div ref=${box}></div></section>`;
}

/** The newest round is 0: the page goes on to the next. */
function choice(rounds, at) {
  if (at === rounds.number.length - 1) return 0;
  return rounds.whole[at] ? rounds.number[at] : rounds.number[rounds.whole.indexOf(true)];
}

function options(title, width, series, format, rounds, chosen) {
  const axis = { stroke: themed("quiet"), grid: { stroke: themed("line"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
  return {
    width,
    height: HEIGHT,
    legend: { live: true },
    cursor: { y: false, points: { size: 7 }, sync: { key: "rounds" } },
    scales: { x: { time: false }, y: { range: (_, low, high) => [Math.min(0, low), high > 0 ? high * 1.08 : 1] } },
    axes: [
      { ...axis, size: 28, incrs: [1, 2, 5, 10, 20, 50, 100] },
      { ...axis, size: 58, values: (_, splits) => splits.map((value) => format(value)) },
    ],
    series: [
      { label: "round", value: (_, value, __, at) => (value === null || at === null ? "–" : `${value}, ${clock(rounds.time[at])}`) },
      ...series.map((each) => ({
        label: each.label,
        stroke: themed(each.colour),
        fill: each.fill ? `${themed(each.colour)}30` : undefined,
        width: 1.75,
        dash: each.dash,
        paths: each.paths,
        points: { show: rounds.number.length < 40, size: 4 },
        value: (_, value) => (value === null ? "–" : format(value)),
      })),
    ],
    hooks: { draw: [(plot) => mark(plot, rounds.number[chosen.current])] },
  };
}

/** The chosen round as a line across the chart. */
function mark(plot, number) {
  if (number === undefined) return;
  const x = plot.valToPos(number, "x", true);
  const { ctx: context, bbox } = plot;
  context.save();
  context.setLineDash([]);
  context.strokeStyle = themed("ink");
  context.lineWidth = 1.5 * window.devicePixelRatio;
  context.beginPath();
  context.moveTo(x, bbox.top);
  context.lineTo(x, bbox.top + bbox.height);
  context.stroke();
  context.restore();
}

function Table({ rounds }) {
  const { round, setRound } = useShown();
  const newest = rounds.number.length - 1;
  const gaps = gapsOf(rounds);
  const order = rounds.number.map((_, at) => newest - at);
  return html`
    <div class="scroll">
      <table class="wide rounds">
        <thead><tr>
          <th>Round</th><th>Time</th><th class="number">Duration</th><th class="number">Placed</th><th class="number">Waiting</th>
          <th class="number">Leave</th><th class="number">Cost</th><th class="number">Lower bound</th><th class="number">Gap</th><th>Method</th>
        </tr></thead>
        <tbody>
          ${order.map((at) => html`
            <tr key=${rounds.number[at]} class=${rounds.number[at] === (round || rounds.number[newest]) ? "chosen" : ""}>
              <td>${rounds.whole[at]
                ? html`<button type="button" class="plain" onClick=${() => setRound(choice(rounds, at))}>${rounds.number[at]}</button>`
                : rounds.number[at]}</td>
              <td>${clock(rounds.time[at])}</td>
              <td class="number">${duration(rounds.seconds[at])}</td>
              <td class="number">${count(rounds.placed[at])}</td>
              <td class="number">${count(rounds.waiting[at])}</td>
              <td class="number">${count(rounds.evicted[at])}</td>
              <td class="number">${count(rounds.cost[at])}</td>
              <td class="number">${rounds.gap[at] === null ? "–" : count(rounds.lowerBound[at])}</td>
              <td class="number">${rounds.certified[at] ? "certified" : gaps[at] === null ? "–" : percent(gaps[at])}</td>
              <td>${rounds.method[at]}</td>
            </tr>`)}
        </tbody>
      </table>
    </div>`;
}
