// Audits over days: what a plan would do better at least and at most, and whose placements closed rooms.
import { useLayoutEffect, useRef } from "./vendor/preact-hooks.js";
import uPlot from "./vendor/uplot.js";
import { themed } from "./colours.js";
import { useData, useShown } from "./data.js";
import { age, amount, compact, count, plural } from "./format.js";
import { html } from "./html.js";
import { Empty, PodLink, Problem, useSize, useTheme } from "./parts.js";

/** Height of a chart in pixels. */
const HEIGHT = 170;
/** Rows of a table. */
const SOME = 200;
const TITLES = {
  WaitingPods: "Pods that wait and could run",
  WaitingGangs: "Gangs that wait and could run",
  PriorityInversions: "Pods that wait for pods of lower priority",
  EmptyNodes: "Nodes that could be empty",
};

export function Regret() {
  const { data, error, loading } = useData("regret", { limit: SOME }, false);
  const { overview } = useShown();
  if (!data) return html`<div class="tools"><h1>Regret</h1></div><${Problem} error=${error} loading=${loading} data=${data} />`;
  if (!data.time.length && overview?.source === "dump") return html`<${Audit} />`;
  if (!data.time.length) {
    return html`<div class="tools"><h1>Regret</h1></div>
      <${Empty}>There was no audit yet. thalweg run --audit-interval makes some.<//>`;
  }
  return html`
    <div class="tools">
      <h1>Regret</h1>
      <p class="quiet" role="status">${plural(data.time.length, "audit")}. At least: a plan shows it. At most: no plan does better.</p>
    </div>
    <${Problem} error=${error} loading=${loading} data=${data} />
    ${data.time.length > 1 ? html`
      <div class="charts">
        ${data.lines.map((line) => html`<${Chart} key=${`${line.finding} ${line.resource}`} line=${line} time=${data.time} />`)}
      </div>` : html`
      <${Findings} rows=${data.lines.map((line) => ({ ...line, now: line.now[0], atLeast: line.atLeast[0], atMost: line.atMost[0] }))} />`}
    <${Closed} data=${data} />`;
}

const titleOf = (line) => TITLES[line.finding] ?? `Stranded ${line.resource}`;
const formatOf = (line) => (line.resource === "memory" ? (value) => amount(value, "bytes") : compact);

function Chart({ line, time }) {
  const [box, size] = useSize();
  const theme = useTheme();
  const title = titleOf(line);
  useLayoutEffect(() => {
    if (!size.width) return undefined;
    const plot = new uPlot(options(size.width, formatOf(line), time.length), [time, line.atLeast, line.atMost], box.current);
    return () => plot.destroy();
  }, [size.width, theme, line]);
  return html`<section class="card chart" aria-label=${title}><h2>${title}</h2><div ref=${box}></div></section>`;
}

