// @ts-check
/**
 * The KV wallet: what weights and KV caches of so many users take of a GPU's memory. A calculator:
 * it needs no run and no kernel. `wallet` is the arithmetic, and the same as `kv_wallet.py`'s.
 */

import { COLOURS, bytesText, labelled, select, shape, slider } from "./calculator.js";

/**
 * @typedef {{model: string, gpu: string, dtype: string, context: number, users: number}} Choice
 * @typedef {{name: string, parameters: number, kv_numbers: number, longest: number}} Model
 * @typedef {{name: string, bytes: number}} Gpu
 * @typedef {{models: Model[], gpus: Gpu[], dtypes: Record<string, number>, usable: number}} Tables
 */

/**
 * Bytes of weights, of one token and one user, and how many users fit.
 * @param {Choice} choice @param {Tables} tables
 */
export function wallet(choice, tables) {
  const model = /** @type {Model} */ (tables.models.find((m) => m.name === choice.model));
  const gpu = /** @type {Gpu} */ (tables.gpus.find((g) => g.name === choice.gpu));
  const size = tables.dtypes[choice.dtype];
  const weights = model.parameters * size;
  const token = model.kv_numbers * size;
  const user = token * choice.context;
  const budget = gpu.bytes * tables.usable;
  const fit = Math.max(0, Math.floor((budget - weights) / user));
  return { weights, token, user, all: user * choice.users, budget, total: gpu.bytes, fit };
}

const WIDTH = 1100;
const BAR = { top: 34, height: 54 };

/** @param {SVGElement} svg @param {ReturnType<typeof wallet>} w @param {Choice} choice */
function drawBar(svg, w, choice) {
  svg.replaceChildren();
  const full = Math.max(w.total, w.weights + w.all);
  const scale = WIDTH / full;
  svg.append(shape("rect", { x: 0, y: BAR.top, width: w.total * scale, height: BAR.height, rx: 4, class: "tvl-free" }));
  svg.append(
    shape("rect", { x: 0, y: BAR.top, width: w.weights * scale, height: BAR.height, fill: COLOURS.weights }),
  );
  const shown = Math.min(choice.users, 120);
  const each = (w.all / shown) * scale;
  for (let i = 0; i < shown; i += 1) {
    const x = w.weights * scale + i * each;
    const beyond = (x + each) / scale > w.budget;
    const fill = beyond ? COLOURS.beyond : i % 2 ? COLOURS.kv : COLOURS.kvLight;
    svg.append(shape("rect", { x, y: BAR.top, width: Math.max(each - 0.4, 0.3), height: BAR.height, fill }));
  }
  for (const [at, label, anchor] of /** @type {[number, string, string][]} */ ([
    [w.budget, "usable", "end"],
    [w.total, "the card", "end"],
  ])) {
    const x = at * scale;
    const y = label === "usable" ? BAR.top + BAR.height + 18 : BAR.top - 12;
    svg.append(shape("line", { x1: x, x2: x, y1: BAR.top - 8, y2: BAR.top + BAR.height + 8, class: "tvl-mark" }));
    svg.append(shape("text", { x: Math.max(x, 150), y, "text-anchor": anchor, class: "tvl-note" }, `${label}: ${bytesText(at)}`));
  }
}

/** @param {ReturnType<typeof wallet>} w @param {Choice} choice */
function sentence(w, choice) {
  if (w.weights > w.budget) return `The weights (${bytesText(w.weights)}) do not fit into this card.`;
  const one = `${bytesText(w.token)} a token × ${choice.context.toLocaleString("en")} tokens = ${bytesText(w.user)} a user`;
  const many = `${choice.users} users take ${bytesText(w.all)} beside ${bytesText(w.weights)} of weights`;
  return `${one}; ${many}. ${w.fit.toLocaleString("en")} such users fit.`;
}

export default {
  /** @param {{model: any, el: HTMLElement}} context */
  render({ model, el }) {
    const tables = model.get("tables");
    el.classList.add("tvl");
    el.dataset.size = model.get("size");
    el.innerHTML =
      '<div class="tvl-head"><span class="tvl-title">KV wallet</span>' +
      '<span class="tvl-badge">computed</span></div><div class="tvl-fields"></div>';
    const fields = /** @type {HTMLElement} */ (el.querySelector(".tvl-fields"));
    labelled("model", select(model, "model", tables.models.map((/** @type {Model} */ m) => m.name)), fields);
    labelled("GPU", select(model, "gpu", tables.gpus.map((/** @type {Gpu} */ g) => g.name)), fields);
    labelled("dtype", select(model, "dtype", Object.keys(tables.dtypes)), fields);
    labelled("tokens a user", slider(model, "context", 128, 131072), fields);
    labelled("users", slider(model, "users", 1, 1024), fields);
    const svg = /** @type {SVGElement} */ (shape("svg", { viewBox: `0 0 ${WIDTH} 116`, class: "tvl-svg", role: "img" }));
    const words = document.createElement("div");
    words.className = "tvl-answer";
    words.setAttribute("role", "status");
    const caption = document.createElement("div");
    caption.className = "tvl-caption";
    caption.textContent = model.get("caption");
    el.append(svg, words, caption);
    const draw = () => {
      const choice = model.get("choice");
      const w = wallet(choice, tables);
      drawBar(svg, w, choice);
      words.textContent = sentence(w, choice);
      svg.setAttribute("aria-label", sentence(w, choice));
    };
    model.on("change:choice", draw);
    draw();
    return () => model.off("change:choice", draw);
  },
};
