// @ts-check
/** The picture of one step of a block: the grid, its threads, and the memory that a warp touches. */

import { Surface } from "./draw.js";
import { inkOn, mix } from "./theme.js";
import { BANKS, SECTOR, WARP, indexOf, passesOf, product, sectorsOf, sentence, times, turnsOf } from "./xray_run.js";

/** @typedef {import("./xray_run.js").XRayRun} XRayRun */
/** @typedef {import("./xray_run.js").Step} Step */
/** @typedef {import("./theme.js").Theme} Theme */

/** What each kind of step looks like. @type {Record<string, {fill: string, label: string}>} */
export const LOOKS = {
  read: { fill: "#56B4E9", label: "reads" },
  write: { fill: "#E69F00", label: "writes" },
  atomic: { fill: "#CC79A7", label: "atomic" },
  warp_op: { fill: "#009E73", label: "shuffle, vote" },
  barrier: { fill: "#D55E00", label: "at a barrier" },
};

/**
 * @typedef {object} XRayScene
 * @property {XRayRun} run
 * @property {number} tick
 * @property {number} warp the chosen one
 * @property {number} width
 * @property {number} size px of normal text
 * @property {Theme} theme
 * @property {Set<number>} lines that are pointed at, by index
 * @property {number} thread that is pointed at; -1: none
 */

/** @typedef {{x: number, y: number, w: number, h: number, tip: () => string, thread?: number, warp?: number, array?: number}} Spot */

const MOST_BLOCKS = 128;
const MOST_ARRAYS = 10;
const BINS = 96;

export class XRayView {
  constructor() {
    /** @type {Spot[]} */
    this.spots = [];
  }

  /** Draws from the top; returns the height. @param {Surface} surface @param {XRayScene} scene */
  draw(surface, scene) {
    this.spots = [];
    let y = this.drawGrid(surface, scene, 0);
    y = this.drawThreads(surface, scene, y + scene.size * 0.9);
    y = this.drawMemory(surface, scene, y + scene.size * 0.9);
    return this.drawArrays(surface, scene, y + scene.size * 0.9) + 4;
  }

  /** @param {number} x @param {number} y @returns {Spot | null} */
  hit(x, y) {
    return this.spots.find((s) => x >= s.x && x < s.x + s.w && y >= s.y && y < s.y + s.h) ?? null;
  }

  /** @param {Surface} surface @param {XRayScene} scene @param {number} top */
  drawGrid(surface, { run, width, size, theme }, top) {
    const { grid, shown, logged } = run.page;
    const blocks = product(grid);
    const place = indexOf(shown, grid);
    heading(surface, `Grid: ${times(blocks, "block")}; the steps are those of block ${place}`, top, size, width);
    const cell = Math.max(7, size * 0.75);
    const columns = Math.min(grid[0], Math.floor(width / (cell + 2)));
    const drawn = Math.min(blocks, MOST_BLOCKS, columns * 6);
    const seen = new Set(logged);
    for (let n = 0; n < drawn; n++) {
      const x = (n % columns) * (cell + 2);
      const y = top + size * 1.5 + Math.floor(n / columns) * (cell + 2);
      const fill = n === shown ? theme.first : seen.has(n) ? mix(theme.first, theme.page, 0.6) : theme.empty;
      surface.card(x, y, cell, cell, 2, fill, n === shown ? theme.text : null, 1.5);
      const what = n === shown ? ": its steps are here" : seen.has(n) ? ": counted, not shown" : ": not recorded";
      this.spots.push({ x, y, w: cell + 2, h: cell + 2, tip: () => `block ${indexOf(n, grid)}${what}` });
    }
    const bottom = top + size * 1.5 + Math.ceil(drawn / columns) * (cell + 2);
    if (drawn === blocks) return bottom;
    surface.text(`and ${times(blocks - drawn, "block")} more`, 0, bottom + size * 0.6, { size: size * 0.9, colour: theme.soft });
    return bottom + size * 1.2;
  }

