// @ts-check
/** Numbers and steps in words, for captions, tips and screen readers. */

import { KIND, PHASE_WORDS, REASON_WORDS } from "./events.js";

/** @typedef {import("./replayer.js").Run} Run */
/** @typedef {import("./state.js").EngineState} EngineState */

const NUMBERS = new Intl.NumberFormat("en-US");

/** @param {number} value */
export const count = (value) => NUMBERS.format(value);

/** @param {number} value @param {string} one @param {string} [many] */
export function plural(value, one, many = `${one}s`) {
  return `${count(value)} ${value === 1 ? one : many}`;
}

/** @param {number} us microseconds */
export function duration(us) {
  if (!Number.isFinite(us)) return "–";
  if (us < 1000) return `${Math.round(us)} µs`;
  if (us < 1e6) return `${(us / 1000).toFixed(us < 1e4 ? 1 : 0)} ms`;
  return `${(us / 1e6).toFixed(us < 1e7 ? 2 : 1)} s`;
}

/** Blocks that requests can hold: all but the null block; contiguous: token slots. @param {Run} run */
export function capacityOf(run) {
  const { num_blocks: blocks, block_size: size, allocator } = run.config;
  if (!blocks) return 0;
  return allocator && allocator !== "paged" ? (blocks - 1) * size : blocks - 1;
}

/** @param {Run} run */
export function unitOf(run) {
  return (run.config.allocator ?? "paged") === "paged" ? "block" : "token slot";
}

/** KV memory in use after a step. @param {Run} run @param {EngineState} state */
export function usedOf(run, state) {
  if (unitOf(run) === "block") return state.refCounts.size;
  let used = 0;
  for (const record of state.requests.values()) used += record.region ? record.region[1] : 0;
  return used;
}

/** Name of a request as the panels write it. @param {Run} run @param {number} request */
export function nameOf(run, request) {
  const known = run.requests[request]?.id;
  return known === undefined || known === String(request) ? `#${request}` : `#${request} ${known}`;
}

/** Seats: the knob's value at this step, or what the run needed. @param {Run} run @param {EngineState} state */
export function seatsOf(run, state) {
  let seats = run.config.max_num_seqs ?? run.series.mostSlots;
  for (const [knob, value] of state.knobs) {
    if (run.knobValues[knob] === "max_num_seqs") seats = run.knobValues[value];
  }
  let taken = 0;
  for (const slot of state.slots.keys()) taken = Math.max(taken, slot + 1);
  return Math.max(seats, taken);
}

/** Where the run's times come from. @param {Run} run @returns {[string, string]} a word and a sentence */
export function sourceOf(run) {
  const { info } = run;
  if (info.time === "simulated") {
    const on = info.hardware ? ` of ${info.model} on ${info.hardware}` : "";
    return ["simulated", `Decisions and memory are the engine's; times come from a cost model${on}.`];
  }
  if (info.time === "drawn") return ["drawn", "Drawn by hand to explain; no engine ran."];
  const machine = info.machine ?? "this machine";
  return ["measured", `Every step and time is what the engine did on ${machine}.`];
}

/** @param {Run} run @param {number} step */
export function phasesOf(run, step) {
  const row = run.series.row(step);
  const values = [run.series.prefill, run.series.decode, run.series.recompute];
  return values.map((column) => column.values[row] ?? 0);
}

/** What a step did, in a sentence or two. @param {Run} run @param {number} step @param {EngineState} state after it */
export function describeStep(run, step, state) {
  if (run.numSteps === 0) return "No step yet.";
  const parts = phasesOf(run, step)
    .map((tokens, phase) => (tokens ? plural(tokens, `${PHASE_WORDS[phase]} token`) : ""))
    .filter(Boolean);
  const news = newsOf(run, step);
  const used = `${count(usedOf(run, state))} of ${plural(capacityOf(run), unitOf(run))} used`;
  const queue = `${count(state.queue.size)} waiting, ${count(state.slots.size)} running`;
  return `Step ${step}: ${[...parts, ...news].join("; ") || "nothing to compute"}. ${used}, ${queue}.`;
}

/** Arrivals, departures and losses of a step. @param {Run} run @param {number} step */
function newsOf(run, step) {
  /** @type {Map<number, string[]>} */
  const who = new Map();
  let evicted = 0;
  for (const [kind, a, b] of run.eventsOf(step)) {
    if (kind === KIND.BLOCK_EVICT) evicted += 1;
    if (!(kind in NEWS)) continue;
    const text = kind === KIND.FINISH ? `#${a} (${REASON_WORDS[b] ?? b})` : `#${a}`;
    who.set(kind, [...(who.get(kind) ?? []), text]);
  }
  const news = [...who].map(([kind, names]) => `${NEWS[kind]} ${listed(names)}`);
  return evicted ? [...news, `${plural(evicted, "cached block")} evicted`] : news;
}

/** @param {string[]} names */
function listed(names) {
  return names.length > 4 ? `${names.slice(0, 3).join(", ")} and ${names.length - 3} more` : names.join(", ");
}

/** @type {Record<number, string>} */
const NEWS = {
  [KIND.SUBMIT]: "arrived", [KIND.ADMIT]: "seated", [KIND.RESUME]: "seated again",
  [KIND.PREEMPT]: "preempted", [KIND.FINISH]: "finished", [KIND.REJECT]: "refused",
};
