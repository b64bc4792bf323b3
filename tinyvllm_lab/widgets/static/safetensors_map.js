// @ts-check
/** The Safetensors map: what lies where in a file. Python has read the header and laid it out. */

import { bytesText, shape } from "./calculator.js";
import { drawAtSize, legendOf } from "./calculator_view.js";

/**
 * @typedef {{name: string, labels: string[], kind: string, dtype: string, shape: number[], begin: number, end: number}} Part
 * @typedef {[number, number, number, number]} Piece part, line, x, width
 */

/** @param {number} value */
const count = (value) => value.toLocaleString("en-US");

/** A part in words. @param {Part} part @param {number} dataStart where the tensors begin */
export function partText({ name, kind, dtype, shape: sizes, begin, end }, dataStart) {
  const place = `bytes ${count(begin)} to ${count(end - 1)} of the file`;
  if (kind === "header") return `header: its length in 8 bytes, and ${count(end - 8)} bytes of JSON`;
  const offsets = `data_offsets [${begin - dataStart}, ${end - dataStart}]`;
  return `${name}: ${dtype}, shape [${sizes.join(", ")}], ${bytesText(end - begin)}; ${place}, ${offsets}`;
}

/** @param {any} model @param {(part: Part | null) => void} pointed */
function drawing(model, pointed) {
  const { width, row, bar } = model.get("geometry");
  /** @type {Part[]} */
  const parts = model.get("parts");
  /** @type {Piece[]} */
  const pieces = model.get("pieces");
  const kinds = model.get("kinds");
  const lines = 1 + Math.max(...pieces.map((piece) => piece[1]));
  const svg = shape("svg", { viewBox: `0 0 ${width} ${lines * row}`, class: "tvl-svg", role: "img" });
  for (const [number, line, x, w] of pieces) {
    const part = parts[number];
    const { fill } = kinds[part.kind];
    const gap = w > 3.2 ? 0.7 : 0;
    const rect = shape("rect", { x, y: line * row, width: w - gap, height: bar, fill, class: "tvl-part" });
    rect.dataset.part = String(number);
    rect.addEventListener("pointerenter", () => pointed(part));
    rect.addEventListener("pointerleave", () => pointed(null));
    svg.append(rect);
  }
  return /** @type {SVGElement} */ (svg);
}

/** The longest name of each part that has room in it, a little smaller if need be.
 * @param {any} model @param {SVGElement} svg @param {number} unit size of text, in units of the drawing */
function drawLabels(model, svg, unit) {
  const { row, bar } = model.get("geometry");
  for (const old of svg.querySelectorAll("text")) old.remove();
  const sizes = [1, 0.85].map((share) => Math.min(share * unit, 0.8 * bar));
  for (const [number, line, x, width] of /** @type {Piece[]} */ (model.get("pieces"))) {
    const part = /** @type {Part} */ (model.get("parts")[number]);
    const choices = part.labels.flatMap((label) => sizes.map((size) => ({ label, size })));
    const found = choices.find(({ label, size }) => (label.length * 0.56 + 0.8) * size < width);
    if (found === undefined) continue;
    const { label, size } = found;
    const place = { x: x + 0.4 * size, y: line * row + bar / 2 + 0.35 * size, "font-size": size };
    svg.append(shape("text", { ...place, fill: model.get("kinds")[part.kind].ink, class: "tvl-part-name" }, label));
  }
}

/** The whole header as a table, for those who want it all. @param {Part[]} parts */
function tableOf(parts) {
  const box = document.createElement("details");
  box.className = "tvl-all";
  const summary = document.createElement("summary");
  summary.textContent = `All ${count(parts.length - 1)} entries of the header`;
  box.append(summary);
  box.addEventListener("toggle", () => {
    if (box.querySelector("table")) return;
    const table = document.createElement("table");
    const rows = parts.slice(1).map(({ name, dtype, shape: sizes, begin, end }) => [
      name, dtype, `[${sizes.join(", ")}]`, `[${begin - parts[0].end}, ${end - parts[0].end}]`,
    ]);
    for (const cells of [["name", "dtype", "shape", "data_offsets"], ...rows]) {
      const row = table.insertRow();
      for (const text of cells) row.insertCell().textContent = text;
    }
    box.append(table);
  });
  return box;
}

/** Marks all pieces of a part. @param {SVGElement} svg @param {number} number -1: none */
function mark(svg, number) {
  for (const rect of svg.querySelectorAll("rect")) {
    rect.classList.toggle("tvl-pointed", rect.dataset.part === String(number));
  }
}

export default {
  /** @param {{model: any, el: HTMLElement}} context */
  render({ model, el }) {
    /** @type {Part[]} */
    const parts = model.get("parts");
    el.classList.add("tvl");
    el.dataset.size = model.get("size");
    el.innerHTML =
      '<div class="tvl-head"><span class="tvl-title"></span><span class="tvl-badge">read</span>' +
      '<span class="tvl-now"></span></div>';
    const title = /** @type {HTMLElement} */ (el.querySelector(".tvl-title"));
    title.textContent = model.get("title");
    const now = /** @type {HTMLElement} */ (el.querySelector(".tvl-now"));
    now.textContent = `${count(parts.length - 1)} tensors, ${bytesText(parts[parts.length - 1].end)}`;
    const words = document.createElement("div");
    words.className = "tvl-answer tvl-pointer-words";
    words.setAttribute("role", "status");
    const rest = "Point at a part to read its entry.";
    words.textContent = rest;
    const svg = drawing(model, (part) => {
      words.textContent = part ? partText(part, parts[0].end) : rest;
      mark(svg, part ? parts.indexOf(part) : -1);
    });
    svg.setAttribute("aria-label", `${title.textContent}: ${now.textContent}`);
    const caption = document.createElement("div");
    caption.className = "tvl-caption";
    caption.textContent = model.get("caption");
    el.append(svg, legendOf(model.get("legend_items")), words, tableOf(parts), caption);
    const { width: drawn } = model.get("geometry");
    return drawAtSize(model, svg, (width, unit) => drawLabels(model, svg, (unit * drawn) / width));
  },
};
