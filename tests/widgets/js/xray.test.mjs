import assert from "node:assert/strict";
import test from "node:test";
import { deflateSync } from "node:zlib";

import { XRayRun, passesOf, sectorsOf, turnsOf } from "../../../tinyvllm_lab/widgets/static/xray_run.js";

const lanes = (size, offsets) => ({ size, lanes: offsets.map((offset, lane) => ({ lane, offset })) });

test("sectors: neighbours share four, a row a lane takes one each", () => {
  const near = sectorsOf(lanes(4, Array.from({ length: 32 }, (_, n) => 4 * n)));
  assert.deepEqual(near.map(({ sector, used }) => [sector, used]), [[0, 32], [1, 32], [2, 32], [3, 32]]);
  assert.deepEqual(near[1].words[2], [10]);
  const far = sectorsOf(lanes(4, Array.from({ length: 32 }, (_, n) => 1024 * n)));
  assert.deepEqual([far.length, far[3].sector, far[3].used], [32, 96, 4]);
});

test("banks: one word for all is one pass, a column of 32 is 32, 16 bytes a lane go in quarters", () => {
  assert.equal(passesOf(lanes(4, Array(32).fill(8))), 1);
  assert.equal(passesOf(lanes(4, Array.from({ length: 32 }, (_, n) => 128 * n))), 32);
  assert.equal(passesOf(lanes(4, Array.from({ length: 32 }, (_, n) => 132 * n))), 1);
  const quads = lanes(16, Array.from({ length: 32 }, (_, n) => 16 * n));
  assert.deepEqual([turnsOf(quads).length, passesOf(quads)], [4, 1]);
  assert.equal(passesOf(lanes(16, Array.from({ length: 32 }, (_, n) => 128 * n))), 29);
});

/** Two threads: both write, meet at a barrier where thread 1 comes first, then thread 0 reads. */
const PAGE = {
  block: [2, 1, 1], grid: [1, 1, 1], lines: [], arrays: [], findings: [], steps: 4, ticks: 4,
  opens: [3], ends: [3, 1],
};
const COLUMNS = [
  [0, 1, 2, 3], [0, 0, 0, 0], [1, 3, 3, 0], [0, 1, 1, 2], [0, -1, -1, 0], [4, 0, 0, 4], [3, 2, 1, 1],
];
const OFFSETS = [0, 4, 0, 0, 4];

test("states: active, waiting until the barrier opens, done", async () => {
  const differences = OFFSETS.map((offset, n) => offset - (OFFSETS[n - 1] ?? 0));
  const data = deflateSync(Buffer.from(Int32Array.from([...COLUMNS.flat(), ...differences]).buffer));
  const run = await XRayRun.of({ ...PAGE, data: data.toString("base64") });
  const states = (thread) => [0, 1, 2, 3].map((tick) => run.stateOf(thread, tick));
  assert.deepEqual(states(0), ["active", "idle", "waiting", "active"]);
  assert.deepEqual(states(1), ["active", "waiting", "waiting", "done"]);
  assert.deepEqual(run.step(3).lanes, [{ lane: 0, offset: 4 }]);
  assert.equal(run.step(1).array, -1);
  assert.equal(run.next(new Set([1]), 1).index, 2);
  assert.equal(run.next(new Set([1]), 2).index, 1);
  assert.equal(run.next(new Set([9]), 0), null);
});
