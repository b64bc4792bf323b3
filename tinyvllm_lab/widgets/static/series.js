// @ts-check
/**
 * `Series`: what the panels draw over time, collected once as the events come.
 *
 * Everything is appended in the order of the steps, so that the past of any step is a prefix.
 */

import { KIND, PHASE } from "./events.js";

/** @typedef {import("./state.js").EngineState} EngineState */
/** @typedef {{request: number, start: number, end: number}} Stay a request in a seat, steps start..end-1 */
/** @typedef {{request: number, phase: number, start: number, end: number}} Work the same phase in steps start..end-1 */
/** @typedef {{step: number, request: number, slot: number, kind: number, reason: number}} Mark */
/** @typedef {{ids: number[], steps: number[]}} Tokens */
/** @typedef {{arrival: number, first: number, last: number, output: number}} Times in µs of engine clock; NaN: not yet or unknown */
/** @typedef {{step: number, value: number}} Sample a duration in µs and the step in which it was known */

/** One number a step, growing. */
export class Column {
  constructor() {
    this.values = new Float64Array(1024);
    this.length = 0;
  }

  /** @param {number} value */
  push(value) {
    if (this.length === this.values.length) {
      const grown = new Float64Array(2 * this.length);
      grown.set(this.values);
      this.values = grown;
    }
    this.values[this.length++] = value;
  }

  /** @param {number} amount to the last value */
  add(amount) {
    this.values[this.length - 1] += amount;
  }

  /** @param {number} value instead of the last one */
  set(value) {
    this.values[this.length - 1] = value;
  }
}

const COLUMNS = /** @type {const} */ ([
  "waiting", "used", "clock", "clockEnd", "scheduleUs", "executeUs",
  "prefill", "decode", "recompute", "running", "outputs",
]);

export class Series {
  /**
   * @param {{firstStep: number, requests: Record<string, any>}} run
   * @param {EngineState} oldest the state before the first event
   */
  constructor(run, oldest) {
    this.run = run;
    this.step = run.firstStep - 1;
    this.waiting = new Column();
    this.used = new Column();
    this.clock = new Column();
    this.clockEnd = new Column();
    this.scheduleUs = new Column();
    this.executeUs = new Column();
    this.prefill = new Column();
    this.decode = new Column();
    this.recompute = new Column();
    this.running = new Column();
    this.outputs = new Column();
    this.outputsSoFar = new Column(); // tokens up to the end of the step
    /** @type {Map<number, Stay[]>} seat -> stays, in order */
    this.stays = new Map();
    /** @type {Map<number, Work[]>} seat -> work, in order */
    this.work = new Map();
    /** @type {Map<number, number>} request -> seat, now */
    this.seatOf = new Map();
    /** @type {Map<number, Tokens>} */
    this.tokens = new Map();
    /** @type {Map<number, Times>} */
    this.times = new Map();
    /** @type {Sample[]} time to first token, in the order of the steps */
    this.ttft = [];
    /** @type {Sample[]} time per further token of requests that have ended */
    this.tpot = [];
    /** @type {Mark[]} preemptions and ends, in order */
    this.marks = [];
    /** @type {{preempt: number[], evict: number[], finish: number[]}} steps that have one */
    this.jumps = { preempt: [], evict: [], finish: [] };
    /** @type {Times[]} requests with a token in this step, whose time is known at its end */
    this.fresh = [];
    /** @type {Times[]} requests that end in this step */
    this.ending = [];
    this.mostSlots = 0;
    for (const [slot, request] of oldest.slots) this.sit(request, slot);
  }

  /** @param {number} kind @param {number} a @param {number} b @param {number} c */
  add(kind, a, b, c) {
    const handler = HANDLERS[kind];
    if (handler !== undefined) handler(this, a, b, c);
  }

  /** Number of the step in the columns. @param {number} step */
  row(step) {
    return step - this.run.firstStep;
  }

  /** @param {number} request @param {number} slot */
  sit(request, slot) {
    this.seatOf.set(request, slot);
    if (slot + 1 > this.mostSlots) this.mostSlots = slot + 1;
    const stays = listOf(this.stays, slot);
    stays.push({ request, start: Math.max(this.step, this.run.firstStep), end: Infinity });
  }

  /** @param {number} request @param {number} slot */
  stand(request, slot) {
    this.seatOf.delete(request);
    const stay = this.stays.get(slot)?.at(-1);
    if (stay !== undefined && stay.request === request) stay.end = this.step + 1;
  }

  /** @param {number} request @param {number} phase */
  works(request, phase) {
    const slot = this.seatOf.get(request);
    if (slot === undefined) return;
    const work = listOf(this.work, slot);
    const last = work.at(-1);
    const goesOn = last && last.request === request && last.phase === phase;
    if (last && goesOn && last.end === this.step) last.end = this.step + 1;
    else work.push({ request, phase, start: this.step, end: this.step + 1 });
  }

