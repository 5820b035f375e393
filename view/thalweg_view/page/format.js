// Numbers, times and amounts as people read them.
const whole = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const fine = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });

export const count = (number) => whole.format(number);
export const compact = (number) => (Math.abs(number) < 10000 ? whole.format(Math.round(number)) : short.format(number));
export const plural = (number, word) => `${count(number)} ${word}${number === 1 ? "" : "s"}`;

/** The gap of a round as it is shown; null: a dash. The bound of a plan in which pods leave counts less than they cost. */
export const gapOf = ({ gap, evicted, certified }) => (evicted && !certified ? null : gap);

// A part of a whole, with one digit where it matters.
export function percent(part) {
  if (!Number.isFinite(part)) return "–";
  const value = part * 100;
  if (value === 0 || Math.abs(value) >= 10) return `${Math.round(value)} %`;
  return Math.abs(value) < 0.05 ? "< 0.1 %" : `${value.toFixed(1)} %`;
}

export function duration(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  if (seconds < 1) return `${Math.round(Math.max(0, seconds) * 1000)} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} d`;
}

export const age = (since, now) => (since ? duration(Math.max(0, now - since)) : "–");

export const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString("en-GB");

const BINARY = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const DECIMAL = ["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"];

/** An amount of a resource in the unit that the view's API names. */
export function amount(value, unit) {
  if (unit === "milli-cores") return `${fine.format(value / 1000)} cores`;
  if (unit === "bytes") return scaled(value, 1024, BINARY);
  if (unit === "bits per second") return scaled(value, 1000, DECIMAL);
  return fine.format(value);
}

function scaled(value, step, units) {
  let power = 0;
  while (value >= step && power < units.length - 1) {
    value /= step;
    power += 1;
  }
  return `${fine.format(value)} ${units[power]}`;
}
