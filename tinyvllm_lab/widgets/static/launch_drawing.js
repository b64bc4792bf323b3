// @ts-check
/** The pictures of a launch: blocks, elements, threads of a block, one SM, waves. `launch_geometry.js` puts them together. */

import { shape } from "./calculator.js";
import { COLOURS, inkOn } from "./theme.js";
import { fitsOf, gpuOf, resourcesOf, threadOf } from "./launch_figures.js";

/**
 * @typedef {import("./launch_figures.js").Launch} Launch
 * @typedef {import("./launch_figures.js").Axis} Axis
 * @typedef {object} Scene
 * @property {import("./launch_figures.js").Choice} choice
 * @property {import("./launch_figures.js").Tables} tables
 * @property {Launch} launch
 * @property {import("./launch_figures.js").Figures} figures
 * @property {number} width of the picture, in units of which 12 are the size of text
 * @property {number} block that is looked at
 * @property {number | null} thread under the pointer
 * @property {string} hatch reference to the pattern of what idles
 */

export const BLOCK_COLOURS = COLOURS.slice(0, 5); // the sixth is for what is wrong
export const WRONG = COLOURS[5];
const MOST_CELLS = { flat: 192, x: 64, y: 20 };
const PASSES = 6; // rows of elements that are drawn

/** @param {number} value */
const count = (value) => value.toLocaleString("en-US");

/** Blocks that one cell of the map stands for, in a direction. @param {number} blocks @param {number} most */
export function blocksOfACell(blocks, most) {
  let size = 1;
  while (Math.ceil(blocks / size) > most) size *= 2;
  return size;
}

/** One row of elements, blocks and threads in one direction only. @param {Launch} launch */
export const isFlat = ({ y }) => y.size === 1 && y.reach === 1;

/** @param {Launch} launch */
export function cellsOf({ x, y }) {
  const flat = y.grid === 1;
  const wide = blocksOfACell(x.grid, flat ? MOST_CELLS.flat : MOST_CELLS.x);
  const high = blocksOfACell(y.grid, MOST_CELLS.y);
  return { wide, high, columns: Math.ceil(x.grid / wide), rows: Math.ceil(y.grid / high) };
}

/** The colour of the block at a place of the grid. @param {Launch} launch @param {number} blockX @param {number} blockY */
function colourAt(launch, blockX, blockY) {
  const { wide, high, columns } = cellsOf(launch);
  const cell = Math.floor(blockX / wide) + Math.floor(blockY / high) * (columns + (columns % 5 === 0 ? 2 : 0));
  return BLOCK_COLOURS[cell % BLOCK_COLOURS.length];
}

/** @param {SVGElement} svg @param {number} width @param {number} height */
function begin(svg, width, height) {
  svg.replaceChildren();
  svg.setAttribute("viewBox", `0 0 ${width} ${Math.ceil(height)}`);
}

/** @param {SVGElement} svg @param {number} x @param {number} y @param {number} w @param {number} h @param {string} fill @param {Record<string, string | number>} [more] */
function rect(svg, x, y, w, h, fill, more = {}) {
  if (w <= 0 || h <= 0) return null;
  const made = shape("rect", { x: x.toFixed(2), y: y.toFixed(2), width: w.toFixed(2), height: h.toFixed(2), fill, ...more });
  svg.append(made);
  return made;
}

/** What threads without an element look like. @param {Scene} scene */
const beyondFill = ({ launch, hatch }) => (launch.guarded ? hatch : WRONG);

