// Reads a stored run and the states that Python rebuilt; compares both ways and at random.
// node equal_state.mjs FOLDER: run.tvt, states.json ([step, state] for every step).
import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";

import { BlockPixels } from "../../../tinyvllm_lab/widgets/static/block_pixels.js";
import { holdingsOf } from "../../../tinyvllm_lab/widgets/static/kv.js";
import { Run } from "../../../tinyvllm_lab/widgets/static/replayer.js";
import { decodeRun } from "../../../tinyvllm_lab/widgets/static/trace.js";

const folder = process.argv[2];
const file = fs.readFileSync(path.join(folder, "run.tvt"));
const { header, rows } = await decodeRun(new DataView(file.buffer, file.byteOffset, file.length));
const run = new Run(header, rows);
const expected = JSON.parse(fs.readFileSync(path.join(folder, "states.json"), "utf8"));

function plain(state) {
  const parts = JSON.parse(JSON.stringify(state));
  for (const name of ["counts", "tokens", "hit_tokens", "finished"]) {
    for (const [key, value] of Object.entries(parts[name])) if (!value) delete parts[name][key];
  }
  return parts;
}

/** Counters that the rules keep, counted anew. */
function checkCounters({ refCounts, cached, numShared, numCachedFree }) {
  assert.equal(numShared, [...refCounts.values()].filter((n) => n > 1).length);
  assert.equal(numCachedFree, [...cached.keys()].filter((block) => !refCounts.has(block)).length);
}

/** Colours that change with the events are those that a new picture has. */
const moved = new BlockPixels();
function checkPixels(step, state, place) {
  const theme = { page: place % 97 ? "#ffffff" : "#111418", empty: "#e6e8ec" };
  const scene = { run, step, state, theme, focus: place % 31 ? null : 3 };
  const holdings = holdingsOf(run, state);
  const pixels = new Uint32Array(holdings.owner.length);
  moved.update(scene, holdings, shown);
  new BlockPixels().update(scene, holdings, pixels);
  assert.deepEqual(shown, pixels, `colours of step ${step}`);
}
const shown = new Uint32Array(run.config.num_blocks ?? 0);

function check(place) {
  const [step, state] = expected[place];
  const found = run.at(step);
  assert.deepEqual(plain(found.toDict()), plain(state), `step ${step}`);
  checkCounters(found);
  if (shown.length) checkPixels(step, found, place);
}

assert.equal(expected.at(-1)[0], run.lastStep);
for (let i = 0; i < expected.length; i++) check(i);
for (let i = expected.length - 1; i >= 0; i--) check(i);
let random = 1;
for (let i = 0; i < 200; i++) {
  random = (random * 48271) % 2147483647;
  check(random % expected.length);
}
console.log(`equal: ${expected.length} steps, ${run.count} events, ${run.keyframes.length} keyframes`);
