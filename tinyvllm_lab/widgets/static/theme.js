// @ts-check
/**
 * Colours and how a request looks. Okabe and Ito's palette without black and yellow: six colours
 * that colour-blind people tell apart, and four patterns, so that 24 requests differ; a label says
 * which one it is. `palette.py` has the same numbers for the stills.
 */

export const COLOURS = ["#E69F00", "#56B4E9", "#009E73", "#CC79A7", "#0072B2", "#D55E00"];
export const PATTERNS = ["plain", "diagonal", "dots", "bars"];

/** Phases in the panels that show no request's colour. */
export const PHASE_COLOURS = ["#0072B2", "#E69F00", "#D55E00"]; // prefill, decode, recompute

/**
 * @typedef {object} Look
 * @property {string} fill
 * @property {string} pattern
 * @property {string} ink colour of text on it
 */

/** @param {string} hex @returns {[number, number, number]} */
export function rgb(hex) {
  const value = Number.parseInt(hex.slice(1), 16);
  return [value >> 16, (value >> 8) & 255, value & 255];
}

/** Relative luminance (WCAG 2). @param {[number, number, number]} colour */
export function luminance(colour) {
  const [r, g, b] = colour.map((v) => {
    const part = v / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

/** Black or white, whichever reads better on it. @param {string} hex */
export function inkOn(hex) {
  return luminance(rgb(hex)) > 0.19 ? "#111111" : "#ffffff";
}

/** @type {Map<string, string>} the few colours of the panels are mixed again and again */
const mixed = new Map();

/** @param {string} hex @param {string} other @param {number} share of the other colour */
export function mix(hex, other, share) {
  const key = hex + other + share;
  let colour = mixed.get(key);
  if (colour === undefined) {
    const [a, b] = [rgb(hex), rgb(other)];
    const parts = a.map((v, i) => Math.round(v + (b[i] - v) * share));
    colour = `#${parts.map((v) => v.toString(16).padStart(2, "0")).join("")}`;
    mixed.set(key, colour);
  }
  return colour;
}

/** @type {Look[]} */
const LOOKS = PATTERNS.flatMap((pattern) => COLOURS.map((fill) => ({ fill, pattern, ink: inkOn(fill) })));

/** @param {number} request its running number @returns {Look} */
export function lookOf(request) {
  return LOOKS[request % LOOKS.length];
}

/**
 * @typedef {object} Theme
 * @property {boolean} dark
 * @property {string} page background
 * @property {string} panel a card on it
 * @property {string} empty an empty seat or a free block
 * @property {string} line
 * @property {string} text
 * @property {string} soft text of less weight
 * @property {string} accent selection
 * @property {string} warn
 * @property {string} first line of a chart
 * @property {string} second
 */

/** @type {Theme} */
const LIGHT = {
  dark: false, page: "#ffffff", panel: "#f5f6f8", empty: "#e6e8ec", line: "#c3c8d0",
  text: "#1d2127", soft: "#5a626e", accent: "#1d2127", warn: "#b3261e",
  first: "#0072B2", second: "#D55E00",
};
/** @type {Theme} */
const DARK = {
  dark: true, page: "#111418", panel: "#1b2026", empty: "#2a3038", line: "#454d58",
  text: "#eceff3", soft: "#a9b1bd", accent: "#ffffff", warn: "#ff8a80",
  first: "#56B4E9", second: "#F0803C",
};

/** The theme of the page around an element: JupyterLab's, or the system's. @param {Element} element @returns {Theme} */
export function themeOf(element) {
  const style = getComputedStyle(element);
  const found = /rgba?\((\d+), (\d+), (\d+)/.exec(style.backgroundColor);
  if (found === null) return LIGHT;
  /** @type {[number, number, number]} */
  const page = [Number(found[1]), Number(found[2]), Number(found[3])];
  const hex = `#${page.map((v) => v.toString(16).padStart(2, "0")).join("")}`;
  return { ...(luminance(page) < 0.3 ? DARK : LIGHT), page: hex };
}

/** Calls back when JupyterLab or the system changes its theme. @param {() => void} changed @param {AbortSignal} signal */
export function watchTheme(changed, signal) {
  const observer = new MutationObserver(changed);
  const attributeFilter = ["data-jp-theme-name", "data-jp-theme-light", "class", "style"];
  observer.observe(document.body, { attributes: true, attributeFilter });
  signal.addEventListener("abort", () => observer.disconnect());
  const system = matchMedia("(prefers-color-scheme: dark)");
  system.addEventListener("change", changed, { signal });
}

/** @type {MediaQueryList | undefined} asked for in every picture, so made once */
let lessMotion;

/** True if the reader asked for less motion. */
export function wantsLessMotion() {
  lessMotion ??= matchMedia("(prefers-reduced-motion: reduce)");
  return lessMotion.matches;
}