/** The grid: a cell is a block, or some; its colour is as wide as the share of its threads that compute. @param {SVGElement} svg @param {Scene} scene */
export function drawMap(svg, scene) {
  const { launch, width, block } = scene;
  const cells = cellsOf(launch);
  const flat = launch.y.grid === 1;
  const wanted = flat ? Math.sqrt((width * 130) / cells.columns) : Math.min(width / cells.columns, 190 / cells.rows);
  const side = Math.max(4, Math.min(46, wanted, width));
  const fitting = Math.min(cells.columns, Math.floor(width / side));
  const perLine = flat && cells.columns > fitting && fitting % 5 === 0 ? fitting - 1 : flat ? fitting : cells.columns;
  const lines = flat ? Math.ceil(cells.columns / perLine) : cells.rows;
  begin(svg, width, lines * side + 4);
  const gap = side > 8 ? 1.5 : 0.7;
  const total = cells.columns * cells.rows;
  const seen = Math.floor((block % launch.x.grid) / cells.wide) + Math.floor(Math.floor(block / launch.x.grid) / cells.high) * cells.columns;
  for (let cell = 0; cell < total; cell++) {
    const at = { x: (cell % cells.columns) * cells.wide, y: Math.floor(cell / cells.columns) * cells.high };
    const x = 2 + (flat ? cell % perLine : cell % cells.columns) * side;
    const y = 2 + Math.floor(cell / (flat ? perLine : cells.columns)) * side;
    const share = [shareIn(launch.x, at.x, cells.wide), shareIn(launch.y, at.y, cells.high)];
    const number = at.y * launch.x.grid + at.x;
    const box = { class: "tvl-cell", "data-block": number };
    if (share[0] * share[1] < 1) rect(svg, x, y, side - gap, side - gap, beyondFill(scene), box);
    rect(svg, x, y, (side - gap) * share[0], (side - gap) * share[1], colourAt(launch, at.x, at.y), box);
    if (cell === seen) rect(svg, x - 0.5, y - 0.5, side - gap + 1, side - gap + 1, "none", { class: "tvl-seen" });
    if (side > 24 && cells.wide * cells.high === 1) label(svg, String(number), x + (side - gap) / 2, y + side / 2, side, share[0] * share[1] > 0.6 ? colourAt(launch, at.x, at.y) : null);
  }
}

const SMALLEST_LABEL = 7; // units, of which 12 are the size of text

/** Share of the threads of some blocks that have an element, in one direction. @param {Axis} axis @param {number} first @param {number} blocks */
function shareIn(axis, first, blocks) {
  const threads = Math.min(blocks, axis.grid - first) * axis.block;
  return Math.min(Math.max(axis.size - first * axis.block, 0), threads) / threads;
}

/** @param {SVGElement} svg @param {string} text @param {number} x @param {number} y @param {number} room @param {string | null} fill below it */
function label(svg, text, x, y, room, fill) {
  const size = Math.min(10, (room - 4) / (0.64 * text.length)); // as a digit is wide
  if (size < SMALLEST_LABEL) return;
  const made = shape("text", { x, y: y + 3.5, "text-anchor": "middle", class: "tvl-label tvl-plain" }, text);
  made.setAttribute("style", `font-size: ${size}px${fill === null ? "" : `; fill: ${inkOn(fill)}`}`);
  svg.append(made);
}

/** @param {SVGElement} svg @param {Scene} scene */
export function drawElements(svg, scene) {
  if (isFlat(scene.launch)) drawPasses(svg, scene);
  else drawMatrix(svg, scene);
}

/** A vector: each line is as many elements as the grid has threads, below each other what a thread strides over. @param {SVGElement} svg @param {Scene} scene */
function drawPasses(svg, scene) {
  const { launch: { x: axis, stride }, launch, width } = scene;
  const passes = Math.ceil(axis.size / axis.reach);
  const lines = passes <= PASSES ? [...Array(passes).keys()] : [...Array(PASSES - 2).keys(), -1, passes - 1];
  const row = 24;
  begin(svg, width, lines.length * row + 16);
  lines.forEach((pass, line) => {
    const y = line * row;
    if (pass < 0) {
      const left = `… ${count(passes - PASSES + 1)} more lines like these …`;
      svg.append(shape("text", { x: width / 2, y: y + 15, "text-anchor": "middle", class: "tvl-note" }, left));
    } else drawPass(svg, scene, pass, y, stride || pass === 0);
  });
  const words = `${passes > 1 ? "first line: " : ""}elements 0 … ${count(Math.min(axis.size, axis.reach) - 1)}`;
  svg.append(shape("text", { x: 0, y: lines.length * row + 11, class: "tvl-note" }, words));
}

