// Colours that people tell apart whatever their eyes: viridis for amounts; nothing is said by colour alone.
const VIRIDIS = [
  [68, 1, 84], [72, 40, 120], [62, 74, 137], [49, 104, 142], [38, 130, 142],
  [31, 158, 137], [53, 183, 121], [110, 206, 88], [181, 222, 43], [253, 231, 37],
];

const dark = window.matchMedia("(prefers-color-scheme: dark)");

export const isDark = () => dark.matches;
export const onTheme = (listener) => {
  dark.addEventListener("change", listener);
  return () => dark.removeEventListener("change", listener);
};

// Colour of a part from 0 to 1. More is further from the background: dark on light, light on dark.
export function viridis(part) {
  const clamped = Math.min(1, Math.max(0, Number.isFinite(part) ? part : 0));
  const along = (isDark() ? 0.22 + 0.78 * clamped : 1 - clamped) * (VIRIDIS.length - 1);
  const low = Math.min(VIRIDIS.length - 2, Math.floor(along));
  const mix = along - low;
  const [red, green, blue] = VIRIDIS[low].map((from, index) => Math.round(from + (VIRIDIS[low + 1][index] - from) * mix));
  return `rgb(${red} ${green} ${blue})`;
}

// A colour of the style sheet.
export const themed = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
