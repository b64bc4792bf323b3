// @ts-check
/**
 * What a sweep says, from its points: percentiles, goodput, the best rate, where the queue grows.
 * The same as `simulate/sweep.py` and numpy. Times are in whole microseconds, rounded up, so that a
 * comparison with a limit in milliseconds comes out as it does in Python.
 */

/**
 * @typedef {"ttft" | "tpot" | "e2e"} Latency
 * @typedef {object} Point one rate; the latencies are those of the measured requests
 * @property {number} place in the order of the rates
 * @property {number} rate requests a second that arrive
 * @property {number} requests that are served a second
 * @property {number} tokens output tokens a second
 * @property {number} backlog requests that waited when the last one arrived
 * @property {boolean} saturated the queue grew
 * @property {number[]} ttft
 * @property {(number | null)[]} tpot null: the answer had one token
 * @property {number[]} e2e
 *
 * @typedef {Record<string, string | number>} Knobs
 * @typedef {object} Curve
 * @property {number} number of the sweep
 * @property {Knobs} knobs
 * @property {number} num_rates
 * @property {number} num_requests
 * @property {{requests: number, tokens: number} | null} capacity
 * @property {Point[]} points by ascending rate
 * @property {boolean} done
 * @property {number} wall_s
 * @property {string} error
 * @property {string} traceback
 *
 * @typedef {{curve: Curve | null, former: Curve | null}} Curves
 * @typedef {{latency: Latency, percentile: "p50" | "p95" | "p99", throughput: "tokens" | "requests", ttft_ms: number, tpot_ms: number}} Choice
 */

/** The curves after a message of the kernel. @param {Curves} curves @param {any} message @returns {Curves} */
export function heard({ curve, former }, message) {
  if (message.k === "all") return { curve: message.curve, former: message.former };
  if (message.k === "begin") return { curve: message.curve, former: message.keep ? curve : former };
  if (message.k !== "news" || curve === null || message.number !== curve.number) return { curve, former };
  const { k: _kind, point, ...news } = message;
  const points = point ? withPoint(curve.points, point) : curve.points;
  return { curve: { ...curve, ...news, points }, former };
}

/** @param {Point[]} points @param {Point} point */
function withPoint(points, point) {
  return [...points.filter((p) => p.place !== point.place), point].sort((a, b) => a.place - b.place);
}

/** Interpolated linearly, as numpy does. @param {(number | null)[]} values @param {number} share 0 to 1 */
export function quantile(values, share) {
  const known = /** @type {number[]} */ (values.filter((value) => value !== null));
  const sorted = Float64Array.from(known).sort();
  const at = share * (sorted.length - 1);
  const low = Math.floor(at);
  const next = sorted[Math.min(low + 1, sorted.length - 1)];
  return sorted.length ? sorted[low] + (at - low) * (next - sorted[low]) : NaN;
}

/** @param {string} percentile "p95", say */
export const shareOf = (percentile) => Number(percentile.slice(1)) / 100;

/** What the first chart shows of a point, in µs. @param {Point} point @param {Choice} choice */
export function latencyOf(point, choice) {
  return quantile(point[choice.latency], shareOf(choice.percentile));
}

/** Share of the measured requests that meet both limits. @param {Point} point @param {Choice} choice */
export function attainment({ ttft, tpot }, { ttft_ms, tpot_ms }) {
  const good = ttft.filter((time, i) => time <= 1000 * ttft_ms && (tpot[i] ?? 0) <= 1000 * tpot_ms);
  return ttft.length ? good.length / ttft.length : 0;
}

/** Requests a second that meet both limits. @param {Point} point @param {Choice} choice */
export function goodput(point, choice) {
  return attainment(point, choice) * point.requests;
}

/** The largest rate up to which the chosen share of the requests meets both limits. @param {Point[]} points @param {Choice} choice */
export function best(points, choice) {
  const bad = points.findIndex((p) => attainment(p, choice) < shareOf(choice.percentile));
  return points[(bad < 0 ? points.length : bad) - 1] ?? null;
}

/** The lowest rate at which the queue grew, and at all higher ones. @param {Point[]} points */
export function saturation(points) {
  const stable = points.map((point) => point.saturated).lastIndexOf(false);
  return points[stable + 1] ?? null;
}

/** The knobs of the former curve that have another value now. @param {Curve} curve @param {Curve} former */
export function differences(curve, former) {
  const names = Object.keys(former.knobs).filter((name) => former.knobs[name] !== curve.knobs[name]);
  return names.map((name) => `${name} ${former.knobs[name].toLocaleString("en")}`).join(", ");
}