/** @param {SVGElement} svg @param {Scene} scene @param {number} pass @param {number} y @param {boolean} done somebody computes them */
function drawPass(svg, scene, pass, y, done) {
  const { launch: { x: axis }, launch, width, block } = scene;
  const scale = width / axis.reach;
  const left = Math.min(axis.size - pass * axis.reach, axis.reach);
  const step = cellsOf(launch).wide * axis.block;
  if (!done) rect(svg, 0, y, left * scale, 19, WRONG, { class: "tvl-missing" });
  for (let at = 0; done && at < left; at += step) {
    rect(svg, at * scale, y, Math.min(step, left - at) * scale, 19, colourAt(launch, at / axis.block, 0));
  }
  if (done) rect(svg, left * scale, y, (axis.reach - left) * scale, 19, pass === 0 ? beyondFill(scene) : scene.hatch);
  const seen = (block % axis.grid) * axis.block;
  const end = Math.min(seen + axis.block, axis.reach);
  if (done) rect(svg, seen * scale, y + 0.5, Math.max(1.5, (end - seen) * scale), 18, "none", { class: "tvl-seen" });
}

/** A matrix under its grid. @param {SVGElement} svg @param {Scene} scene */
function drawMatrix(svg, scene) {
  const { launch, launch: { x, y, stride }, width } = scene;
  const [wide, high] = [Math.max(x.reach, x.size), Math.max(y.reach, y.size)];
  const [scaleX, scaleY] = [(width - 2) / wide, Math.min(210, Math.max(26, (high / wide) * width)) / high];
  begin(svg, width, high * scaleY + 4);
  const place = (/** @type {number} */ c, /** @type {number} */ r, /** @type {number} */ w, /** @type {number} */ h, /** @type {string} */ fill, more = {}) =>
    rect(svg, 1 + c * scaleX, 1 + r * scaleY, w * scaleX, h * scaleY, fill, more);
  place(0, 0, x.size, y.size, WRONG, { class: "tvl-missing" });
  place(x.size, 0, x.reach - x.size, y.reach, beyondFill(scene));
  place(0, y.size, Math.min(x.reach, x.size), y.reach - y.size, beyondFill(scene));
  const [covered, deep] = stride ? [x.size, y.size] : [Math.min(x.size, x.reach), Math.min(y.size, y.reach)];
  place(0, 0, covered, deep, "", { class: "tvl-page" });
  const stepX = x.block * blocksOfACell(Math.ceil(covered / x.block), MOST_CELLS.x);
  const stepY = y.block * blocksOfACell(Math.ceil(deep / y.block), MOST_CELLS.y);
  for (let r = 0; r < deep; r += stepY) {
    for (let c = 0; c < covered; c += stepX) {
      const colour = colourAt(launch, (c / x.block) % x.grid, (r / y.block) % y.grid);
      const gap = scaleX * stepX > 5 ? 0.6 : 0;
      place(c, r, Math.min(stepX, covered - c) - gap / scaleX, Math.min(stepY, deep - r) - gap / scaleY, colour);
    }
  }
  place(0, 0, x.size, y.size, "none", { class: "tvl-edge" });
  const seen = [(scene.block % x.grid) * x.block, Math.floor(scene.block / x.grid) * y.block];
  place(seen[0], seen[1], x.block, y.block, "none", { class: "tvl-seen" });
}

