// The view's HTTP API. The token goes with each request as a header, never in an address.
const STORED = "thalweg-token";

let token = window.sessionStorage.getItem(STORED) ?? "";

// `thalweg view` prints an address that ends in #token=...; what is behind "#" never leaves the browser.
export function takeTokenFromAddress() {
  const found = /^#token=(.+)$/.exec(window.location.hash);
  if (!found) return;
  setToken(decodeURIComponent(found[1]));
  window.history.replaceState(null, "", "#/flow");
}

export function setToken(value) {
  token = value.trim();
  if (token) window.sessionStorage.setItem(STORED, token);
  else window.sessionStorage.removeItem(STORED);
  answers.clear();
}

export const hasToken = () => token !== "";

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

// Not `Authorization`: the API server's service proxy takes that one for itself.
const headers = () => (token ? { "X-Thalweg-Token": token } : {});

async function request(path, options) {
  let response;
  try {
    response = await fetch(`api/v1/${path}`, { cache: "no-store", referrerPolicy: "no-referrer", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, "The view does not answer. It is tried again.");
  }
  if (response.ok || response.status === 304) return response;
  throw new Refused(response.status, await sentence(response));
}

// Errors are JSON with a sentence; what a proxy between says is cut to a line.
async function sentence(response) {
  const text = await response.text();
  try {
    const body = JSON.parse(text);
    return body.error ?? body.message ?? text;
  } catch {
    return text.split("\n")[0].slice(0, 300) || `status ${response.status}`;
  }
}

/** The last answers by address, each with its tag: what did not change is not sent again. */
const KEPT = 24;
const answers = new Map();

export async function get(path, parameters = {}, signal = undefined) {
  const entries = Object.entries(parameters).filter(([, value]) => value !== "" && value !== undefined && value !== null);
  const query = new URLSearchParams(entries.map(([name, value]) => [name, String(value)])).toString();
  const address = query ? `${path}?${query}` : path;
  const known = answers.get(address);
  const conditional = known ? { "If-None-Match": known.tag } : {};
  const response = await request(address, { headers: { ...headers(), ...conditional }, signal });
  if (response.status === 304 && known) return known.data;
  const data = await response.json();
  const tag = response.headers.get("ETag");
  answers.delete(address);
  if (tag) answers.set(address, { tag, data });
  if (answers.size > KEPT) answers.delete(answers.keys().next().value);
  return data;
}

export async function post(path, body, signal = undefined) {
  const response = await request(path, {
    method: "POST",
    headers: { ...headers(), "Content-Type": "application/json" },
    body: JSON.stringify(body),
    signal,
  });
  return response.json();
}

/** Milliseconds without a sign of life after which a stream is taken for lost; the view gives one every 15 s. */
const SILENCE = 45000;

// Server-sent events by fetch: EventSource sends no headers. Returns what ends the stream.
export function listen(onEvent, onState) {
  const abort = new AbortController();
  let pause = 1000;
  const run = async () => {
    while (!abort.signal.aborted) {
      try {
        const response = await request("events", { headers: headers(), signal: abort.signal });
        onState("live");
        pause = 1000;
        await read(response.body.getReader(), onEvent);
        onState("lost");
      } catch (error) {
        if (abort.signal.aborted) return;
        const refused = error.status === 401 || error.status === 403;
        onState(refused ? "refused" : "lost", error);
        if (refused) return;
      }
      await new Promise((resolve) => setTimeout(resolve, pause));
      pause = Math.min(pause * 2, 15000);
    }
  };
  run();
  return () => abort.abort();
}

async function read(reader, onEvent) {
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const silent = setTimeout(() => reader.cancel(), SILENCE);
    const { done, value } = await reader.read().finally(() => clearTimeout(silent));
    if (done) return;
    const blocks = (rest + decoder.decode(value, { stream: true })).split(/\r?\n\r?\n/);
    rest = blocks.pop();
    blocks.forEach((block) => dispatch(block, onEvent));
  }
}

function dispatch(block, onEvent) {
  let name = "message";
  const data = [];
  for (const line of block.split(/\r?\n/)) {
    if (line.startsWith("event:")) name = line.slice(6).trim();
    else if (line.startsWith("data:")) data.push(line.slice(5));
  }
  if (data.length) onEvent(name, JSON.parse(data.join("\n")));
}