  /** @param {number} request @returns {Times} */
  timesOf(request) {
    let times = this.times.get(request);
    if (times === undefined) {
      times = { arrival: NaN, first: NaN, last: NaN, output: 0 };
      this.times.set(request, times);
    }
    return times;
  }

  /** @param {"preempt" | "evict" | "finish"} what */
  jump(what) {
    const steps = this.jumps[what];
    if (steps.at(-1) !== this.step) steps.push(this.step);
  }
}

/** @template T @param {Map<number, T[]>} map @param {number} key @returns {T[]} */
function listOf(map, key) {
  let list = map.get(key);
  if (list === undefined) map.set(key, (list = []));
  return list;
}

/** @typedef {(series: Series, a: number, b: number, c: number) => void} Handler */

/** @type {Handler} */
function onStep(series, waiting, used, clock) {
  series.step += 1;
  for (const name of COLUMNS) series[name].push(0);
  const { outputsSoFar } = series;
  outputsSoFar.push(outputsSoFar.length ? outputsSoFar.values[outputsSoFar.length - 1] : 0);
  series.waiting.set(waiting);
  series.used.set(used);
  series.clock.set(clock);
  series.clockEnd.set(clock);
}

/** @type {Handler} */
function onStepEnd(series, clock, scheduleUs, executeUs) {
  series.clockEnd.set(clock);
  series.scheduleUs.set(scheduleUs);
  series.executeUs.set(executeUs);
  const { step } = series;
  for (const times of series.fresh) {
    times.last = clock;
    if (!Number.isNaN(times.first)) continue;
    times.first = clock;
    if (!Number.isNaN(times.arrival)) series.ttft.push({ step, value: clock - times.arrival });
  }
  series.fresh.length = 0;
  for (const { first, last, output } of series.ending) {
    if (output > 1) series.tpot.push({ step, value: (last - first) / (output - 1) });
  }
  series.ending.length = 0;
}

/** @type {Handler} */
function onSubmit(series, request) {
  const known = series.run.requests[request]?.arrival_us;
  const clock = series.clock.values[Math.max(series.clock.length - 1, 0)];
  series.timesOf(request).arrival = known ?? clock;
}

/** @type {Handler} */
function onScheduled(series, request, tokens, phase) {
  const name = phase === PHASE.DECODE ? "decode" : phase === PHASE.PREFILL ? "prefill" : "recompute";
  series[name].add(tokens);
  series.running.add(1);
  series.works(request, phase);
}

/** @type {Handler} */
function onToken(series, request, tokenId, numOutput) {
  let tokens = series.tokens.get(request);
  if (tokens === undefined) series.tokens.set(request, (tokens = { ids: [], steps: [] }));
  tokens.ids.push(tokenId);
  tokens.steps.push(series.step);
  const times = series.timesOf(request);
  times.output = numOutput;
  series.outputs.add(1);
  series.outputsSoFar.add(1);
  series.fresh.push(times);
}

/** @type {Handler} */
function onPreempt(series, request, slot) {
  series.stand(request, slot);
  series.marks.push({ step: series.step, request, slot, kind: KIND.PREEMPT, reason: -1 });
  series.jump("preempt");
}

/** @type {Handler} */
function onFinish(series, request, reason, slot) {
  series.stand(request, slot);
  series.marks.push({ step: series.step, request, slot, kind: KIND.FINISH, reason });
  series.ending.push(series.timesOf(request));
  series.jump("finish");
}

/** @type {Record<number, Handler>} */
const HANDLERS = {
  [KIND.STEP]: onStep,
  [KIND.STEP_END]: onStepEnd,
  [KIND.SUBMIT]: onSubmit,
  [KIND.ADMIT]: (series, request, slot) => series.sit(request, slot),
  [KIND.RESUME]: (series, request, slot) => series.sit(request, slot),
  [KIND.FORK]: (series, _parent, child, slot) => { if (slot >= 0) series.sit(child, slot); },
  [KIND.SCHEDULED]: onScheduled,
  [KIND.TOKEN]: onToken,
  [KIND.PREEMPT]: onPreempt,
  [KIND.FINISH]: onFinish,
  [KIND.BLOCK_EVICT]: (series) => series.jump("evict"),
};

/** How many of the ascending numbers are < value. @param {ArrayLike<number>} numbers @param {number} value @param {number} length */
export function countBelow(numbers, value, length) {
  let low = 0;
  let high = length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (numbers[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** How many of the ascending numbers are <= value. @param {ArrayLike<number>} numbers @param {number} value @param {number} [length] */
export function countUpTo(numbers, value, length = numbers.length) {
  let low = 0;
  let high = length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (numbers[middle] <= value) low = middle + 1;
    else high = middle;
  }
  return low;
}
