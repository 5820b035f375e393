// Templates for preact. Text in a template becomes a text node, never markup: names of pods cannot inject any. Characters
// that are not seen, or that turn the order of what follows around, are shown as escapes: reasons quote what tenants write.
import { h } from "./vendor/preact.js";
import htm from "./vendor/htm.js";

// Control characters but for tab and line ends, and those that set the direction of text.
const UNSEEN = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;
const TOLD = ["title", "aria-label"];

/** As commands write it: \x1b, \u202e. */
const escaped = (character) => {
  const code = character.charCodeAt(0);
  return code < 256 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u${code.toString(16).padStart(4, "0")}`;
};
const seen = (value) => (typeof value === "string" ? value.replace(UNSEEN, escaped) : value);

function element(type, properties, ...children) {
  const told = TOLD.filter((name) => typeof properties?.[name] === "string").map((name) => [name, seen(properties[name])]);
  return h(type, told.length ? { ...properties, ...Object.fromEntries(told) } : properties, ...children.map(seen));
}

export const html = htm.bind(element);