  /** @param {Surface} surface @param {XRayScene} scene @param {number} top */
  drawThreads(surface, scene, top) {
    const { run, tick, width, size, theme, warp } = scene;
    const states = run.count(tick);
    const words = Object.entries(states).filter(([, n]) => n).map(([state, n]) => `${n} ${state}`);
    heading(surface, `Threads, 32 lanes a row: ${words.join(", ")}`, top, size, width);
    const label = size * 4.4;
    const pitch = Math.min(size * 1.5, (width - label) / WARP);
    const height = Math.max(5, Math.min(pitch, run.warps > 8 ? size * 0.75 : size * 1.2));
    let y = top + size * 1.5;
    for (let n = 0; n < run.warps; n++, y += height + 2) {
      if (n === warp) surface.card(0, y - 1, label + WARP * pitch, height + 2, 2, theme.empty);
      const weight = n === warp ? 700 : 400;
      surface.text(`warp ${n}`, 3, y + height / 2, { size: Math.min(size * 0.95, height + 3), weight, colour: n === warp ? theme.text : theme.soft });
      this.spots.push({ x: 0, y: y - 1, w: label, h: height + 2, warp: n, tip: () => sentence(run, n, tick) });
      this.drawWarp(surface, scene, n, label, y, pitch, height);
    }
    return y;
  }

  /** @param {Surface} surface @param {XRayScene} scene @param {number} warp @param {number} left @param {number} y @param {number} pitch @param {number} height */
  drawWarp(surface, scene, warp, left, y, pitch, height) {
    const { run, tick, theme, thread: pointed } = scene;
    const step = run.at(tick, warp);
    const culprits = new Set(run.page.findings.flatMap((finding) => finding.threads));
    for (let lane = 0; lane < WARP && warp * WARP + lane < run.threads; lane++) {
      const thread = warp * WARP + lane;
      const x = left + lane * pitch;
      const state = run.stateOf(thread, tick);
      drawThread(surface, state, step?.kind ?? "", x + 0.75, y, pitch - 1.5, height, theme);
      if (culprits.has(thread)) surface.card(x, y - 0.75, pitch, height + 1.5, 2, null, theme.warn, 2);
      if (thread === pointed) surface.card(x, y - 0.75, pitch, height + 1.5, 2, null, theme.text, 2);
      this.spots.push({ x, y: y - 1, w: pitch, h: height + 2, warp, thread, tip: () => threadTip(run, thread, tick) });
    }
  }

  /** What the chosen warp touches. @param {Surface} surface @param {XRayScene} scene @param {number} top */
  drawMemory(surface, scene, top) {
    const { run, tick, warp, size, width } = scene;
    heading(surface, sentence(run, warp, tick), top, size, width);
    const step = run.at(tick, warp);
    const space = step ? run.spaceOf(step) : "";
    const y = top + size * 1.6;
    if (step && space === "shared") return Math.max(this.drawBanks(surface, scene, step, y), y + size * 5);
    if (step && space) return Math.max(this.drawSectors(surface, scene, step, y), y + size * 5);
    return y + size * 5;
  }

  /** @param {Surface} surface @param {XRayScene} scene @param {Step} step @param {number} top */
  drawSectors(surface, { run, width, size, theme, thread, warp }, step, top) {
    const sectors = sectorsOf(step);
    const label = size * 5.2;
    const column = Math.min((width - label) / 4, size * 11);
    const word = (column - 6) / 8;
    const height = sectors.length > 16 ? size * 0.85 : size * 1.1;
    const { fill } = LOOKS[step.kind];
    let y = top;
    sectors.forEach(({ sector, used, words }, n) => {
      const x = label + (n % 4) * column;
      y = top + Math.floor(n / 4) * (height + 3);
      if (n % 4 === 0) surface.text(`+${(sector * SECTOR).toLocaleString("en-US")}`, label - 6, y + height / 2, { size: size * 0.85, align: "right", colour: theme.soft });
      words.forEach((lanes, w) => {
        const mine = thread >= 0 && Math.floor(thread / WARP) === warp && lanes.includes(thread % WARP);
        surface.rect(x + w * word, y, word - 1, height, lanes.length ? fill : theme.empty);
        if (lanes.length && word > size) surface.text(lanes.length > 3 ? "all" : `${lanes[0]}`, x + w * word + word / 2 - 0.5, y + height / 2 + 0.5, { size: size * 0.7, align: "center", colour: inkOn(fill), max: word });
        if (mine) surface.card(x + w * word - 0.5, y - 0.5, word, height + 1, 1, null, theme.text, 2);
      });
      surface.card(x - 1, y - 1, 8 * word + 1, height + 2, 2, null, theme.soft, 0.75);
      const tip = () => `sector at byte ${(sector * SECTOR).toLocaleString("en-US")} of ${run.page.arrays[step.array].name}: ${used} of 32 bytes asked for, by ${lanesText(words.flat())}`;
      this.spots.push({ x, y, w: column - 5, h: height + 2, tip });
    });
    return y + height;
  }

