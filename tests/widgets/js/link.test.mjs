import assert from "node:assert/strict";
import test from "node:test";

import { KIND } from "../../../tinyvllm_lab/widgets/static/events.js";
import { clockAt, counterpart, link, stepAt } from "../../../tinyvllm_lab/widgets/static/link.js";
import { Store } from "../../../tinyvllm_lab/widgets/static/page.js";
import { Run } from "../../../tinyvllm_lab/widgets/static/replayer.js";

/** A run whose steps begin at these times. */
function runOf(clocks, firstStep = 0) {
  const events = clocks.flatMap((clock) => [[KIND.STEP, 0, 0, clock], [KIND.STEP_END, clock + 1, 1, 1]]);
  return new Run({ config: {}, first_step: firstStep }, Float64Array.from(events.flat()));
}

/** A run whose requests have these names, in the order in which they came. */
function runWith(...names) {
  const run = runOf([0, 10]);
  run.requests = Object.fromEntries(names.map((id, number) => [number, id === null ? {} : { id }]));
  return run;
}

const storeWith = (run, step = 0) => {
  const store = new Store();
  if (run) store.setRun(run, step);
  return store;
};

const linkedStores = (a, b) => {
  const stores = [storeWith(a), storeWith(b)];
  const ended = new AbortController();
  link(...stores, ended.signal);
  return [...stores, ended];
};

test("the last step that had begun by then, from each run's first step on", () => {
  const run = runOf([100, 110, 110, 150], 7);
  assert.deepEqual([7, 8, 9, 10].map((step) => clockAt(run, step)), [0, 10, 10, 50]);
  const times = [-5, 0, 9, 10, 49, 50, 1e9];
  assert.deepEqual(times.map((time) => stepAt(run, time)), [7, 7, 7, 9, 9, 10, 10]);
  assert.equal(stepAt(runOf([]), 10), 0);
  assert.equal(clockAt(runOf([]), 0), 0);
});

test("seeking one moves the other, in both directions", () => {
  const [fast, slow] = linkedStores(runOf([0, 10, 20, 30]), runOf([1000, 1025, 1050]));
  fast.seek(3);
  assert.equal(slow.step, 1);
  slow.seek(2);
  assert.equal(fast.step, 3);
  slow.seek(0);
  assert.equal(fast.step, 0);
  fast.seek(2);
  assert.deepEqual([fast.step, slow.step], [2, 0], "the one that was moved does not move back");
});

test("the state of each run is its own", () => {
  const runs = [runOf([0, 10]), runOf([0, 5, 10])];
  const alone = runs.map((run) => JSON.stringify(run.at(1).toDict()));
  linkedStores(...runs)[0].seek(1);
  assert.deepEqual(runs.map((run) => JSON.stringify(run.at(1).toDict())), alone);
});

test("only one plays, and the other comes along", () => {
  let frame = () => {};
  globalThis.requestAnimationFrame = (callback) => ((frame = callback), 1);
  const [leader, follower] = linkedStores(runOf([0, 10, 20, 30]), runOf([0, 15, 30]));
  leader.speed = 1000;
  leader.play();
  frame(leader.lastFrame + 2);
  assert.deepEqual([leader.step, follower.step], [2, 1]);
  assert.deepEqual([leader.playing, follower.playing], [true, false]);
  follower.seek(0);
  assert.deepEqual([leader.step, leader.playing], [0, false]);
});

test("a run that comes later is aligned to the leader", () => {
  const leader = storeWith(runOf([0, 10, 20]));
  const follower = storeWith(null);
  link(leader, follower, new AbortController().signal);
  leader.seek(2);
  follower.setRun(runOf([0, 5, 10, 40]), 0);
  assert.equal(follower.step, 2);
});

test("a run that shows the newest step of a live engine stays there", () => {
  const [leader, follower] = linkedStores(runOf([0, 10]), runOf([0, 10]));
  follower.isLive = follower.follows = true;
  follower.setRun(runOf([0, 10, 20]), 0);
  assert.deepEqual([leader.step, follower.step], [0, 2]);
});

test("the link ends with its panel, a newer one stays", () => {
  const [a, b, ended] = linkedStores(runOf([0, 10]), runOf([0, 10]));
  const newer = new AbortController();
  link(a, b, newer.signal);
  ended.abort();
  a.seek(1);
  assert.equal(b.step, 1);
  newer.abort();
  a.seek(0);
  assert.equal(b.step, 1);
});

test("the same request of the other run: by its name, else by its number", () => {
  const [one, other] = [runWith("a", "b.0", "b.1", null), runWith("a", "b.1", "c", null)];
  assert.deepEqual([0, 1, 2, 3].map((r) => counterpart(one, other, r)), [0, null, 1, 3]);
  assert.deepEqual([0, 1, 2].map((r) => counterpart(other, one, r)), [0, 2, null]);
  assert.equal(counterpart(one, other, null), null);
  assert.equal(counterpart(runWith("a", "a"), runWith("a", "a"), 1), 1, "a name that came twice");
});

test("what is pointed at or selected in one stands out in the other", () => {
  const [leader, follower] = linkedStores(runWith("a", "b", "c"), runWith("c", "a"));
  let told = 0;
  leader.listen(() => (told += 1), new AbortController().signal);
  leader.point(0);
  assert.deepEqual([leader.hover, follower.hover], [0, 1]);
  leader.point(1);
  assert.deepEqual([leader.hover, follower.hover], [1, null], "it is not in the other run");
  leader.point(null);
  told = 0;
  follower.select(0);
  assert.deepEqual([leader.focus, follower.focus, told], [2, 0, 1]);
  leader.select(2);
  assert.deepEqual([leader.focus, follower.focus], [null, null]);
});
