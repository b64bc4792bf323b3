import assert from "node:assert/strict";
import test from "node:test";

import { KIND } from "../../../tinyvllm_lab/widgets/static/events.js";
import { Store } from "../../../tinyvllm_lab/widgets/static/page.js";
import { Run } from "../../../tinyvllm_lab/widgets/static/replayer.js";
import { countBelow, countUpTo } from "../../../tinyvllm_lab/widgets/static/series.js";
import { decodeEvents, readVarints } from "../../../tinyvllm_lab/widgets/static/trace.js";
import { describeStep, duration } from "../../../tinyvllm_lab/widgets/static/words.js";

const CONFIG = { num_blocks: 9, block_size: 4, max_num_seqs: 2, max_num_batched_tokens: 8 };

/** Two requests; the second is preempted in step 2 and comes back in step 3. */
const EVENTS = [
  [KIND.STEP, 0, 0, 1000], [KIND.SUBMIT, 0, 4, 2], [KIND.SUBMIT, 1, 3, 5],
  [KIND.BLOCK_ALLOC, 1, 0, 0], [KIND.ADMIT, 0, 0, 0], [KIND.SCHEDULED, 0, 4, 0],
  [KIND.TOKEN, 0, 7, 1], [KIND.STEP_END, 3000, 1, 1],
  [KIND.STEP, 1, 1, 3000], [KIND.BLOCK_ALLOC, 2, 1, 0], [KIND.ADMIT, 1, 1, 0],
  [KIND.SCHEDULED, 0, 1, 1], [KIND.SCHEDULED, 1, 3, 0], [KIND.TOKEN, 0, 8, 2],
  [KIND.TOKEN, 1, 9, 1], [KIND.FINISH, 0, 1, 0], [KIND.BLOCK_FREE, 1, 0, 0],
  [KIND.STEP_END, 5000, 1, 1],
  [KIND.STEP, 0, 1, 5000], [KIND.PREEMPT, 1, 1, 0], [KIND.BLOCK_FREE, 2, 1, 1],
  [KIND.STEP_END, 6000, 1, 1],
  [KIND.STEP, 1, 0, 6000], [KIND.BLOCK_EVICT, 3, 1, 0], [KIND.RESUME, 1, 0, 0],
  [KIND.SCHEDULED, 1, 4, 2], [KIND.STEP_END, 9000, 1, 1],
];

const makeRun = (events = EVENTS) => new Run({ config: CONFIG }, Float64Array.from(events.flat()));

test("numbers are zigzag LEB128, and cut off ones are refused", () => {
  assert.deepEqual([...readVarints(Uint8Array.of(0, 1, 2, 3, 0x80, 1), 5)], [0, -1, 1, -2, 64]);
  assert.throws(() => readVarints(Uint8Array.of(0x80), 1), /cut off/);
  assert.throws(() => readVarints(Uint8Array.of(1, 1), 1), /left over/);
});

test("a clock of more than 32 bits survives", () => {
  const bytes = [];
  for (let n = 2 * 2 ** 45; n > 0; n = Math.floor(n / 128)) bytes.push((n % 128) + (n >= 128 ? 128 : 0));
  const view = new DataView(Uint8Array.of(2, 2, 2, ...bytes).buffer);
  assert.deepEqual([...decodeEvents(view, 1)], [1, 1, 1, 2 ** 45]);
});

test("series: seats, work, marks, jumps, latencies", () => {
  const { series } = makeRun();
  assert.deepEqual(series.stays.get(0), [
    { request: 0, start: 0, end: 2 }, { request: 1, start: 3, end: Infinity },
  ]);
  assert.deepEqual(series.work.get(1), [{ request: 1, phase: 0, start: 1, end: 2 }]);
  assert.deepEqual(series.jumps, { preempt: [2], evict: [3], finish: [1] });
  assert.deepEqual(series.ttft, [{ step: 0, value: 2000 }, { step: 1, value: 4000 }]);
  assert.deepEqual(series.tpot, [{ step: 1, value: 2000 }]);
  assert.deepEqual([...series.prefill.values.slice(0, 4)], [4, 3, 0, 0]);
  assert.deepEqual([...series.outputsSoFar.values.slice(0, 4)], [1, 3, 3, 3]);
  assert.equal(countUpTo(series.tokens.get(0).steps, 0), 1);
  assert.deepEqual([0, 1, 2, 4].map((n) => countBelow([1, 1, 3], n, 3)), [0, 0, 2, 3]);
});

