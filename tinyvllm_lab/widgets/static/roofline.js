// @ts-check
/**
 * The roofline: where decode and prefill lie under a GPU's roof. A calculator: it needs no run and
 * no kernel. `points` is the arithmetic, and the same as that of the simulator's cost model.
 */

import { labelled, select, shape, slider } from "./calculator.js";
import { drawAtSize } from "./calculator_view.js";
import { duration, plural } from "./words.js";

/**
 * @typedef {{model: string, gpu: string, dtype: string, batch: number, context: number}} Choice
 * @typedef {{name: string, parameters: number, linear: number, head: number, hidden: number, kv_bytes: number, pair_flops: number}} Model
 * @typedef {{name: string, memory: number, peak: number, bandwidth: number, gemm_rate: number, attention_rate: number, memory_rate: number}} Gpu
 * @typedef {{models: Model[], gpus: Gpu[], dtypes: Record<string, number>, usable: number, batches: number[], axes: {x: [number, number], y: [number, number]}}} Tables
 * @typedef {{tokens: number, samples: number, context: number, pairs: number}} Batch
 * @typedef {{flops: number, bytes: number, intensity: number, seconds: number, rate: number, bound: string, fits: boolean}} Point
 */

/** @param {Choice} choice @param {Tables} tables @returns {{model: Model, gpu: Gpu, bits: number}} */
function chosen(choice, tables) {
  const model = /** @type {Model} */ (tables.models.find((m) => m.name === choice.model));
  const gpu = /** @type {Gpu} */ (tables.gpus.find((g) => g.name === choice.gpu));
  return { model, gpu, bits: tables.dtypes[choice.dtype] };
}

/** One step under the roof. @param {Choice} choice @param {Tables} tables @param {Batch} batch @returns {Point} */
function pointOf(choice, tables, { tokens, samples, context, pairs }) {
  const { model, gpu, bits } = chosen(choice, tables);
  const weights = ((model.linear + model.head + tokens * model.hidden) * bits) / 8;
  const kv = (context + tokens) * model.kv_bytes;
  const gemmFlops = 2 * model.linear * tokens + 2 * model.head * samples;
  const attentionFlops = model.pair_flops * pairs;
  let seconds = 0;
  let computing = 0;
  for (const [compute, memory] of [
    [gemmFlops / gpu.gemm_rate, weights / gpu.memory_rate],
    [attentionFlops / gpu.attention_rate, kv / gpu.memory_rate],
  ]) {
    seconds += Math.max(compute, memory);
    if (compute > memory) computing += compute;
  }
  const flops = gemmFlops + attentionFlops;
  const bytes = weights + kv;
  const needs = (model.parameters * bits) / 8 + context * model.kv_bytes;
  return {
    flops, bytes, intensity: flops / bytes, seconds, rate: flops / seconds,
    bound: computing > seconds / 2 ? "compute" : "memory",
    fits: needs <= gpu.memory * tables.usable,
  };
}

/** A decode step of so many requests with the chosen context. @param {Choice} choice @param {Tables} tables @param {number} batch */
function decodeOf(choice, tables, batch) {
  const keys = batch * choice.context;
  return pointOf(choice, tables, { tokens: batch, samples: batch, context: keys, pairs: keys });
}

/** A decode step of the batch, and the prefill of one prompt. @param {Choice} choice @param {Tables} tables */
export function points(choice, tables) {
  const n = choice.context;
  const prompt = { tokens: n, samples: 1, context: n, pairs: (n * (n + 1)) / 2 };
  return { decode: decodeOf(choice, tables, choice.batch), prefill: pointOf(choice, tables, prompt) };
}

const NAMES = /** @type {const} */ (["decode", "prefill"]);

/** @typedef {{width: number, height: number, unit: number, tables: Tables}} Chart px; `unit` is the size of text */

