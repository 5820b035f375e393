// The page: what stands around the views, and which round all of them show.
import { render } from "./vendor/preact.js";
import { useCallback, useEffect, useMemo, useRef, useState } from "./vendor/preact-hooks.js";
import { get, hasToken, listen, Refused, setToken, takeTokenFromAddress } from "./api.js";
import { Shown } from "./data.js";
import { html } from "./html.js";
import { Empty } from "./parts.js";
import { link, useRoute } from "./route.js";
import { Strip } from "./strip.js";
import { Summary } from "./summary.js";
import { TokenForm } from "./token.js";
import { Flow } from "./flow.js";
import { Gangs } from "./gangs.js";
import { Nodes } from "./nodes.js";
import { Pending } from "./pending.js";
import { Pod } from "./pod.js";
import { Policies } from "./policies.js";
import { Regret } from "./regret.js";
import { Rounds } from "./rounds.js";
import { WhatIf } from "./what-if.js";

const VIEWS = [
  ["flow", "Flow", Flow],
  ["nodes", "Nodes", Nodes],
  ["pending", "Pending", Pending],
  ["gangs", "Gangs", Gangs],
  ["policies", "Policies", Policies],
  ["rounds", "Rounds", Rounds],
  ["regret", "Regret", Regret],
  ["what-if", "What if", WhatIf],
];
/** What goes over by itself, such as no connection or a full queue, is asked again after this many milliseconds. */
const PASSING = [0, 429, 502, 503, 504];
const PAUSE = 5000;
/** Rounds may come several times a second; people read no faster than this, in milliseconds. */
const REDRAW = 1000;

function App() {
  const route = useRoute();
  const [asking, setAsking] = useState(null);
  const [overview, setOverview] = useState(null);
  const [rounds, setRounds] = useState(null);
  const [problem, setProblem] = useState("");
  const [stream, setStream] = useState("");
  const [round, setRound] = useState(0);
  const [generation, setGeneration] = useState(0);
  const [session, setSession] = useState(0);
  const [attempt, setAttempt] = useState(0);

  const pause = useRef(0);
  const refused = useCallback((error) => {
    if (!(error instanceof Refused)) return;
    if (error.status === 401) setAsking(hasToken() ? error.message : "");
    if (!PASSING.includes(error.status) || pause.current) return;
    pause.current = setTimeout(() => {
      pause.current = 0;
      setAttempt((before) => before + 1);
    }, PAUSE);
  }, []);

  const load = useCallback(async () => {
    try {
      const [nextOverview, nextRounds] = await Promise.all([get("overview"), get("rounds")]);
      setOverview(nextOverview);
      setRounds(nextRounds);
      setProblem("");
      setAsking(null);
    } catch (error) {
      refused(error);
      setProblem(error.message);
    }
  }, [refused]);

  useEffect(() => {
    load();
  }, [load, session, generation, attempt]);

  // Updates are taken together: at most one redraw for each REDRAW.
  const timer = useRef(0);
  const live = asking === null;
  useEffect(() => {
    if (!live) return undefined;
    const changed = () => {
      if (timer.current) return;
      timer.current = setTimeout(() => {
        timer.current = 0;
        setGeneration((before) => before + 1);
      }, REDRAW);
    };
    let lost = false;
    const stop = listen(changed, (state, error) => {
      setStream(state);
      if (error?.status === 401) refused(error); // the token ended while the page was open
      if (state === "live" && lost) changed();
      lost = state !== "live";
    });
    return () => {
      stop();
      clearTimeout(timer.current);
      timer.current = 0;
    };
  }, [live, session, refused]);

  const enter = (value) => {
    setToken(value);
    setAsking(null);
    setProblem("");
    setSession((before) => before + 1);
  };

  const isLive = overview?.source === "live";
  const now = isLive && !round ? Date.now() / 1000 : timeOf(rounds, round) || overview?.round?.time || Date.now() / 1000;
  const shown = useMemo(
    // A chosen round does not change: it is asked for again only where there was no answer.
    () => ({ round, setRound, generation, attempt, revision: round ? attempt : attempt + generation, overview, rounds, now, refused }),
    [round, generation, attempt, overview, rounds, refused],
  );

  if (asking !== null) return html`<${TokenForm} problem=${asking} enter=${enter} />`;
  const [name = "flow", ...parts] = route.parts;
  const View = viewOf(name, parts);
  return html`
    <${Shown.Provider} value=${shown}>
      <a class="skip" href="#main" onClick=${skip}>Skip to the content</a>
      <${Header} name=${name} overview=${overview} stream=${stream} />
      ${problem ? html`<p class="problem banner" role="alert">${problem}</p>` : null}
      ${overview ? html`<${Summary} /><${Strip} />` : null}
      ${overview || problem ? null : html`<p class="quiet first" role="status">Waiting for the first answer of the view…</p>`}
      <main id="main" tabindex="-1" class=${`view view-${name}`}>
        ${View ? html`<${View} key=${name === "pod" ? parts.join("/") : name} parts=${parts} query=${route.query} />` : html`<${Unknown} />`}
      </main>
    <//>`;
}

/** The view of an address; undefined: there is none. */
function viewOf(name, parts) {
  if (name === "pod") return parts.length === 2 ? Pod : undefined;
  return parts.length ? undefined : VIEWS.find(([each]) => each === name)?.[2];
}

const Unknown = () => html`
  <div class="tools"><h1>No such page</h1></div>
  <${Empty}>This address leads to no page: ${window.location.hash}. A pod's page is <code>#/pod/NAMESPACE/NAME</code>.<//>`;

function Header({ name, overview, stream }) {
  const tabs = useRef(null);
  useEffect(() => tabs.current.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" }), [name]);
  return html`
    <header>
      <a class="brand" href=${link("flow")} aria-label="Thalweg"><img src="icon.svg" alt="" width="24" height="24" /><span>Thalweg</span></a>
      <nav aria-label="Views" ref=${tabs}>
        ${VIEWS.map(([each, title]) => html`
          <a href=${link(each)} aria-current=${each === name ? "page" : undefined}>${title}</a>`)}
      </nav>
      ${overview ? html`<${Source} overview=${overview} stream=${stream} />` : null}
    </header>`;
}

const STREAMS = { live: "live", lost: "connection lost, trying again", refused: "not live" };

function Source({ overview, stream }) {
  const kind = { live: "operator", dump: "dump", record: "recorded rounds" }[overview.source] ?? overview.source;
  const live = overview.source === "live";
  // A dump does not change: there is nothing to tell but that nobody answers any more.
  const state = live ? STREAMS[stream] ?? "connecting" : stream === "lost" ? STREAMS.lost : "";
  return html`
    <p class="source" role="status">
      <span class=${`dot ${live || stream === "lost" ? stream : ""}`} aria-hidden="true"></span>
      ${kind} <b title=${overview.name}>${live ? overview.name : overview.name.split("/").at(-1)}</b> ${state ? html`<span class="quiet">${state}</span>` : null}
    </p>`;
}

function skip(event) {
  event.preventDefault();
  document.getElementById("main").focus();
}

function timeOf(rounds, number) {
  const at = rounds && number ? rounds.number.indexOf(number) : -1;
  return at < 0 ? 0 : rounds.time[at];
}

takeTokenFromAddress();
render(html`<${App} />`, document.getElementById("app"));
