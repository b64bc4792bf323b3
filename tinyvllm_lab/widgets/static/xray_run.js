// @ts-check
/** One x-ray in the browser: who does what in each step of a block. `xray_run.py` packs it. */

import { inflate } from "./trace.js";

export const WARP = 32;
export const SECTOR = 32; // bytes
export const BANKS = 32; // of 4 bytes each
export const KINDS = ["read", "write", "atomic", "barrier", "warp_op"];
const COLUMNS = 7;

/**
 * @typedef {{file: string, number: number, text: string, called_from: string[]}} Line
 * @typedef {{name: string, space: string, nbytes: number}} ArrayInfo
 * @typedef {{line: number, array: string, space: string, operation: string, access_bytes: number, requests: number, lanes: number, sectors: number, bytes_used: number, bank_conflicts: number, worst_bank_conflict: number}} Access
 * @typedef {{kind: string, message: string, file: string, line: number, other_line: number, tick: number, here: boolean, threads: number[]}} Finding
 * @typedef {{file: string, first: number, lines: string[]}} Excerpt
 * @typedef {{global_requests: number, global_bytes_asked: number, global_bytes_moved: number, shared_requests: number, bank_conflict_passes: number, barriers: number, warp_operations: number}} Totals
 */

/**
 * @typedef {object} Page what Python sends
 * @property {string} label
 * @property {string} kernel
 * @property {number[]} grid
 * @property {number[]} block
 * @property {number[]} logged
 * @property {number} shown linear number of the block whose steps are here
 * @property {Line[]} lines
 * @property {ArrayInfo[]} arrays
 * @property {Access[]} accesses
 * @property {[number, number][]} activity for each line: how often a warp came, lanes on average
 * @property {Totals} totals
 * @property {Finding[]} findings
 * @property {Excerpt[]} source
 * @property {number} ticks
 * @property {number[]} opens
 * @property {number[]} ends
 * @property {boolean} stuck
 * @property {number} left_out
 * @property {number} dropped
 * @property {number} start
 * @property {number} steps
 * @property {DataView | string} data
 */

/** @typedef {{lane: number, offset: number}} LaneAccess */
/** @typedef {{index: number, tick: number, warp: number, kind: string, line: number, array: number, size: number, lanes: LaneAccess[]}} Step */
/** @typedef {"active" | "idle" | "waiting" | "done"} ThreadState */

/** @param {number[]} size */
export const product = (size) => size.reduce((a, b) => a * b, 1);

/** The x, y, z of a linear number. @param {number} number @param {number[]} size */
export function indexOf(number, [x, y]) {
  return `(${number % x}, ${Math.floor(number / x) % y}, ${Math.floor(number / (x * y))})`;
}

export class XRayRun {
  /** @param {Page} page @param {Uint8Array} bytes its `data`, inflated */
  constructor(page, bytes) {
    this.page = page;
    this.threads = product(page.block);
    this.warps = Math.ceil(this.threads / WARP);
    const copy = bytes.slice().buffer; // aligned
    const column = (/** @type {number} */ n) => new Uint32Array(copy, n * page.steps * 4, page.steps);
    this.tick = column(0);
    this.warp = column(1);
    this.kind = column(2);
    this.line = column(3);
    this.array = column(4);
    this.size = column(5);
    this.mask = column(6);
    this.offsets = new Int32Array(copy, COLUMNS * page.steps * 4);
    for (let i = 1; i < this.offsets.length; i++) this.offsets[i] += this.offsets[i - 1];
    this.begins = new Uint32Array(page.steps + 1); // each step's first place in `offsets`
    this.firstOf = new Uint32Array(page.ticks + 1).fill(page.steps);
    /** @type {number[][]} each warp's steps at barriers */
    this.barriers = Array.from({ length: this.warps }, () => []);
    /** @type {Map<number, Set<string>>} */
    this.kinds = new Map();
    this.index();
  }

  /** @param {Page} page */
  static async of(page) {
    const data = page.data;
    const bytes = typeof data === "string"
      ? Uint8Array.from(atob(data), (char) => char.charCodeAt(0))
      : new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
    return new XRayRun(page, await inflate(bytes));
  }

  index() {
    const { steps } = this.page;
    for (let i = steps - 1; i >= 0; i--) this.firstOf[this.tick[i]] = i;
    for (let i = 0; i < steps; i++) {
      this.begins[i + 1] = this.begins[i] + bits(this.mask[i]);
      const kind = KINDS[this.kind[i]];
      if (kind === "barrier") this.barriers[this.warp[i]].push(i);
      this.kinds.set(this.line[i], this.kindsOf(this.line[i]).add(kind));
    }
  }