  /** @param {Surface} surface @param {XRayScene} scene @param {Step} step @param {number} top */
  drawBanks(surface, { width, size, theme, thread, warp }, step, top) {
    const label = size * 5.2;
    const pitch = Math.min(size * 1.4, (width - label) / BANKS);
    const turns = turnsOf(step);
    const rows = turns.reduce((sum, { depth }) => sum + depth, 0);
    const height = rows > 16 ? Math.max(3, size * 0.4) : rows > 4 ? size * 0.65 : size;
    const fill = LOOKS[step.kind].fill;
    for (const bank of [0, 8, 16, 24, 31]) {
      surface.text(`${bank}`, label + (bank + 0.5) * pitch, top + size * 0.4, { size: size * 0.8, align: "center", colour: theme.soft });
    }
    surface.text("bank", label - 6, top + size * 0.4, { size: size * 0.85, align: "right", colour: theme.soft });
    let y = top + size;
    let pass = 0;
    for (const { banks, depth } of turns) {
      for (let row = 0; row < depth; row++, y += height + 1.5) {
        pass += 1;
        if (height >= size * 0.6) surface.text(`pass ${pass}`, label - 6, y + height / 2, { size: size * 0.85, align: "right", colour: theme.soft });
        for (let bank = 0; bank < BANKS; bank++) {
          const words = [...(banks.get(bank) ?? [])];
          const x = label + bank * pitch;
          const found = words[row];
          surface.rect(x, y, pitch - 1.5, height, found ? (row ? LOOKS.barrier.fill : fill) : theme.empty);
          if (!found) continue;
          const mine = thread >= 0 && Math.floor(thread / WARP) === warp && found[1].includes(thread % WARP);
          if (mine) surface.card(x - 0.5, y - 0.5, pitch - 0.5, height + 1, 1, null, theme.text, 2);
          this.spots.push({ x, y, w: pitch, h: height + 1.5, tip: () => `bank ${bank}, pass ${row + 1} of ${words.length}: word ${found[0]}, for ${lanesText(found[1])}` });
        }
      }
      y += 2;
    }
    if (rows > turns.length) surface.text(`${times(passesOf(step), "pass")} where one could do: a bank conflict`, label, y + size * 0.6, { size: size * 0.9, colour: theme.warn, weight: 600 });
    return y + size * 1.2;
  }

  /** Each array as a strip: what is touched now, and was before. @param {Surface} surface @param {XRayScene} scene @param {number} top */
  drawArrays(surface, scene, top) {
    const { run, tick, width, size, theme, lines } = scene;
    heading(surface, "Arrays: touched now (full), before by this block (pale)", top, size, width);
    const label = size * 9.5;
    const touched = touches(run, tick, lines);
    let y = top + size * 1.5;
    run.page.arrays.slice(0, MOST_ARRAYS).forEach((array, number) => {
      surface.text(array.name, 0, y + size * 0.45, { size: size * 0.95, mono: true, max: label - size * 4.6, weight: touched.lined.has(number) ? 700 : 400 });
      surface.text(bytes(array.nbytes), label - 8, y + size * 0.45, { size: size * 0.85, align: "right", colour: theme.soft });
      const bin = (width - label - 2) / BINS;
      surface.rect(label, y, BINS * bin, size * 0.9, theme.empty);
      for (let n = 0; n < BINS; n++) {
        const fill = touched.now.get(number * BINS + n);
        const before = touched.before.has(number * BINS + n);
        if (fill) surface.rect(label + n * bin, y, Math.max(bin, 1.5), size * 0.9, fill);
        else if (before) surface.rect(label + n * bin, y + size * 0.2, bin + 0.3, size * 0.5, mix(theme.soft, theme.page, 0.45));
      }
      if (touched.lined.has(number)) surface.card(label - 1, y - 1, BINS * bin + 2, size * 0.9 + 2, 2, null, theme.text, 1.5);
      const tip = () => `${array.name}: ${array.space} memory, ${array.nbytes.toLocaleString("en-US")} bytes`;
      this.spots.push({ x: 0, y: y - 2, w: width, h: size * 1.25, array: number, tip });
      y += size * 1.25;
    });
    const more = run.page.arrays.length - MOST_ARRAYS;
    if (more > 0) surface.text(`and ${more} more`, 0, y + size * 0.45, { size: size * 0.9, colour: theme.soft });
    return y + (more > 0 ? size * 1.2 : 0);
  }
}

