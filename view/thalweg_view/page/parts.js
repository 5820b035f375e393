// Small parts that several views use.
import { html } from "./html.js";
import { useEffect, useLayoutEffect, useRef, useState } from "./vendor/preact-hooks.js";
import { onTheme, viridis } from "./colours.js";
import { link } from "./route.js";

export function Problem({ error, loading, data }) {
  if (error) return html`<p class="problem" role="alert">${error.message}</p>`;
  if (loading && !data) return html`<p class="quiet" role="status">Loading…</p>`;
  return null;
}

/** Why questions about a plan have no answer where records are shown. */
export const RECORD = "Recorded rounds cannot be planned again. Ask a dump (thalweg view -f) or a running operator.";

export const Empty = ({ children }) => html`<p class="empty">${children}</p>`;

/** A select; `choices` are pairs of a value and its title. */
export const Choice = ({ title, value, choices, choose }) => html`
  <label>${title}
    <select aria-label=${title} onChange=${(event) => choose(event.target.value)}>
      ${choices.map(([each, words]) => html`<option value=${each} selected=${each === value}>${words}</option>`)}
    </select>
  </label>`;

export const PodLink = ({ pod }) => {
  const [namespace, name] = splitKey(pod);
  if (!name) return html`<span>${pod}</span>`;
  return html`<a class="pod" href=${link("pod", namespace, name)}><span class="namespace">${namespace}/</span>${name}</a>`;
};

export function splitKey(key) {
  const slash = key.indexOf("/");
  return slash < 0 ? [key, ""] : [key.slice(0, slash), key.slice(slash + 1)];
}

/** At most `most` of the entries whose name has the text that is looked for, and how many there are of those. */
export function useSome(entries, name, most) {
  const [text, setText] = useState("");
  const wanted = text.trim().toLowerCase();
  const found = wanted ? entries.filter((each) => each[name].toLowerCase().includes(wanted)) : entries;
  const field = entries.length <= 20 ? null : html`
    <label>Find <input type="search" value=${text} onInput=${(event) => setText(event.target.value)} /></label>
    ${found.length < entries.length || found.length > most ? html`
      <p class="quiet" role="status">${Math.min(most, found.length)} of ${entries.length} shown</p>` : null}`;
  return [found.slice(0, most), field];
}

/** A bar from 0 to 1 with an optional tick; the text beside it says the same. */
export const Bar = ({ part, tick, label }) => html`
  <span class="bar" role="img" aria-label=${label}>
    <span class="bar-fill" style=${{ width: `${clamp(part) * 100}%` }}></span>
    ${tick === undefined ? null : html`<span class="bar-tick" style=${{ left: `${clamp(tick) * 100}%` }}></span>`}
  </span>`;

const clamp = (part) => Math.min(1, Math.max(0, Number.isFinite(part) ? part : 0));

/** The scale of colours, from `from` to `to` in words. */
export function Scale({ title, from, to }) {
  const canvas = useRef(null);
  const theme = useTheme();
  useLayoutEffect(() => {
    const context = canvas.current.getContext("2d");
    for (let column = 0; column < 120; column += 1) {
      context.fillStyle = viridis(column / 119);
      context.fillRect(column, 0, 1, 10);
    }
  }, [theme]);
  return html`
    <span class="scale">
      <span>${title}</span> <span class="quiet">${from}</span>
      <canvas ref=${canvas} width="120" height="10" aria-hidden="true"></canvas>
      <span class="quiet">${to}</span>
    </span>`;
}

/** Grows by one when the colour scheme of the system changes. */
export function useTheme() {
  const [theme, setTheme] = useState(0);
  useEffect(() => onTheme(() => setTheme((before) => before + 1)), []);
  return theme;
}

/** [reference, {width, height}] of an element, as it grows and shrinks. */
export function useSize() {
  const element = useRef(null);
  const [size, setSize] = useState({ width: 0, height: 0 });
  useLayoutEffect(() => {
    const measure = () => {
      const { clientWidth: width, clientHeight: height } = element.current;
      setSize((before) => (before.width === width && before.height === height ? before : { width, height }));
    };
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(element.current);
    return () => observer.disconnect();
  }, []);
  return [element, size];
}

/** A few words beside the pointer, kept inside the window. */
export function Tip({ at, children }) {
  const element = useRef(null);
  useLayoutEffect(() => {
    if (!at || !element.current) return;
    const box = element.current.getBoundingClientRect();
    const left = Math.min(at.x + 14, window.innerWidth - box.width - 8);
    const top = at.y + 18 + box.height > window.innerHeight ? at.y - box.height - 10 : at.y + 18;
    element.current.style.transform = `translate(${Math.max(8, left)}px, ${Math.max(8, top)}px)`;
  });
  return at ? html`<div class="tip" ref=${element} aria-hidden="true">${children}</div>` : null;
}
