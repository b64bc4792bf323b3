// @ts-check
/** A launch in words: the kernel's index code, one thread's formula with its numbers, and the answer. */

import { gpuOf, resourcesOf, threadOf } from "./launch_figures.js";
import { isFlat } from "./launch_drawing.js";

/**
 * @typedef {import("./launch_figures.js").Choice} Choice
 * @typedef {import("./launch_figures.js").Tables} Tables
 * @typedef {import("./launch_figures.js").Launch} Launch
 * @typedef {import("./launch_figures.js").Figures} Figures
 */

/** @param {number} value */
const count = (value) => value.toLocaleString("en-US");

/** @param {number} value @param {string} one */
const plural = (value, one) => `${count(value)} ${one}${value === 1 ? "" : "s"}`;

/** @param {number} share */
export function percent(share) {
  const value = share * 100;
  if (value > 0 && value < 0.05) return "less than 0.1 %";
  return `${value > 0 && value < 10 ? value.toFixed(1) : Math.round(value)} %`;
}

/** What the kernel's first lines look like. @param {Launch} launch @param {boolean} guard */
export function codeOf(launch, guard) {
  const { stride } = launch;
  if (isFlat(launch)) {
    const first = "int i = blockIdx.x * blockDim.x + threadIdx.x";
    if (stride) return `for (${first}; i < n; i += gridDim.x * blockDim.x)\n    out[i] = f(x[i]);`;
    return `${first};\n${guard ? "if (i < n) " : ""}out[i] = f(x[i]);`;
  }
  const [column, row] = ["column = blockIdx.x * blockDim.x + threadIdx.x", "row = blockIdx.y * blockDim.y + threadIdx.y"];
  const work = "out[row * columns + column] = f(x[row * columns + column]);";
  if (stride) {
    return `for (int ${row}; row < rows; row += gridDim.y * blockDim.y)\n` +
      `    for (int ${column}; column < columns; column += gridDim.x * blockDim.x)\n        ${work}`;
  }
  return `int ${column};\nint ${row};\n${guard ? "if (row < rows && column < columns) " : ""}${work}`;
}

/** One index with its numbers. @param {"x" | "y"} name @param {number} block @param {number} size @param {number} thread */
function formula(name, block, size, thread) {
  const at = block * size + thread;
  return `blockIdx.${name} * blockDim.${name} + threadIdx.${name} = ${block} * ${size} + ${thread} = ${count(at)}`;
}

/** What becomes of one thread. @param {Launch} launch @param {number} block @param {number} thread @param {number} warp threads of a warp */
export function threadText(launch, block, thread, warp) {
  const { x, y } = launch;
  const [blockX, blockY] = [block % x.grid, Math.floor(block / x.grid)];
  const [threadX, threadY] = [thread % x.block, Math.floor(thread / x.block)];
  const { row, column, state, elements } = threadOf(launch, block, thread);
  const flat = isFlat(launch);
  const place = `Block ${flat ? block : `(${blockX}, ${blockY})`}, thread ${flat ? thread : `(${threadX}, ${threadY})`}, ` +
    `lane ${thread % warp} of warp ${Math.floor(thread / warp)}: `;
  const index = row * x.size + column;
  const sum = flat
    ? `i = ${formula("x", blockX, x.block, threadX)}`
    : `column = ${formula("x", blockX, x.block, threadX)}, row = ${formula("y", blockY, y.block, threadY)}`;
  return `${place}${sum}. ${fate(launch, { state, elements, index, row, column })}`;
}

/** @param {Launch} launch @param {{state: string, elements: number, index: number, row: number, column: number}} thread */
function fate(launch, { state, elements, index, row, column }) {
  const { x, y } = launch;
  const size = x.size * y.size;
  if (state === "computes") {
    const which = isFlat(launch) ? `element ${count(index)}` : `element row * columns + column = ${count(index)}`;
    if (elements === 1) return `It computes ${which}.`;
    const next = isFlat(launch) ? `, then ${count(index + x.reach)}${elements > 2 ? ", …" : ""}` : " and on, a grid further each time";
    return `It computes ${which}${next}: ${count(elements)} elements.`;
  }
  if (state === "idle") return `Not less than ${column >= x.size ? `${isFlat(launch) ? "n" : "columns"} = ${count(x.size)}` : `rows = ${count(y.size)}`}: idle.`;
  if (state === "elsewhere") return `No guard: it writes element ${count(index)}, which belongs to row ${Math.floor(index / x.size)}.`;
  return `No guard: it writes element ${count(index)} of ${count(size)}, beyond the end of the array.`;
}

/** The answer, line by line: work, what is wrong, how full the GPU gets. @param {Choice} c @param {Tables} tables @param {Launch} launch @param {Figures} f */
export function sentences(c, tables, launch, f) {
  const { x, y } = launch;
  const flat = isFlat(launch);
  const sizes = flat ? `${count(x.grid)} × ${count(x.block)}` : `(${count(x.grid)}, ${count(y.grid)}) × (${x.block}, ${y.block})`;
  const each = f.most > 1 ? `, up to ${plural(f.most, "element")} each` : "";
  const lines = [
    `${sizes} = ${plural(f.threads, "thread")} for ${plural(x.size * y.size, "element")}${each}. ` +
    `Idle: ${plural(f.idle, "thread")}, ${percent(f.idle / f.threads)}. ` +
    `Of ${plural(f.warps, "warp")}, ${count(f.partly)} ${f.partly === 1 ? "works" : "work"} partly, ${count(f.empty)} not at all.`,
  ];
  lines.push(...faults(f));
  if (f.resident === 0) return [...lines, `Error: the launch fails on sm_${gpuOf(c, tables).architecture}: ${WHY[f.limiter]}.`];
  const { registers, shared } = resourcesOf(c, tables);
  const needs = `${registers} registers a thread and ${count(shared)} bytes of shared memory a block`;
  lines.push(
    `With ${needs}, an SM of sm_${gpuOf(c, tables).architecture} holds ${plural(f.resident, "block")} at a time: ${percent(f.occupancy)} of its warps; ${f.limiter} limit it. ` +
    `The card's ${gpuOf(c, tables).sms} SMs hold ${count(f.slots)}: ${waves(f)}.`,
  );
  return lines;
}

/** @type {Record<string, string>} */
const WHY = {
  "threads of a block": "a block has at most 1,024 threads",
  "launch bounds": "the kernel's __launch_bounds__ allow fewer threads in a block",
  registers: "one block needs more registers than an SM has",
  "shared memory": "one block needs more shared memory than it may have",
};

/** @param {Figures} f */
function faults(f) {
  const lines = [];
  if (f.missing) lines.push(`Error: nobody computes ${plural(f.missing, "element")}: the grid is too small, and no thread strides on.`);
  if (f.outside) lines.push(`Error: no guard, so ${plural(f.outside, "thread")} ${f.outside === 1 ? "touches" : "touch"} memory beyond the array.`);
  if (f.elsewhere) lines.push(`Error: no guard, so ${plural(f.elsewhere, "thread")} ${f.elsewhere === 1 ? "computes" : "compute"} another row's element: a race.`);
  return lines;
}

/** @param {Figures} f */
export function waves(f) {
  if (f.waves === 0) return `the grid is less than one wave and fills ${percent(f.tail / f.slots)} of the GPU`;
  const tail = f.tail ? `, then a tail of ${plural(f.tail, "block")}, ${percent(f.tail / f.slots)} of a wave` : ", and no tail";
  return `${plural(f.waves, "full wave")}${tail}`;
}
