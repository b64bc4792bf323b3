// @ts-check
/** Contiguous KV memory: regions, holes and what is wasted, as in `regions.py`. */

/** @typedef {import("./state.js").EngineState} EngineState */
/** @typedef {{start: number, length: number}} Hole */
/** @typedef {{request: number, start: number, length: number, used: number}} Region */

/**
 * @typedef {object} Strip
 * @property {Region[]} regions in the order of the slots
 * @property {Hole[]} holes
 * @property {number} capacity token slots in all
 * @property {number} held slots of all regions
 * @property {number} internal of these: slots without a token
 * @property {number} free slots of all holes
 * @property {Hole | null} largest
 * @property {number} external free slots outside the largest hole
 */

/** @param {EngineState} state @param {number} capacity @returns {Strip} */
export function stripOf(state, capacity) {
  /** @type {Region[]} */
  const regions = [];
  for (const [request, { region, numComputed }] of state.requests) {
    if (region === null) continue;
    const [start, length] = region;
    regions.push({ request, start, length, used: Math.min(length, numComputed) });
  }
  regions.sort((x, y) => x.start - y.start);
  const holes = holesOf(regions, capacity);
  /** @type {Hole | null} */
  let largest = null;
  for (const hole of holes) if (largest === null || hole.length > largest.length) largest = hole;
  const held = total(regions.map((region) => region.length));
  const free = total(holes.map((hole) => hole.length));
  return {
    regions, holes, capacity, held, free, largest,
    internal: held - total(regions.map((region) => region.used)),
    external: free - (largest?.length ?? 0),
  };
}

/** @param {Region[]} regions @param {number} capacity */
function holesOf(regions, capacity) {
  /** @type {Hole[]} */
  const holes = [];
  let end = 0;
  for (const { start, length } of [...regions, { start: capacity, length: 0 }]) {
    if (start > end) holes.push({ start: end, length: start - end });
    end = Math.max(end, start + length);
  }
  return holes;
}

/** @param {number[]} numbers */
const total = (numbers) => numbers.reduce((sum, number) => sum + number, 0);
