// Reads a stored run and the states that Python rebuilt; compares both ways and at random.
// node equal_state.mjs FOLDER: run.tvt, states.json ([step, state] for every step).
import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";

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

function check(place) {
  const [step, state] = expected[place];
  assert.deepEqual(plain(run.at(step).toDict()), plain(state), `step ${step}`);
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
