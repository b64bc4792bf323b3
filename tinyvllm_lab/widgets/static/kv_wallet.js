// @ts-check
/**
 * The KV wallet: what weights and KV caches of so many users take of a GPU's memory. A calculator:
 * it needs no run and no kernel. `wallet` is the arithmetic, and the same as `kv_wallet.py`'s.
 */

import { COLOURS, bytesText, labelled, select, shape, slider } from "./calculator.js";
import { drawAtSize, legendOf } from "./calculator_view.js";

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

const FREE = "var(--tvl-card)";

/** @param {Element} svg @param {ReturnType<typeof wallet>} w @param {Choice} choice @param {number} width @param {number} unit */
function drawBar(svg, w, choice, width, unit) {
  const bar = { y: 2.4 * unit, height: 4.5 * unit };
  svg.replaceChildren();
  svg.setAttribute("viewBox", `0 0 ${width} ${bar.y + bar.height + 2.3 * unit}`);
  const scale = width / Math.max(w.total, w.weights + w.all);
  svg.append(shape("rect", { ...bar, x: 0, width: w.total * scale, rx: 4, class: "tvl-free" }));
  svg.append(shape("rect", { ...bar, x: 0, width: w.weights * scale, fill: COLOURS.weights }));
  const shown = Math.min(choice.users, 120);
  const each = (w.all / shown) * scale;
  for (let i = 0; i < shown; i += 1) {
    const x = w.weights * scale + i * each;
    const beyond = (x + each) / scale > w.budget;
    const fill = beyond ? COLOURS.beyond : i % 2 ? COLOURS.kv : COLOURS.kvLight;
    svg.append(shape("rect", { ...bar, x, width: Math.max(each - 0.4, 0.3), fill }));
  }
  drawLimit(svg, bar, Math.min(w.total * scale, width - 1), bar.y - 1.1 * unit, unit, `the card: ${bytesText(w.total)}`);
  drawLimit(svg, bar, w.budget * scale, bar.y + bar.height + 1.7 * unit, unit, `usable: ${bytesText(w.budget)}`);
}

/** @param {Element} svg @param {{y: number, height: number}} bar @param {number} x @param {number} y of the text @param {number} unit @param {string} text */
function drawLimit(svg, bar, x, y, unit, text) {
  const ends = { y1: bar.y - 0.7 * unit, y2: bar.y + bar.height + 0.7 * unit };
  svg.append(shape("line", { x1: x, x2: x, ...ends, class: "tvl-mark" }));
  const left = x < 13 * unit; // too far left for a text that ends there
  svg.append(shape("text", { x, y, "text-anchor": left ? "start" : "end", class: "tvl-axis" }, text));
}

/** @param {ReturnType<typeof wallet>} w @param {Choice} choice @param {number} usable @returns {[string, string][]} */
function meanings(w, choice, usable) {
  const users = choice.users.toLocaleString("en");
  const stripes = `linear-gradient(90deg, ${COLOURS.kvLight} 50%, ${COLOURS.kv} 50%)`;
  return [
    [COLOURS.weights, `weights, ${bytesText(w.weights)}`],
    [stripes, `KV cache of ${users} ${choice.users === 1 ? "user" : "users"}, ${bytesText(w.all)}`],
    [COLOURS.beyond, "does not fit"],
    [FREE, `free; ${Math.round(100 * usable)} % of the card is usable`],
  ];
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
    const svg = shape("svg", { class: "tvl-svg", role: "img" });
    const legend = document.createElement("div");
    const words = document.createElement("div");
    words.className = "tvl-answer";
    words.setAttribute("role", "status");
    const caption = document.createElement("div");
    caption.className = "tvl-caption";
    caption.textContent = model.get("caption");
    el.append(svg, legend, words, caption);
    return drawAtSize(model, svg, (width, unit) => {
      const choice = model.get("choice");
      const w = wallet(choice, tables);
      words.textContent = sentence(w, choice);
      svg.setAttribute("aria-label", sentence(w, choice));
      legend.replaceChildren(legendOf(meanings(w, choice, tables.usable)));
      drawBar(svg, w, choice, width, unit);
    });
  },
};