  /** What happens on a line. @param {number} line @returns {Set<string>} */
  kindsOf(line) {
    return this.kinds.get(line) ?? new Set();
  }

  /** Lines that touch an array. @param {number} array @returns {Set<number>} */
  linesOfArray(array) {
    const { name } = this.page.arrays[array];
    return new Set(this.page.accesses.filter((access) => access.array === name).map(({ line }) => line));
  }

  /** The next step of the block in which a warp comes to one of the lines; wraps round; null: none.
   * @param {Set<number>} lines @param {number} tick @returns {Step | null} */
  next(lines, tick) {
    const { steps } = this.page;
    const start = this.firstOf[Math.min(tick + 1, this.page.ticks)];
    for (let n = 0; n < steps; n++) {
      const i = (start + n) % steps;
      if (lines.has(this.line[i])) return this.step(i);
    }
    return null;
  }

  /** What a warp does in a step of the block; null: nothing. @param {number} tick @param {number} warp @returns {Step | null} */
  at(tick, warp) {
    const end = this.firstOf[tick + 1] ?? this.page.steps;
    for (let i = this.firstOf[tick]; i < end; i++) if (this.warp[i] === warp) return this.step(i);
    return null;
  }

  /** @param {number} index @returns {Step} */
  step(index) {
    /** @type {LaneAccess[]} */
    const lanes = [];
    let at = this.begins[index];
    for (let lane = 0; lane < WARP; lane++) {
      if ((this.mask[index] >>> lane) & 1) lanes.push({ lane, offset: this.offsets[at++] });
    }
    return {
      index, lanes, tick: this.tick[index], warp: this.warp[index], kind: KINDS[this.kind[index]],
      line: this.line[index], array: this.array[index] | 0, size: this.size[index],
    };
  }

  /** @param {number} thread @param {number} tick @returns {ThreadState} */
  stateOf(thread, tick) {
    const warp = Math.floor(thread / WARP);
    const arrived = this.arrival(warp, thread % WARP, tick);
    if (arrived >= 0 && !this.page.opens.some((open) => open > arrived && open <= tick)) return "waiting";
    if (this.page.ends[thread] < tick) return "done";
    const end = this.firstOf[tick + 1] ?? this.page.steps;
    for (let i = this.firstOf[tick]; i < end; i++) {
      if (this.warp[i] === warp) return (this.mask[i] >>> (thread % WARP)) & 1 ? "active" : "idle";
    }
    return "idle";
  }

  /** When a lane last came to a barrier; -1: it did not yet. @param {number} warp @param {number} lane @param {number} tick */
  arrival(warp, lane, tick) {
    const list = this.barriers[warp];
    for (let n = list.length - 1; n >= 0; n--) {
      const i = list[n];
      if (this.tick[i] <= tick && (this.mask[i] >>> lane) & 1) return this.tick[i];
    }
    return -1;
  }

  /** How many threads are in each state. @param {number} tick */
  count(tick) {
    const found = { active: 0, idle: 0, waiting: 0, done: 0 };
    for (let thread = 0; thread < this.threads; thread++) found[this.stateOf(thread, tick)] += 1;
    return found;
  }

  /** @param {Step} step */
  spaceOf(step) {
    return step.array < 0 ? "" : this.page.arrays[step.array].space;
  }
}

/** @param {number} mask */
function bits(mask) {
  let count = 0;
  for (let rest = mask; rest; rest = (rest & (rest - 1)) >>> 0) count += 1;
  return count;
}

/** Sectors of global memory that a step touches, with the lanes at each of their 4-byte words.
 * @param {Step} step @returns {{sector: number, used: number, words: number[][]}[]} */
export function sectorsOf(step) {
  /** @type {Map<number, {sector: number, bytes: Set<number>, words: number[][]}>} */
  const found = new Map();
  for (const { lane, offset } of step.lanes) {
    for (let byte = offset; byte < offset + step.size; byte++) {
      const number = Math.floor(byte / SECTOR);
      let one = found.get(number);
      if (!one) found.set(number, (one = { sector: number, bytes: new Set(), words: Array.from({ length: 8 }, () => []) }));
      one.bytes.add(byte);
      const word = one.words[(byte - number * SECTOR) >> 2];
      if (!word.includes(lane)) word.push(lane);
    }
  }
  return [...found.values()].sort((a, b) => a.sector - b.sector)
    .map(({ sector, bytes, words }) => ({ sector, used: bytes.size, words }));
}

