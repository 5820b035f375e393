// What waits, by workload or pod by pod. Of the list of pods only the rows in sight exist; it is asked for in pieces.
import { useEffect, useLayoutEffect, useRef, useState } from "./vendor/preact-hooks.js";
import { get } from "./api.js";
import { useShown } from "./data.js";
import { age, count, plural } from "./format.js";
import { html } from "./html.js";
import { Choice, Empty, PodLink, Problem, splitKey, useSize } from "./parts.js";
import { link } from "./route.js";

const ROW = 46;
const HEAD = 34;
const PIECE = 200;
const COLUMNS = [
  ["position", "#", "number"], ["pod", "Pod", "pod"], ["code", "Reason", "reason"], ["since", "Waits", "number"],
  ["priority", "Priority", "number"], ["policy", "Policy", ""], ["queue", "Queue", ""], ["workload", "Workload", ""],
];
const BY = [["workload", "workload"], ["pod", "pod"]];

export function Pending({ query: asked }) {
  const [text, setText] = useState(asked.get("query") ?? "");
  const [short, setShort] = useState(asked.get("short") ?? "");
  const [query, setQuery] = useState(text);
  const [sort, setSort] = useState("position");
  const [by, setBy] = useState("workload");
  const open = (workload) => {
    setText(workload);
    setBy("pod");
  };
  useEffect(() => {
    setText(asked.get("query") ?? "");
    setShort(asked.get("short") ?? "");
  }, [asked]);
  useEffect(() => {
    const later = setTimeout(() => setQuery(text.trim()), 200);
    return () => clearTimeout(later);
  }, [text]);
  const list = useList(query, short, sort);
  return html`
    <div class="tools">
      <h1>Pending pods</h1>
      <${Choice} title="By" value=${by} choices=${BY} choose=${setBy} />
      <label>Find <input type="search" placeholder="workload, pod, reason, queue" value=${text} onInput=${(event) => setText(event.target.value)} /></label>
      <p class="quiet" role="status">${list.total === null ? "" : `${plural(list.total, "pod")} of ${plural(list.workloadCount, "workload")}`}</p>
      <span class="chips">
        ${Object.entries(list.short).map(([words, pods]) => html`
          <button type="button" class="chip" aria-pressed=${short === words} onClick=${() => setShort(short === words ? "" : words)}>${words} <b>${count(pods)}</b></button>`)}
      </span>
    </div>
    <${Problem} error=${list.error} loading=${list.total === null} data=${list.total} />
    ${list.total === 0 ? html`<${Empty}>${query || short ? "No waiting pod matches." : "No pod waits."}<//>` : null}
    ${list.total && by === "workload" ? html`<${Workloads} workloads=${list.workloads} more=${list.workloadCount - list.workloads.length} open=${open} />` : null}
    ${list.total && by === "pod" ? html`<p class="on-paper">Of ${plural(list.total, "pod")} only those in sight are printed.</p>` : null}
    ${list.total && by === "pod" ? html`<${Table} list=${list} sort=${sort} setSort=${setSort} />` : null}`;
}

function Workloads({ workloads, more, open }) {
  const { now } = useShown();
  return html`
    <div class="scroll">
      <table class="wide stacks workloads" aria-label="Workloads that wait">
        <thead><tr>
          <th>Workload</th><th class="number">Waiting</th><th class="number">Placed</th><th>Reason</th><th class="number">Waits</th><th>Queue</th>
        </tr></thead>
        <tbody>
          ${workloads.map((each) => html`
            <tr key=${each.workload}>
              <td class="name">${each.workload.startsWith("pod/")
                ? html`<span class="quiet">pod/</span><${PodLink} pod=${each.workload.slice(4)} />`
                : html`<button type="button" class="plain" title="its pods" onClick=${() => open(each.workload)}>${each.workload}</button>`}</td>
              <td class="number" data-title="Waiting">${count(each.waiting)} of ${count(each.pods)}</td>
              <td class="number" data-title="Placed">${each.placed ? count(each.placed) : "–"}</td>
              <td class="text"><b class="code">${shortly(each)}</b> ${each.reason}</td>
              <td class="number" data-title="Waits">${age(each.since, now)}</td>
              <td data-title=${each.queue ? "Queue" : undefined}>${each.queue}</td>
              </tr>`)}
        </tbody>
      </table>
      ${more > 0 ? html`<p class="quiet">and ${plural(more, "workload")} more; a search finds them.</p>` : null}
    </div>`;
}

/** What pods of a workload wait for; with numbers where that differs. */
function shortly({ workload, short }) {
  const words = Object.entries(short).map(([each, pods], _, all) => (all.length > 1 ? `${each} ${count(pods)}` : each)).join(", ");
  return workload.startsWith("gang/") ? `as a gang: ${words}` : words;
}

// Pieces of the list by their number; a new round makes them stale, and what is in sight is asked for again.
function useList(query, short, sort) {
  const { round, revision, refused } = useShown();
  const [state, setState] = useState({ total: null, short: {}, workloads: [], workloadCount: 0, error: null });
  const pieces = useRef(new Map());
  const key = JSON.stringify([query, short, sort, round]);
  const wanted = useRef(new Set([0]));
  const serial = useRef(0);
  const load = (piece) => {
    const mine = serial.current;
    wanted.current.add(piece);
    get("pending", { offset: piece * PIECE, limit: PIECE, query, short, sort, round: round || "" }).then(
      (answer) => {
        if (mine !== serial.current) return;
        pieces.current.set(piece, answer.items);
        setState({ total: answer.total, short: answer.short ?? {}, workloads: answer.workloads ?? [], workloadCount: answer.workloadCount ?? 0, error: null });
      },
      (error) => {
        if (mine !== serial.current) return;
        refused(error);
        setState((before) => ({ ...before, error }));
      },
    );
  };
  const last = useRef(key);
  useEffect(() => {
    serial.current += 1;
    if (last.current !== key) {
      pieces.current.clear();
      wanted.current = new Set([0]);
      last.current = key;
    }
    const again = [...wanted.current].slice(-3);
    wanted.current = new Set();
    again.forEach(load);
  }, [key, revision]);
  const item = (index) => pieces.current.get(Math.floor(index / PIECE))?.[index % PIECE];
  const want = (from, to) => {
    for (let piece = Math.floor(from / PIECE); piece <= Math.floor(to / PIECE); piece += 1) {
      if (!wanted.current.has(piece)) load(piece);
    }
  };
  return { ...state, asked: key, item, want };
}

function Table({ list, sort, setSort }) {
  const [box, size] = useSize();
  const [top, setTop] = useState(0);
  const [focus, setFocus] = useState(0);
  const move = useRef(false);
  const first = Math.max(0, Math.floor(top / ROW) - 8);
  const last = Math.min(list.total - 1, Math.ceil((top + size.height) / ROW) + 8);
  useEffect(() => {
    if (size.height) list.want(first, last);
  });
  useLayoutEffect(() => {
    box.current.scrollTop = 0;
    setFocus(0);
  }, [list.asked]);
  const { now } = useShown();
  const keys = (event) => {
    const page = Math.max(1, Math.floor(size.height / ROW) - 2);
    const by = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -list.total, End: list.total }[event.key];
    if (event.key === "Enter") {
      const item = list.item(focus);
      if (item) window.location.hash = link("pod", ...splitKey(item.pod)).slice(1);
      return;
    }
    if (!by) return;
    event.preventDefault();
    const next = Math.min(list.total - 1, Math.max(0, focus + by));
    move.current = true;
    setFocus(next);
    const element = box.current;
    const room = element.clientHeight - HEAD;
    if (next * ROW < element.scrollTop) element.scrollTop = next * ROW;
    else if ((next + 1) * ROW > element.scrollTop + room) element.scrollTop = (next + 1) * ROW - room;
  };
  useLayoutEffect(() => {
    if (!move.current) return;
    const row = box.current.querySelector(`[aria-rowindex="${focus + 2}"]`);
    if (!row) return; // it comes with the scrolling
    move.current = false;
    row.focus({ preventScroll: true });
  });
  const by = (column) => setSort(sort === column ? `-${column}` : column);
  return html`
    <div class="list" ref=${box} role="grid" aria-rowcount=${list.total + 1} aria-label="Pending pods" onScroll=${(event) => setTop(event.currentTarget.scrollTop)} onKeyDown=${keys}>
      <div class="row head" role="row" aria-rowindex="1">
        ${COLUMNS.map(([name, title, kind]) => html`
          <span role="columnheader" class=${kind} aria-sort=${sort === name ? "ascending" : sort === `-${name}` ? "descending" : undefined}>
            <button type="button" onClick=${() => by(name)}>${title}${sort === name ? " ↑" : sort === `-${name}` ? " ↓" : ""}</button>
          </span>`)}
      </div>
      <div class="rows" role="rowgroup" style=${{ height: `${list.total * ROW}px` }}>
        ${range(first, last).map((index) => html`<${Row} key=${index} index=${index} item=${list.item(index)} now=${now} focused=${index === focus} focus=${() => setFocus(index)} />`)}
      </div>
    </div>`;
}

const range = (from, to) => Array.from({ length: Math.max(0, to - from + 1) }, (_, index) => from + index);

function Row({ index, item, now, focused, focus }) {
  const cell = (value, kind = "") => html`<span role="gridcell" class=${kind} title=${value}>${value}</span>`;
  return html`
    <div class=${`row${index % 2 ? " odd" : ""}`} role="row" aria-rowindex=${index + 2} tabindex=${focused ? 0 : -1}
      style=${{ transform: `translateY(${index * ROW}px)` }} onFocus=${focus}>
      ${item ? html`
        ${cell(item.position || "–", "number")}
        <span role="gridcell" class="pod" title=${item.pod}><${PodLink} pod=${item.pod} /></span>
        <span role="gridcell" class="reason" title=${item.reason}><b class="code">${item.short}</b> <span>${item.reason}</span></span>
        ${cell(age(item.since, now), "number")}
        ${cell(item.priority, "number")}
        ${cell(item.policy)}
        ${cell(item.queue)}
        ${cell(item.workload)}` : html`<span role="gridcell" class="quiet">…</span>`}
    </div>`;
}