/** Where a point lies on the logarithmic axes. @param {Chart} chart @param {number} intensity @param {number} rate @returns {[number, number]} */
function place({ width, height, unit, tables: { axes } }, intensity, rate) {
  const x = (Math.log10(intensity) - axes.x[0]) / (axes.x[1] - axes.x[0]);
  const y = (Math.log10(rate) - axes.y[0]) / (axes.y[1] - axes.y[0]);
  const inside = (/** @type {number} */ v) => Math.max(0, Math.min(v, 1));
  const left = 8 * unit;
  return [left + inside(x) * (width - left - 6), 6 + (1 - inside(y)) * (height - 4 * unit - 6)];
}

/** FLOP/s as people read them. @param {number} rate */
export function rateText(rate) {
  const power = Math.min(Math.max(Math.floor(Math.floor(Math.log10(rate)) / 3), 0), 5);
  const value = rate / 1000 ** power;
  return `${value.toFixed(value >= 10 ? 0 : 1)} ${["", "K", "M", "G", "T", "P"][power]}FLOP/s`;
}

/** @param {Element} svg @param {Chart} chart */
function drawAxes(svg, chart) {
  const { width, height, unit } = chart;
  const { x: [xLow, xHigh], y: [yLow, yHigh] } = chart.tables.axes;
  const each = width - 8 * unit > 6 * unit * (xHigh - xLow) ? 1 : 2; // labels must not meet
  for (let power = xLow; power <= xHigh; power++) {
    const [x, bottom] = place(chart, 10 ** power, 10 ** yLow);
    svg.append(shape("line", { x1: x, x2: x, y1: 6, y2: bottom, class: "tvl-grid" }));
    if ((power - xHigh) % each !== 0) continue;
    const anchor = power === xHigh ? "end" : "middle";
    svg.append(shape("text", { x, y: bottom + 1.4 * unit, "text-anchor": anchor, class: "tvl-axis" }, (10 ** power).toLocaleString("en")));
  }
  for (let power = yLow; power <= yHigh; power++) {
    const [x, y] = place(chart, 10 ** xLow, 10 ** power);
    svg.append(shape("line", { x1: x, x2: width - 6, y1: y, y2: y, class: "tvl-grid" }));
    const words = { x: x - 0.6 * unit, y: Math.max(y + 0.35 * unit, unit), "text-anchor": "end", class: "tvl-axis" };
    svg.append(shape("text", words, rateText(10 ** power)));
  }
  const below = { x: (8 * unit + width) / 2, y: height - 0.7 * unit, "text-anchor": "middle", class: "tvl-axis" };
  svg.append(shape("text", below, "FLOPs per byte"));
}

/** @param {Element} svg @param {[number, number][]} line @param {string} name */
function drawLine(svg, line, name) {
  const path = line.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" ");
  svg.append(shape("polyline", { points: path, class: name }));
}

/** @param {Element} svg @param {Chart} chart @param {number} peak @param {number} bandwidth @param {string} name */
function drawRoof(svg, chart, peak, bandwidth, name) {
  const [low, high] = chart.tables.axes.x.map((power) => 10 ** power);
  const line = [[low, low * bandwidth], [peak / bandwidth, peak], [high, peak]];
  drawLine(svg, line.map(([x, y]) => place(chart, x, y)), name);
}

/** @param {Element} svg @param {Choice} choice @param {Chart} chart */
function draw(svg, choice, chart) {
  const { tables, width, height, unit } = chart;
  svg.replaceChildren();
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  drawAxes(svg, chart);
  const { gpu } = chosen(choice, tables);
  drawRoof(svg, chart, gpu.gemm_rate, gpu.memory_rate, "tvl-roof tvl-roof-low");
  drawRoof(svg, chart, gpu.peak, gpu.bandwidth, "tvl-roof");
  const trail = tables.batches.map((batch) => decodeOf(choice, tables, batch));
  drawLine(svg, trail.map((point) => place(chart, point.intensity, point.rate)), "tvl-trail");
  const found = points(choice, tables);
  for (const name of NAMES) {
    const [x, y] = place(chart, found[name].intensity, found[name].rate);
    svg.append(shape("circle", { cx: x, cy: y, r: 0.6 * unit, class: `tvl-point tvl-${name}` }));
    const [shift, anchor] = x > width - 6 * unit ? [-unit, "end"] : [unit, "start"];
    svg.append(shape("text", { x: x + shift, y: y + 1.4 * unit, "text-anchor": anchor, class: "tvl-point-name" }, name));
  }
}

