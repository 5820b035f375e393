// The cluster and the round in one line of figures.
import { useData, useShown } from "./data.js";
import { count, duration, gapOf, percent, plural } from "./format.js";
import { html } from "./html.js";

const Figure = ({ name, value, note, title }) => html`
  <div class="figure" title=${title}>
    <dt>${name}</dt>
    <dd>${value}${note ? html` <small>${note}</small>` : null}</dd>
  </div>`;

export function Summary() {
  const { overview, round } = useShown();
  return round ? html`<${OfRound} />` : html`<${Figures} overview=${overview} />`;
}

/** A chosen round has leavers, and of a record nodes, of its own. */
function OfRound() {
  const { overview } = useShown();
  const { data } = useData("overview");
  return html`<${Figures} overview=${data ?? overview} />`;
}

function Figures({ overview }) {
  const { rounds, round } = useShown();
  const row = rowOf(rounds, round) ?? overview.round;
  return html`
    <dl class="summary" aria-label="Cluster and round">
      <${Figure} name="Nodes" value=${count(overview.nodes)} />
      <${Figure} name="Running" value=${count(overview.running)} />
      <${Figure} name="Waiting" value=${count(overview.waiting)} note=${row?.leftAtLeast?.pods ? `at least ${count(row.leftAtLeast.pods)} in every plan` : ""}
        title=${["pods without a node that the round does not place", ...leastLeft(row)].join("; ")} />
      ${row ? html`
        <${Figure} name="Placed" value=${count(row.placed)} note=${`in ${duration(row.seconds)}`} />
        <${Leaving} leaving=${overview.leaving} />
        <${Figure} name="Gap" value=${gapOf(row) === null ? "–" : percent(row.gap)} note=${row.certified ? "certified" : ""}
          title=${gapTitle(row)} />` : null}
    </dl>
    <p class="in-words">
      ${round ? null : html`${capital(overview.counts.sentence)}.${" "}`}
      ${overview.ungoverned.sentence}
    </p>`;
}

const capital = (sentence) => sentence.charAt(0).toUpperCase() + sentence.slice(1);

/** Running pods that leave by the round, and how many of them have a new node. */
function Leaving({ leaving }) {
  const [moved, evicted] = [leaving.moved + leaving.wouldMove, leaving.evicted + leaving.wouldBeEvicted];
  if (!moved && !evicted) return null;
  const acts = leaving.moved + leaving.evicted > 0;
  return html`
    <${Figure} name=${acts ? "Leave" : "Would leave"} value=${count(moved + evicted)} note=${moved ? `${count(moved)} move` : ""} title=${leaving.sentence} />`;
}

function gapTitle(row) {
  if (gapOf(row) !== null) return `the part of the cost above the lower bound${row.weak ? `; ${row.weak}` : ""}`;
  return row.evicted ? "not known: pods leave in this plan, and the lower bound counts less than that costs" : "nothing is known: the lower bound is 0";
}

/** What no plan of a round can beat: of its pods, and of the resource that is short. */
function leastLeft(row) {
  const least = row?.leftAtLeast;
  if (!least) return [];
  if (!least.pods) return least.boundNotes.length ? ["how few a plan must leave is not known"] : [];
  const beaten = (fewest, left) => (fewest === left ? "no plan leaves fewer" : `no plan leaves fewer than ${count(fewest)}`);
  const pods = `of ${plural(least.waiting, "planned pod")} that the round leaves ${beaten(least.pods, least.waiting)}`;
  return least.amount ? [pods, `they ask for ${count(least.asked)} ${least.resource}, ${beaten(least.amount, least.asked)}`] : [pods];
}

/** The row of a round of the timeline's columns; 0: the newest. */
export function rowOf(rounds, number) {
  if (!rounds || !rounds.number.length) return null;
  const at = number ? rounds.number.indexOf(number) : rounds.number.length - 1;
  if (at < 0) return null;
  return Object.fromEntries(Object.entries(rounds).filter(([, column]) => Array.isArray(column)).map(([name, column]) => [name, column[at]]));
}
