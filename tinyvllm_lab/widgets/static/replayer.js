// @ts-check
/**
 * `Run`: the events of one run in the browser, and the engine's state at any step of it.
 *
 * It keeps a copy of the state every few thousand events, and one state that moves forwards. A jump
 * back starts from the copy before; so a step in either direction costs a few milliseconds at most.
 */

import { KIND } from "./events.js";
import { Series } from "./series.js";
import { EngineState } from "./state.js";
import { WIDTH } from "./trace.js";

const KEYFRAME_EVENTS = 8192;

/** @typedef {{id: string, kind?: string, prompt?: string, arrival_us?: number, priority?: number}} RequestInfo */

export class Run {
  /**
   * @param {Record<string, any>} header as in the stored run
   * @param {Float64Array} rows four numbers an event
   */
  constructor(header, rows) {
    this.config = header.config ?? {};
    this.info = header.info ?? {};
    /** @type {any[]} */
    this.knobValues = header.knob_values ?? [];
    /** @type {Record<string, RequestInfo>} */
    this.requests = header.requests ?? {};
    /** @type {Record<string, string>} token id -> text */
    this.texts = header.texts ?? {};
    this.firstEvent = header.first_event ?? 0;
    this.firstStep = header.first_step ?? 0;
    this.rows = new Float64Array(0);
    this.count = 0; // events that are kept
    /** @type {number[]} event (counted from firstEvent) with which each step begins */
    this.stepStarts = [];
    this.oldest = header.state ? EngineState.fromDict(header.state) : new EngineState();
    this.keyframes = [this.oldest];
    this.cursor = this.oldest.copy();
    this.series = new Series(this, this.oldest);
    this.append(rows);
  }

  get numSteps() {
    return this.firstStep + this.stepStarts.length;
  }

  get lastStep() {
    return this.numSteps - 1;
  }

  /** @param {Float64Array} rows more events, four numbers each */
  append(rows) {
    const start = this.count * WIDTH;
    if (start + rows.length > this.rows.length) {
      const grown = new Float64Array(Math.max(2 * this.rows.length, start + rows.length));
      grown.set(this.rows.subarray(0, start));
      this.rows = grown;
    }
    this.rows.set(rows, start);
    for (let at = start; at < start + rows.length; at += WIDTH) {
      if (this.rows[at] === KIND.STEP) this.stepStarts.push(at / WIDTH);
      this.series.add(this.rows[at], this.rows[at + 1], this.rows[at + 2], this.rows[at + 3]);
    }
    this.count += rows.length / WIDTH;
  }

  /** The first and the last event of a step, counted from `firstEvent`; the last is excluded.
   * @param {number} step @returns {[number, number]} */
  stepRange(step) {
    const place = step - this.firstStep;
    const start = place === 0 ? 0 : (this.stepStarts[place] ?? this.count);
    return [start, this.stepStarts[place + 1] ?? this.count];
  }

  /** The events of a step. @param {number} step @returns {number[][]} [kind, a, b, c] each */
  eventsOf(step) {
    const [start, stop] = this.stepRange(step);
    const events = [];
    for (let at = start; at < stop; at++) {
      events.push([...this.rows.subarray(at * WIDTH, (at + 1) * WIDTH)]);
    }
    return events;
  }

  /** The first integers of the events of a kind in a step. @param {number} step @param {number} kind @returns {number[]} */
  firstsOf(step, kind) {
    const [start, stop] = this.stepRange(step);
    const found = [];
    for (let at = start * WIDTH; at < stop * WIDTH; at += WIDTH) {
      if (this.rows[at] === kind) found.push(this.rows[at + 1]);
    }
    return found;
  }

  /**
   * The state after all events of a step. It moves with the next call: copy it to keep it.
   * @param {number} step `firstStep - 1` is the state before the run
   * @returns {EngineState}
   */
  at(step) {
    const stop = step < this.firstStep ? 0 : this.stepRange(Math.min(step, this.lastStep))[1];
    const position = this.firstEvent + stop;
    const frame = this.keyframeBefore(position);
    if (this.cursor.position > position || this.cursor.position < frame.position) {
      this.cursor = frame.copy();
    }
    this.forward(position);
    return this.cursor;
  }

  /** @param {number} position @returns {EngineState} */
  keyframeBefore(position) {
    let low = 0;
    let high = this.keyframes.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.keyframes[middle].position <= position) low = middle;
      else high = middle - 1;
    }
    return this.keyframes[low];
  }

  /** @param {number} position */
  forward(position) {
    const { cursor, rows, firstEvent } = this;
    while (cursor.position < position) {
      const at = (cursor.position - firstEvent) * WIDTH;
      cursor.apply(rows[at], rows[at + 1], rows[at + 2], rows[at + 3]);
      const last = /** @type {EngineState} */ (this.keyframes.at(-1));
      if (cursor.position - last.position >= spacing(cursor)) this.keyframes.push(cursor.copy());
    }
  }
}

/** Events between two keyframes: a big state is copied less often. @param {EngineState} state */
function spacing(state) {
  const size = state.requests.size + state.refCounts.size + state.cached.size;
  return Math.max(KEYFRAME_EVENTS, 2 * size);
}