/** One block, a warp a row. @param {SVGElement} svg @param {Scene} scene */
export function drawThreads(svg, scene) {
  const { launch, launch: { x, y }, tables, width, block } = scene;
  const threads = x.block * y.block;
  const warps = Math.ceil(Math.min(threads, tables.most_threads) / tables.warp);
  const [left, row] = [width < 480 ? 22 : 52, warps <= 8 ? 22 : warps <= 16 ? 17 : 13];
  const cell = (width - left - 2) / tables.warp;
  begin(svg, width, warps * row + 3);
  const fill = colourAt(launch, block % x.grid, Math.floor(block / x.grid));
  for (let lane = 0; lane < warps * tables.warp; lane++) {
    const [atX, atY] = [left + (lane % tables.warp) * cell, 1 + Math.floor(lane / tables.warp) * row];
    if (lane % tables.warp === 0) {
      const name = `${width < 480 ? "w" : "warp "}${lane / tables.warp}`;
      svg.append(shape("text", { x: 0, y: atY + row / 2 + 3.5, class: "tvl-note" }, name));
    }
    if (lane >= threads) {
      rect(svg, atX + 0.5, atY + 0.5, cell - 1.5, row - 2.5, "none", { class: "tvl-no-thread" });
      continue;
    }
    const { row: r, column, state } = threadOf(launch, block, lane);
    const computes = state === "computes";
    rect(svg, atX, atY, cell - 1, row - 2, computes ? fill : state === "idle" ? scene.hatch : WRONG, { class: "tvl-thread", "data-thread": lane });
    if (computes && row > 13) label(svg, String(r * x.size + column), atX + cell / 2, atY + row / 2 - 1, cell, fill);
    if (state === "outside" || state === "elsewhere") label(svg, state === "outside" ? "×" : "!", atX + cell / 2, atY + row / 2 - 1, cell, WRONG);
    if (lane === scene.thread) rect(svg, atX - 0.5, atY - 0.5, cell, row - 1, "none", { class: "tvl-seen" });
  }
}

/** How full one SM gets: a bar for each limit. @param {SVGElement} svg @param {Scene} scene */
export function drawSm(svg, scene) {
  const { choice, tables, launch, figures, width } = scene;
  const gpu = gpuOf(choice, tables);
  const { registers, shared } = resourcesOf(choice, tables);
  const threads = launch.x.block * launch.y.block;
  const warps = Math.ceil(threads / tables.warp);
  const fits = fitsOf(gpu, tables, threads, registers, shared);
  const unit = (/** @type {number} */ n, /** @type {number} */ size) => Math.ceil(n / size) * size;
  /** @type {[keyof typeof fits, number, number][]} what one block takes, and what there is */
  const bars = [
    ["warps", warps, gpu.warps], ["blocks", 1, gpu.blocks],
    ["registers", unit(registers * tables.warp, tables.register_unit) * warps, tables.registers],
    ["shared memory", unit(shared + gpu.reserved, gpu.shared_unit), gpu.shared],
  ];
  const [left, right, row] = [102, 152, 25];
  begin(svg, width, bars.length * row);
  bars.forEach(([name, one, all], line) => {
    const [y, scale] = [line * row + 2, (width - left - right) / all];
    const limits = name === figures.limiter;
    const strong = limits ? " tvl-strong" : "";
    svg.append(shape("text", { x: 0, y: y + 13, class: `tvl-note${strong}` }, name));
    rect(svg, left, y, width - left - right, 17, "", { class: "tvl-free" });
    for (let b = 0; b < figures.resident; b++) {
      rect(svg, left + b * one * scale, y, Math.max(one * scale - 0.7, 0.3), 17, BLOCK_COLOURS[4 - (b % 2) * 3]);
    }
    const used = `${limits ? "limit: " : ""}${count(figures.resident * one)} of ${count(all)}`;
    svg.append(shape("text", { x: width, y: y + 13, "text-anchor": "end", class: `tvl-note${strong}` }, used));
  });
}

/** Full waves of blocks, and the tail. @param {SVGElement} svg @param {Scene} scene */
export function drawWaves(svg, { figures: { waves, tail, slots }, width, hatch }) {
  const all = waves + (tail ? 1 : 0);
  const shown = all <= 8 ? [...Array(all).keys()] : [0, 1, 2, 3, 4, -1, all - 2, all - 1];
  const box = Math.min(90, width / 8);
  begin(svg, width, 50);
  shown.forEach((wave, place) => {
    const x = place * box;
    if (wave < 0) {
      svg.append(shape("text", { x: x + box / 2, y: 22, "text-anchor": "middle", class: "tvl-note" }, `… ${count(all - 7)}`));
      return;
    }
    const share = wave < waves ? 1 : tail / slots;
    rect(svg, x, 1, box - 4, 32, hatch);
    rect(svg, x, 1 + 32 * (1 - share), box - 4, Math.max(32 * share, 1), BLOCK_COLOURS[1]);
    svg.append(shape("text", { x: x + (box - 4) / 2, y: 46, "text-anchor": "middle", class: "tvl-note" }, `wave ${count(wave + 1)}`));
  });
}

