import assert from "node:assert/strict";
import test from "node:test";

import { along, linearAxis, logAxis } from "../../../tinyvllm_lab/widgets/static/chart.js";
import {
  attainment, best, differences, goodput, heard, quantile, saturation,
} from "../../../tinyvllm_lab/widgets/static/load_curves.js";
import { pointWords, progress, sentences } from "../../../tinyvllm_lab/widgets/static/load_words.js";

const CHOICE = { latency: "ttft", percentile: "p50", throughput: "tokens", ttft_ms: 100, tpot_ms: 10 };
const pointAt = (place, ttft, saturated = false) => ({
  place, rate: 10 * (place + 1), requests: 9 * (place + 1), tokens: 90 * (place + 1), backlog: place,
  saturated, ttft, tpot: [5000, 9000, null, 10000], e2e: [1e6, 2e6, 3e6, 4e6],
});
const emptyCurve = (number) => ({
  number, knobs: { model: "m", max_num_seqs: 8 * number }, num_rates: 3, num_requests: 256,
  capacity: null, points: [], done: false, wall_s: 0, error: "", traceback: "",
});
const GOOD = [1000, 2000, 3000, 100000];
const HALF = [1000, 2000, 300000, 100001];
const BAD = [1e6, 1e6, 1e6, 1e6];

test("messages make curves: points in order, once each, and only of the newest sweep", () => {
  let curves = { curve: null, former: null };
  const hear = (...messages) => (curves = messages.reduce(heard, curves));
  hear({ k: "begin", keep: false, curve: emptyCurve(1) });
  hear({ k: "news", number: 1, capacity: { requests: 30, tokens: 300 } });
  for (const place of [2, 0, 1, 0]) hear({ k: "news", number: 1, point: pointAt(place, GOOD) });
  assert.deepEqual(curves.curve.points.map((p) => p.place), [0, 1, 2]);
  assert.match(progress(curves.curve), /3 of 3/);
  hear({ k: "news", number: 1, done: true, wall_s: 1.234 });
  assert.equal(progress(curves.curve), "3 rates, computed in 1.2 s");
  hear({ k: "begin", keep: true, curve: emptyCurve(2) }, { k: "news", number: 1, point: pointAt(0, BAD) });
  assert.deepEqual([curves.former.number, curves.curve.number, curves.curve.points.length], [1, 2, 0]);
  assert.equal(differences(curves.curve, curves.former), "max_num_seqs 8");
  // A sweep that was not complete leaves the former curve where it is.
  hear({ k: "begin", keep: false, curve: emptyCurve(3) });
  assert.deepEqual([curves.former.number, curves.curve.number], [1, 3]);
  const all = { curve: emptyCurve(9), former: null };
  assert.deepEqual(heard(curves, { k: "all", ...all }), all);
});

test("limits count requests: both must hold, a limit itself is met, one token has no TPOT", () => {
  assert.equal(attainment(pointAt(0, GOOD), CHOICE), 1);
  assert.equal(attainment(pointAt(0, HALF), CHOICE), 0.5);
  assert.equal(attainment(pointAt(0, GOOD), { ...CHOICE, tpot_ms: 9 }), 0.75);
  assert.equal(goodput(pointAt(1, HALF), CHOICE), 9);
});

test("the best rate is the last before the first that fails; the queue grows from the last stable one on", () => {
  const points = [pointAt(0, GOOD), pointAt(1, HALF, true), pointAt(2, BAD), pointAt(3, GOOD, true)];
  assert.equal(best(points, CHOICE).place, 1);
  assert.equal(best(points, { ...CHOICE, percentile: "p95" }).place, 0);
  assert.equal(best(points.slice(2), CHOICE), null);
  assert.equal(saturation(points).place, 3);
  assert.equal(saturation(points.slice(0, 1)), null);
  assert.equal(saturation([]), null);
});

test("quantiles skip what is missing", () => {
  assert.equal(quantile([4, null, 1, 3, 2], 0.5), 2.5);
  assert.equal(quantile([7], 0.99), 7);
  assert.ok(Number.isNaN(quantile([null], 0.5)));
});

test("a curve and a point in words", () => {
  const curve = { ...emptyCurve(2), capacity: { requests: 28.04, tokens: 1234.5 }, points: [pointAt(0, GOOD), pointAt(1, BAD, true)] };
  const [first, second] = sentences(curve, { ...emptyCurve(1), points: [] }, CHOICE);
  assert.equal(first, "Capacity: 28 requests/s, 1,235 output tokens/s. The queue grows from 20 requests/s on.");
  assert.equal(second, "Best rate: up to 10 requests/s, 50 % of the requests meet TTFT ≤ 100 ms and TPOT ≤ 10 ms. Before (max_num_seqs 8): none.");
  assert.match(sentences({ ...curve, points: [pointAt(0, BAD)] }, null, CHOICE)[1], /^At no rate here do 50 %/);
  assert.match(pointWords(pointAt(1, HALF), CHOICE), /run\(1\): 20 requests\/s offered, 18 served, 180 output tokens\/s; 1 waiting/);
  assert.match(pointWords(pointAt(1, HALF), CHOICE), /50 % of 4 measured requests .* goodput 9 requests\/s/);
});

test("axes have round ticks inside, and places from 0 to 1", () => {
  assert.deepEqual(linearAxis(46, String).ticks, [0, 10, 20, 30, 40]);
  assert.deepEqual(linearAxis(3.3, String).ticks, [0, 1, 2, 3]);
  assert.deepEqual(logAxis(900, 60000, String).ticks, [1000, 2000, 5000, 10000, 20000, 50000]);
  assert.equal(along(logAxis(10, 1000, String), 100), 0.5);
  assert.deepEqual([-5, 0, 23, 46, 99].map((v) => along(linearAxis(46, String), v)), [0, 0, 0.5, 1, 1]);
});
