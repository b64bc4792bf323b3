// @ts-check
/** Who holds which KV block, and how full it is: read from the block tables. */

/** @typedef {import("./replayer.js").Run} Run */
/** @typedef {import("./state.js").EngineState} EngineState */

/**
 * @typedef {object} Holdings
 * @property {Int32Array} owner request that holds the block first; -1: nobody
 * @property {Int32Array} filled tokens in it
 * @property {Int32Array} index its place in the owner's table
 * @property {number} held token slots of all blocks (a shared one once) or regions that are held
 * @property {number} wasted of these: slots without a token
 */

/** Several panels ask for the same moment. @type {WeakMap<EngineState, {position: number, holdings: Holdings}>} */
const known = new WeakMap();

/** @param {Run} run @param {EngineState} state @returns {Holdings} */
export function holdingsOf(run, state) {
  const last = known.get(state);
  if (last?.position === state.position) return last.holdings;
  const holdings = compute(run, state);
  known.set(state, { position: state.position, holdings });
  return holdings;
}

/** @param {Run} run @param {EngineState} state @returns {Holdings} */
function compute(run, state) {
  const total = run.config.num_blocks ?? 0;
  const owner = new Int32Array(total).fill(-1);
  const filled = new Int32Array(total);
  const index = new Int32Array(total);
  const size = run.config.block_size ?? 1;
  let held = 0; // of contiguous regions, which need not end with a block
  let full = 0;
  for (const request of holders(state)) {
    const record = state.requests.get(request);
    if (record === undefined) continue;
    if (record.region !== null) {
      holdRegion(owner, filled, request, record.region, record.numComputed, size);
      held += record.region[1];
      full += Math.min(record.region[1], record.numComputed);
    }
    holdTable(owner, filled, index, request, record.table, record.numComputed, size);
  }
  const waste = held ? { held, wasted: held - full } : wasteOf(owner, filled, size);
  return { owner, filled, index, ...waste };
}

/** Runs for every held block in every picture: a plain loop.
 * @param {Int32Array} owner @param {Int32Array} filled @param {Int32Array} index @param {number} request @param {number[]} table @param {number} computed @param {number} size */
function holdTable(owner, filled, index, request, table, computed, size) {
  let left = computed; // tokens that lie in this block and those behind it
  for (let place = 0; place < table.length; place++, left -= size) {
    const block = table[place];
    if (block < 0 || block >= owner.length) continue;
    if (owner[block] === -1) {
      owner[block] = request;
      index[block] = place;
    }
    const tokens = left > size ? size : left;
    if (tokens > filled[block]) filled[block] = tokens;
  }
}

/** Requests that may hold memory: those in seats first, by seat. @param {EngineState} state */
export function holders(state) {
  const seated = [...state.slots.keys()].sort((x, y) => x - y);
  const requests = seated.map((slot) => /** @type {number} */ (state.slots.get(slot)));
  const listed = new Set(requests);
  for (const [request, record] of state.requests) {
    if ((record.table.length || record.region) && !listed.has(request)) requests.push(request);
  }
  return requests;
}

/** A contiguous region, cut into pieces of a block's size.
 * @param {Int32Array} owner @param {Int32Array} filled @param {number} request @param {[number, number]} region @param {number} computed @param {number} size */
function holdRegion(owner, filled, request, [start, length], computed, size) {
  for (let slot = start; slot < start + length; ) {
    const block = Math.floor(slot / size) + 1; // block 0 is the null block
    const end = Math.min(block * size, start + length);
    if (block >= owner.length) return;
    if (owner[block] === -1) owner[block] = request;
    filled[block] += Math.max(0, Math.min(end, start + computed) - slot);
    slot = end;
  }
}

/** @param {Int32Array} owner @param {Int32Array} filled @param {number} size */
function wasteOf(owner, filled, size) {
  let held = 0;
  let full = 0;
  for (let block = 0; block < owner.length; block++) {
    if (owner[block] === -1) continue;
    held += size;
    full += filled[block];
  }
  return { held, wasted: held - full };
}
