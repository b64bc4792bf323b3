// @ts-check
/**
 * Two runs of one workload that show the same moment: seeking one moves the other to the last step
 * that had begun by then. Clocks count from each run's first step; `comparison.py` does the same for
 * the stills. A request that stands out in one stands out in the other, too.
 */

import { clamp } from "./page.js";

/** @typedef {import("./replayer.js").Run} Run */
/** @typedef {import("./page.js").Store} Store */

/** When a step began. @param {Run} run @param {number} step @returns {number} µs of engine clock since the first step */
export function clockAt({ series }, step) {
  const { clock } = series;
  if (clock.length === 0) return 0;
  return clock.values[clamp(series.row(step), 0, clock.length - 1)] - clock.values[0];
}

/** The last step that had begun by then; before the first one: the first. @param {Run} run @param {number} time µs since the first step */
export function stepAt({ series, firstStep }, time) {
  const { values, length } = series.clock;
  let low = 0;
  let high = length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (values[middle] - values[0] <= time) low = middle;
    else high = middle - 1;
  }
  return firstStep + low;
}

/** The same request of the other run: the one with its name; where requests have none, its number.
 * @param {Run} run @param {Run} other @param {number | null} request @returns {number | null} */
export function counterpart(run, other, request) {
  if (request === null) return null;
  const name = run.requests[request]?.id;
  if (name === undefined) return request;
  const same = other.requests[request]?.id === name; // requests that came in the same order
  const found = same ? request : Object.keys(other.requests).find((r) => other.requests[r].id === name);
  return found === undefined ? null : Number(found);
}

export class Link {
  /** @param {Store} leader has the controls @param {Store} follower */
  constructor(leader, follower) {
    this.leader = leader;
    this.follower = follower;
  }

  /** The other one goes where this one is. @param {Store} store */
  bring(store) {
    const other = store === this.leader ? this.follower : this.leader;
    if (store.run && other.run) other.moveTo(stepAt(other.run, clockAt(store.run, store.step)));
  }

  /** What stands out here stands out there. @param {Store} store */
  mark(store) {
    const other = store === this.leader ? this.follower : this.leader;
    if (!store.run || !other.run) return;
    other.hover = counterpart(store.run, other.run, store.hover);
    other.selected = counterpart(store.run, other.run, store.selected);
    other.tell("mark");
  }

  /** A run has come: the follower goes where the leader is, unless one shows the newest step. */
  align() {
    if (!this.leader.follows && !this.follower.follows) this.bring(this.leader);
  }
}

/** Link two runs for as long as the signal is not aborted. @param {Store} leader @param {Store} follower @param {AbortSignal} signal */
export function link(leader, follower, signal) {
  const made = new Link(leader, follower);
  leader.link = follower.link = made;
  made.align();
  signal.addEventListener("abort", () => {
    for (const store of [leader, follower]) if (store.link === made) store.link = null;
  });
}
