// Templates for preact. Text in a template becomes a text node, never markup: names of pods cannot inject any.
import { h } from "./vendor/preact.js";
import htm from "./vendor/htm.js";

export const html = htm.bind(h);
