// @ts-check
/** The explorer's curves in words: what they say, and all numbers of one point. */

import { attainment, best, differences, goodput, latencyOf, saturation } from "./load_curves.js";
import { count, duration } from "./words.js";

/**
 * @typedef {import("./load_curves.js").Point} Point
 * @typedef {import("./load_curves.js").Curve} Curve
 * @typedef {import("./load_curves.js").Choice} Choice
 */

export const LATENCIES = { ttft: "TTFT", tpot: "TPOT", e2e: "end to end" };

/** @param {number} rate */
export const rateText = (rate) => rate.toLocaleString("en", { maximumSignificantDigits: 3 });

/** @param {Curve | null} curve */
export function progress(curve) {
  if (curve === null) return "";
  if (curve.error) return "not computed";
  if (!curve.done) return `computing: ${curve.points.length} of ${curve.num_rates} rates`;
  return `${curve.num_rates} rates, computed in ${curve.wall_s.toFixed(1)} s`;
}

/** @param {Choice} choice */
const limits = ({ ttft_ms, tpot_ms }) => `TTFT ≤ ${count(ttft_ms)} ms and TPOT ≤ ${count(tpot_ms)} ms`;

/** What the curves say. @param {Curve | null} curve @param {Curve | null} former @param {Choice} choice @returns {string[]} */
export function sentences(curve, former, choice) {
  if (!curve?.capacity) return ["", ""];
  const full = saturation(curve.points);
  const grows = full ? ` The queue grows from ${rateText(full.rate)} requests/s on.` : "";
  const { requests, tokens } = curve.capacity;
  const capacity = `Capacity: ${rateText(requests)} requests/s, ${count(Math.round(tokens))} output tokens/s.${grows}`;
  const found = best(curve.points, choice);
  const share = `${choice.percentile.slice(1)} % of the requests`;
  const rate = found
    ? `Best rate: up to ${rateText(found.rate)} requests/s, ${share} meet ${limits(choice)}.`
    : `At no rate here do ${share} meet ${limits(choice)}.`;
  const then = former && best(former.points, choice);
  const before = former ? ` Before (${differences(curve, former)}): ${then ? rateText(then.rate) : "none"}.` : "";
  return [capacity, rate + before];
}

/** All numbers of a point. @param {Point} point @param {Choice} choice */
export function pointWords(point, choice) {
  const times = /** @type {const} */ (["ttft", "tpot", "e2e"]).map((latency) => {
    const [p50, p95, p99] = /** @type {const} */ (["p50", "p95", "p99"]).map((percentile) => duration(latencyOf(point, { ...choice, latency, percentile })));
    return `${LATENCIES[latency]} ${p50} / ${p95} / ${p99}`;
  });
  const share = Math.round(100 * attainment(point, choice));
  return [
    `explorer.run(${point.place}): ${rateText(point.rate)} requests/s offered, ${rateText(point.requests)} served, ` +
      `${count(Math.round(point.tokens))} output tokens/s; ${count(point.backlog)} waiting when the last one arrived.`,
    `p50 / p95 / p99: ${times.join("; ")}.`,
    `${share} % of ${count(point.ttft.length)} measured requests meet ${limits(choice)}: goodput ${rateText(goodput(point, choice))} requests/s.`,
  ].join("\n");
}