test("a run that grows event by event is the run that came at once", () => {
  const whole = makeRun();
  const grown = makeRun([]);
  for (const event of EVENTS) {
    grown.append(Float64Array.from(event));
    if (grown.numSteps) grown.at(grown.lastStep);
  }
  for (const step of [3, 0, 2, 1, -1, 3]) {
    assert.deepEqual(grown.at(step).toDict(), whole.at(step).toDict());
  }
  assert.deepEqual(grown.series.jumps, whole.series.jumps);
});

test("a copy does not see later changes, nor the original those of its copy", () => {
  const run = makeRun();
  const before = run.at(0).copy();
  const kept = JSON.stringify(before.toDict());
  run.at(3);
  assert.equal(JSON.stringify(before.toDict()), kept);
  before.apply(KIND.TOKEN, 0, 1, 99);
  assert.equal(run.at(0).requests.get(0).numOutput, 1);
});

test("a step in words", () => {
  const run = makeRun();
  const text = describeStep(run, 1, run.at(1));
  assert.match(text, /^Step 1: 3 prefill tokens; 1 decode token; seated #1; finished #0 \(length\)\./);
  assert.match(text, /1 of 8 blocks used, 0 waiting, 1 running\.$/);
  assert.equal(duration(950), "950 µs");
  assert.equal(duration(1500000), "1.50 s");
});

test("the store: poster, jumps, ends, speed, selection", () => {
  globalThis.requestAnimationFrame = () => 0;
  const store = new Store();
  store.setRun(makeRun(), 2);
  assert.equal(store.step, 2);
  store.play();
  assert.equal(store.step, 0, "play begins at the beginning after the first picture");
  store.jump("preempt");
  assert.equal(store.step, 2);
  assert.equal(store.playing, false);
  store.jump("preempt");
  assert.equal(store.step, 2, "the only one");
  store.seek(Infinity);
  assert.equal(store.step, 3);
  store.nudge(-1);
  assert.equal(store.step, 2);
  store.faster(-1);
  store.select(1);
  store.point(0);
  assert.equal(store.focus, 0);
  store.point(null);
  assert.equal(store.focus, 1);
  store.select(1);
  assert.equal(store.focus, null);
});

test("the store in front of a live engine", () => {
  const store = new Store();
  const commands = [];
  store.command = (command, value) => commands.push([command, value]);
  store.isLive = store.follows = true;
  const run = makeRun(EVENTS.slice(0, 8));
  store.setRun(run, 0);
  run.append(Float64Array.from(EVENTS.slice(8).flat()));
  store.grown();
  assert.equal(store.step, 3);
  store.setStatus({ state: "running", error: "", traceback: "" });
  store.toggle();
  store.setStatus({ state: "paused", error: "", traceback: "" });
  store.nudge(1);
  store.setSpeed(20);
  assert.deepEqual(commands, [["pause", undefined], ["step", undefined], ["pace", 20]]);
  store.seek(1);
  assert.equal(store.follows, false);
  store.seek(Infinity);
  assert.equal(store.follows, true);
});

test("a run that comes in parts: its first picture moves when it is whole, unless somebody moved", () => {
  for (const moved of [false, true]) {
    const store = new Store();
    const changes = [];
    store.listen((change) => changes.push(change), new AbortController().signal);
    store.begin(false, 7);
    const run = makeRun(EVENTS.slice(0, 8));
    store.setRun(run, 0, false);
    assert.deepEqual([store.runNumber, store.isWhole, store.step], [7, false, 0]);
    run.append(Float64Array.from(EVENTS.slice(8).flat()));
    store.grown();
    assert.equal(store.step, 0, "it does not follow");
    if (moved) store.seek(1);
    store.finish(2);
    assert.deepEqual([store.isWhole, store.step], [true, moved ? 1 : 2]);
    assert.equal(changes.at(-1), "run");
    store.finish(3);
    assert.equal(store.step, moved ? 1 : 2, "only once");
  }
});