function options(width, format, audits) {
  const axis = { stroke: themed("quiet"), grid: { stroke: themed("line"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
  const series = (label, colour, dash) => ({
    label,
    dash,
    stroke: themed(colour),
    width: 1.75,
    paths: uPlot.paths.stepped({ align: 1 }),
    points: { show: audits < 40, size: 4 },
    value: (_, value) => (value === null ? "–" : format(value)),
  });
  return {
    width,
    height: HEIGHT,
    cursor: { y: false, sync: { key: "regret" } },
    scales: { y: { range: (_, low, high) => [Math.min(0, low), high > 0 ? high * 1.08 : 1] } },
    axes: [{ ...axis, size: 44 }, { ...axis, size: 66, values: (_, splits) => splits.map((value) => format(value)) }],
    series: [{}, series("at least", "series-1"), series("at most", "series-2", [5, 3])],
  };
}

/** Of one audit: each finding in numbers, and in a sentence where there is one. */
const Findings = ({ rows }) => html`
  <table class="wide stacks" aria-label="Findings">
    <thead><tr><th>Finding</th><th class="number">Now</th><th class="number">At least</th><th class="number">At most</th><th></th></tr></thead>
    <tbody>
      ${rows.map((each) => html`
        <tr key=${`${each.finding} ${each.resource}`}>
          <td class="name">${titleOf(each)}</td>
          ${[["Now", each.now], ["At least", each.atLeast], ["At most", each.atMost]].map(([name, value]) => html`
            <td class="number" data-title=${name}>${value === null ? "–" : formatOf(each)(value)}</td>`)}
          <td class="text">${each.sentence ?? ""}</td>
        </tr>`)}
    </tbody>
  </table>`;

/** The audit of a dump: it is made when it is asked for. */
function Audit() {
  const { data, error, loading } = useData("audit", {}, false);
  const rows = (data?.findings ?? []).map((each) => ({ ...each, finding: each.kind }));
  return html`
    <div class="tools">
      <h1>Regret</h1>
      <p class="quiet" role="status">${data ? "An audit of the dump. At least: a plan shows it. At most: no plan does better." : "The dump is audited…"}</p>
    </div>
    <${Problem} error=${error} loading=${loading} data=${data} />
    ${data ? html`
      <div class="scroll"><${Findings} rows=${rows} /></div>
      ${data.unknown.map((each) => html`<p class="quiet">Not known: ${each}</p>`)}
      ${data.notJudged.length ? html`
        <p class="quiet">Not judged: ${plural(data.notJudged.length, "waiting pod")}, such as ${data.notJudged[0].pod}: ${data.notJudged[0].reason}</p>` : null}
      <p class="quiet">The plans step by step: <code>thalweg audit</code>.</p>
      <${Rooms} closed=${data.closed} />` : null}`;
}

function Closed({ data }) {
  const open = data.openPods.at(-1);
  return html`
    <h2>Who closed the room</h2>
    <p class="quiet">
      Placements after which pods waited though a plan runs them.
      ${open ? ` The room of ${plural(open, "pod")} is free now: no placement closed it.` : ""}
      ${data.hidden ? ` ${plural(data.hidden, "placement")} of namespaces that you may not see.` : ""}
    </p>
    ${data.by.length ? html`
      <div class="scroll">
        <table class="wide">
          <thead><tr><th>Scheduler</th><th>Namespace</th><th>Reason</th><th class="number">Pods that wait</th></tr></thead>
          <tbody>
            ${data.by.slice(0, SOME).map((each) => html`
              <tr key=${`${each.scheduler} ${each.namespace} ${each.reason}`}>
                <td>${each.scheduler}</td><td>${each.namespace}</td><td>${each.reason}</td><td class="number">${count(each.pods)}</td>
              </tr>`)}
          </tbody>
        </table>
      </div>
      <${Rooms} closed=${data.closed} />` : html`<${Empty}>No placement is known that closed a room.<//>`}`;
}

/** Placements that closed rooms, one by one. */
function Rooms({ closed }) {
  const { now } = useShown();
  if (!closed.length) return null;
  return html`
      <div class="scroll">
        <table class="wide" aria-label="Placements that closed rooms">
          <thead><tr>
            <th>Placed</th><th>Scheduler</th><th>Ago</th><th>On</th><th>In the plan</th><th>Reason</th>
            <th class="number">Pods that wait</th><th>Such as</th>
          </tr></thead>
          <tbody>
            ${closed.map((each, at) => html`
              <tr key=${at}>
                <td><${PodLink} pod=${each.pod} /></td>
                <td>${each.scheduler}</td>
                <td>${age(each.placed, now)}</td>
                <td>${each.node}</td>
                <td>${each.to || "waits"}</td>
                <td>${each.reason}</td>
                <td class="number">${count(each.pods)}</td>
                <td><${PodLink} pod=${each.waiting} /></td>
              </tr>`)}
          </tbody>
        </table>
      </div>`;
}
