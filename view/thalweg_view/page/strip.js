// The rounds as a strip above each view: a chosen round applies to all of them.
import { useShown } from "./data.js";
import { clock, plural } from "./format.js";
import { html } from "./html.js";

/** Rounds that fit in the strip. */
const SHOWN = 120;

export function Strip() {
  const { rounds, round, setRound } = useShown();
  if (!rounds || rounds.number.length < 2) return null;
  const first = Math.max(0, rounds.number.length - SHOWN);
  const numbers = rounds.number.slice(first);
  const newest = numbers.at(-1);
  const chosen = round || newest;
  const tallest = Math.max(1, ...numbers.map((_, index) => rounds.placed[first + index] + rounds.waiting[first + index]));
  const kept = (number) => !rounds.whole || rounds.whole[rounds.number.indexOf(number)] !== false;
  const step = (by) => {
    const next = numbers[numbers.indexOf(chosen) + by];
    if (next !== undefined && kept(next)) setRound(next === newest ? 0 : next);
  };
  const keys = (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (by) step(by);
    else if (event.key === "End") setRound(0);
    else return;
    event.preventDefault();
  };
  const at = rounds.number.indexOf(chosen);
  const words = at < 0 ? `round ${chosen}` : `round ${chosen} at ${clock(rounds.time[at])}: ${plural(rounds.placed[at], "pod")} placed, ${rounds.waiting[at]} waiting`;
  const [oldest, last] = [first, rounds.number.length - 1];
  return html`
    <section class="strip" aria-label="Rounds">
      <button type="button" onClick=${() => step(-1)} disabled=${at <= oldest || !kept(rounds.number[at - 1])} aria-label="Earlier round">‹</button>
      <div class="strip-bars" role="slider" tabindex="0" aria-label="Round" aria-valuemin=${numbers[0]} aria-valuemax=${newest}
        aria-valuenow=${chosen} aria-valuetext=${words} onKeyDown=${keys}>
        ${numbers.map((number, index) => html`
          <${Column} key=${number} placed=${rounds.placed[first + index] / tallest} waiting=${rounds.waiting[first + index] / tallest}
            chosen=${number === chosen} kept=${kept(number)} choose=${() => kept(number) && setRound(number === newest ? 0 : number)}
            title=${`round ${number}, ${clock(rounds.time[first + index])}: ${rounds.placed[first + index]} placed, ${rounds.waiting[first + index]} waiting`} />`)}
      </div>
      <button type="button" onClick=${() => step(1)} disabled=${at >= last} aria-label="Later round">›</button>
      <p class="strip-words" role="status">
        Round <b>${chosen}</b>
        ${at < 0 ? null : html`<span class="quiet">${clock(rounds.time[at])}</span>`}
        ${round ? html`<button type="button" onClick=${() => setRound(0)}>Newest</button>` : html`<span class="quiet">newest</span>`}
      </p>
    </section>`;
}

const Column = ({ placed, waiting, chosen, kept, choose, title }) => html`
  <span class=${`column${chosen ? " chosen" : ""}${kept ? "" : " gone"}`} title=${title} onClick=${choose}>
    <span class="column-waiting" style=${{ height: `${waiting * 100}%` }}></span>
    <span class="column-placed" style=${{ height: `${placed * 100}%` }}></span>
  </span>`;