/** @param {Point} point @param {number} tokens */
function words({ intensity, seconds, rate, bound, fits }, tokens) {
  const time = `${duration(seconds * 1e6)} a step`;
  const speed = `${Math.round(tokens / seconds).toLocaleString("en")} tokens/s`;
  const per = intensity.toLocaleString("en", { maximumSignificantDigits: 3 });
  const room = fits ? "" : " Weights and KV cache are more than this card holds.";
  return `${per} FLOPs a byte, ${rateText(rate)}, ${time} (${speed}), limited by ${bound}.${room}`;
}

/** @param {Choice} choice @param {Tables} tables */
function sentences(choice, tables) {
  const { decode, prefill } = points(choice, tables);
  const { gpu } = chosen(choice, tables);
  const context = choice.context.toLocaleString("en");
  const corner = Math.round(gpu.peak / gpu.bandwidth).toLocaleString("en");
  return [
    `Decode, ${plural(choice.batch, "request")} of ${context} tokens: ${words(decode, choice.batch)}`,
    `Prefill, a prompt of ${context} tokens: ${words(prefill, choice.context)}`,
    `The roof's corner lies at ${corner} FLOPs a byte.`,
  ];
}

const LEGEND = [
  ["tvl-decode", "decode"], ["tvl-prefill", "prefill"], ["tvl-trail", "decode, batch of 1 to 1,024"],
  ["tvl-roof", "roof of the datasheet"], ["tvl-roof tvl-roof-low", "what the cost model counts with"],
];

/** @param {HTMLElement} el */
function legend(el) {
  const box = document.createElement("div");
  box.className = "tvl-legend";
  for (const [name, label] of LEGEND) {
    const key = document.createElement("span");
    key.className = "tvl-key";
    const icon = shape("svg", { viewBox: "0 0 18 12", width: 18, height: 12 });
    const isPoint = name === "tvl-decode" || name === "tvl-prefill";
    if (isPoint) icon.append(shape("circle", { cx: 9, cy: 6, r: 5, class: `tvl-point ${name}` }));
    else icon.append(shape("line", { x1: 0, x2: 18, y1: 6, y2: 6, class: name }));
    key.append(icon, label);
    box.append(key);
  }
  el.append(box);
}

export default {
  /** @param {{model: any, el: HTMLElement}} context */
  render({ model, el }) {
    /** @type {Tables} */
    const tables = model.get("tables");
    el.classList.add("tvl");
    el.dataset.size = model.get("size");
    el.innerHTML =
      '<div class="tvl-head"><span class="tvl-title">Roofline</span>' +
      '<span class="tvl-badge">computed</span></div><div class="tvl-fields"></div>';
    const fields = /** @type {HTMLElement} */ (el.querySelector(".tvl-fields"));
    labelled("model", select(model, "model", tables.models.map((m) => m.name)), fields);
    labelled("GPU", select(model, "gpu", tables.gpus.map((g) => g.name)), fields);
    labelled("weights", select(model, "dtype", Object.keys(tables.dtypes)), fields);
    labelled("batch", slider(model, "batch", 1, 1024), fields);
    labelled("context", slider(model, "context", 128, 131072), fields);
    const svg = shape("svg", { class: "tvl-svg", role: "img" });
    el.append(svg);
    legend(el);
    const answer = document.createElement("div");
    answer.className = "tvl-answer tvl-lines";
    answer.setAttribute("role", "status");
    const caption = document.createElement("div");
    caption.className = "tvl-caption";
    caption.textContent = model.get("caption");
    el.append(answer, caption);
    return drawAtSize(model, svg, (width, unit) => {
      const choice = model.get("choice");
      const height = Math.max(18 * unit, Math.min(0.36 * width, 34 * unit));
      draw(svg, choice, { width, height, unit, tables });
      answer.textContent = sentences(choice, tables).join("\n");
      svg.setAttribute("aria-label", answer.textContent);
    });
  },
};