/** What the banks of shared memory must deliver: in each turn, the words that each bank holds.
 * With 8 or 16 bytes a lane, half or a quarter of the warp goes at a time.
 * @param {Step} step @returns {{banks: Map<number, Map<number, number[]>>, depth: number}[]} */
export function turnsOf(step) {
  const atOnce = (WARP * 4) / Math.max(4, step.size);
  /** @type {Map<number, Map<number, Map<number, number[]>>>} */
  const turns = new Map();
  for (const { lane, offset } of step.lanes) {
    const number = Math.floor(lane / atOnce);
    const banks = turns.get(number) ?? new Map();
    turns.set(number, banks);
    for (let word = offset >> 2; word < (offset + step.size) / 4; word++) {
      const words = banks.get(word % BANKS) ?? new Map();
      banks.set(word % BANKS, words);
      words.set(word, [...(words.get(word) ?? []), lane]);
    }
  }
  return [...turns].sort((a, b) => a[0] - b[0]).map(([, banks]) => (
    { banks, depth: Math.max(...[...banks.values()].map((words) => words.size)) }
  ));
}

/** Passes that the banks take; 1 is free of conflicts. @param {Step} step */
export function passesOf(step) {
  const turns = turnsOf(step);
  return turns.reduce((sum, { depth }) => sum + depth, 0) - turns.length + 1;
}

/** @param {number} value */
const count = (value) => value.toLocaleString("en-US");
/** @param {number} n @param {string} word */
export const times = (n, word) => `${count(n)} ${word}${n === 1 ? "" : word.endsWith("s") ? "es" : "s"}`;

/** A share in percent, halves to the even number, as Python prints them. @param {number} share */
function percent(share) {
  const value = 100 * share;
  const near = Math.round(value);
  return near - value === 0.5 && near % 2 ? near - 1 : near;
}

/** What a warp does, as a sentence. @param {XRayRun} run @param {number} warp @param {number} tick */
export function sentence(run, warp, tick) {
  const step = run.at(tick, warp);
  if (step === null) {
    const threads = Array.from({ length: Math.min(WARP, run.threads - warp * WARP) }, (_, n) => warp * WARP + n);
    const states = new Set(threads.map((thread) => run.stateOf(thread, tick)));
    if (states.has("waiting")) return `Warp ${warp} waits at the barrier.`;
    return states.has("idle") ? `Warp ${warp} rests.` : `Warp ${warp} is done.`;
  }
  const lanes = times(step.lanes.length, "lane");
  const line = run.page.lines[step.line].number;
  if (step.kind === "barrier") return `Warp ${warp}, line ${line}: ${lanes} at the barrier.`;
  if (step.kind === "warp_op") return `Warp ${warp}, line ${line}: ${lanes} in a warp operation.`;
  const does = `Warp ${warp}, line ${line}: ${lanes} ${VERB[step.kind]}${step.lanes.length === 1 ? "s" : ""}`;
  if (step.array < 0) return `${does} outside of all arrays.`;
  const array = run.page.arrays[step.array];
  const start = `${does} ${array.name}`;
  if (array.space === "shared") return `${start}, ${times(passesOf(step), "pass")} of the banks.`;
  const sectors = sectorsOf(step);
  const used = sectors.reduce((sum, { used: bytes }) => sum + bytes, 0);
  return `${start}: ${times(sectors.length, "sector")}, ${percent(used / (SECTOR * sectors.length))} % used.`;
}

/** @type {Record<string, string>} */
const VERB = { read: "read", write: "write", atomic: "update" };

/** The cost of an access in a few words. @param {Access} access */
export function costOf(access) {
  const number = (/** @type {number} */ v) => (Number.isInteger(v) ? `${v}` : v.toFixed(1));
  if (access.space === "shared") return `${number(access.bank_conflicts)} pass${access.bank_conflicts === 1 ? "" : "es"}`;
  return `${number(access.sectors)} sect · ${percent(access.bytes_used)}%`;
}

/** 1: no byte and no pass more than needed; towards 0: waste. @param {Access} access */
export function worthOf({ space, bank_conflicts: passes, bytes_used: used, sectors }) {
  return space === "shared" ? 1 / passes : Math.max(1, used * sectors) / sectors;
}