/** @param {Surface} surface @param {string} text @param {number} top @param {number} size @param {number} width */
function heading(surface, text, top, size, width) {
  surface.text(text, 0, top + size * 0.6, { size, weight: 600, max: width });
}

/** A thread's cell: full when it acts, hatched when it waits, a dash when it is done. @param {Surface} surface @param {string} state @param {string} kind @param {number} x @param {number} y @param {number} w @param {number} h @param {Theme} theme */
function drawThread(surface, state, kind, x, y, w, h, theme) {
  if (state === "active") return surface.rect(x, y, w, h, LOOKS[kind].fill);
  if (state === "waiting") {
    surface.rect(x, y, w, h, LOOKS.barrier.fill);
    for (const shift of [0.25, 0.75]) surface.line(x + w * shift - w / 4, y + h, x + w * shift + w / 4, y, "#00000066", 1.2);
  } else if (state === "idle") surface.rect(x, y, w, h, mix(theme.line, theme.page, 0.35));
  else surface.line(x + w * 0.25, y + h / 2, x + w * 0.75, y + h / 2, theme.soft, 1.2);
}

/** @param {XRayRun} run @param {number} thread @param {number} tick */
function threadTip(run, thread, tick) {
  const { page } = run;
  const start = `thread ${indexOf(thread, page.block)}, lane ${thread % WARP} of warp ${Math.floor(thread / WARP)}`;
  const found = page.findings.filter((finding) => finding.threads.includes(thread)).map((finding) => `\n${finding.kind}, line ${finding.line}`);
  const state = run.stateOf(thread, tick);
  const step = run.at(tick, Math.floor(thread / WARP));
  const mine = step?.lanes.find(({ lane }) => lane === thread % WARP);
  if (!step || !mine || step.array < 0) return `${start}: ${state}${found.join("")}`;
  const { name } = page.arrays[step.array];
  return `${start}\n${step.kind} ${name} at byte ${mine.offset.toLocaleString("en-US")}, ${step.size} bytes, line ${page.lines[step.line].number}${found.join("")}`;
}

/** @param {number[]} lanes */
function lanesText(lanes) {
  const all = [...new Set(lanes)].sort((a, b) => a - b);
  const run = all.length > 2 && all[all.length - 1] - all[0] === all.length - 1;
  if (run) return `lanes ${all[0]} to ${all[all.length - 1]}`;
  return `${all.length === 1 ? "lane" : "lanes"} ${all.slice(0, 6).join(", ")}${all.length > 6 ? ", ..." : ""}`;
}

/** @param {number} count */
function bytes(count) {
  const power = count < 1024 ? 0 : count < 1024 ** 2 ? 1 : 2;
  const value = count / 1024 ** power;
  return `${value >= 100 || Number.isInteger(value) ? Math.round(value) : value.toFixed(1)} ${["B", "KiB", "MiB"][power]}`;
}

/** Bins of the arrays touched in this step and before, and arrays that lines touch. @param {XRayRun} run @param {number} tick @param {Set<number>} lines */
function touches(run, tick, lines) {
  /** @type {Map<number, string>} */
  const now = new Map();
  const before = new Set();
  const lined = new Set();
  const end = run.firstOf[tick + 1] ?? run.page.steps;
  for (let i = 0; i < run.page.steps; i++) {
    const array = run.array[i] | 0;
    if (array < 0) continue;
    if (lines.has(run.line[i])) lined.add(array);
    if (i >= end || array >= MOST_ARRAYS) continue;
    const { nbytes } = run.page.arrays[array];
    for (let at = run.begins[i]; at < run.begins[i + 1]; at++) {
      const bin = array * BINS + Math.min(BINS - 1, Math.floor((run.offsets[at] / nbytes) * BINS));
      if (run.tick[i] === tick) now.set(bin, LOOKS[run.step(i).kind].fill);
      else before.add(bin);
    }
  }
  return { now, before, lined };
}
