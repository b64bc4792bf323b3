// @ts-check
/**
 * The engine's state after some events: engine/state.py and engine/state_rules.py once more.
 *
 * A copy shares the requests' records; whoever changes a record first makes it its own. So a
 * keyframe costs a few pointers, not the tables of all requests.
 */

import { KIND } from "./events.js";

let lastEpoch = 0;

export class RequestState {
  /** @param {number} epoch the state that may change this record */
  constructor(epoch) {
    this.epoch = epoch;
    this.promptTokens = 0;
    this.maxTokens = 0;
    this.status = "waiting";
    this.seqSlot = -1;
    this.numOutput = 0;
    this.numComputed = 0;
    this.numPreemptions = 0;
    /** @type {number | null} */
    this.reason = null;
    /** @type {number[]} */
    this.table = [];
    /** @type {number[]} */
    this.hostBlocks = [];
    /** @type {[number, number] | null} */
    this.region = null;
    this.place = 0;
  }

  get numTokens() {
    return this.promptTokens + this.numOutput;
  }

  /** @param {number} epoch */
  copy(epoch) {
    const other = Object.assign(new RequestState(epoch), this);
    other.epoch = epoch;
    other.table = this.table.slice();
    other.hostBlocks = this.hostBlocks.slice();
    return other;
  }

  /** With the names that Python gives them. */
  toDict() {
    return {
      prompt_tokens: this.promptTokens, max_tokens: this.maxTokens, status: this.status,
      seq_slot: this.seqSlot, num_output: this.numOutput, num_computed: this.numComputed,
      num_preemptions: this.numPreemptions, reason: this.reason, table: this.table,
      host_blocks: this.hostBlocks, region: this.region, place: this.place,
    };
  }

  /** @param {Record<string, any>} parts @param {number} epoch */
  static fromDict(parts, epoch) {
    const record = new RequestState(epoch);
    record.promptTokens = parts.prompt_tokens;
    record.maxTokens = parts.max_tokens;
    record.status = parts.status;
    record.seqSlot = parts.seq_slot;
    record.numOutput = parts.num_output;
    record.numComputed = parts.num_computed;
    record.numPreemptions = parts.num_preemptions;
    record.reason = parts.reason;
    record.table = parts.table;
    record.hostBlocks = parts.host_blocks;
    record.region = parts.region;
    record.place = parts.place;
    return record;
  }
}

/** Map of each table of the state to the name that Python gives it. */
const TABLES = /** @type {const} */ ({
  queue: "queue", slots: "slots", refCounts: "ref_counts", cached: "cached", knobs: "knobs",
  counts: "counts", tokens: "tokens", hitTokens: "hit_tokens", finished: "finished",
});

export class EngineState {
  constructor() {
    this.epoch = ++lastEpoch;
    this.position = 0;
    /** @type {Map<number, RequestState>} */
    this.requests = new Map();
    /** @type {Map<number, number>} waiting request -> its place */
    this.queue = new Map();
    /** @type {Map<number, number>} seat -> request */
    this.slots = new Map();
    /** @type {Map<number, number>} block -> tables that hold it */
    this.refCounts = new Map();
    /** @type {Map<number, number>} block with a hash -> request that filled it */
    this.cached = new Map();
    /** @type {Map<number, number>} */
    this.knobs = new Map();
    /** @type {Map<number, number>} kind -> events */
    this.counts = new Map();
    /** @type {Map<number, number>} phase -> computed tokens */
    this.tokens = new Map();
    /** @type {Map<number, number>} ADMIT or RESUME -> tokens from the prefix cache */
    this.hitTokens = new Map();
    /** @type {Map<number, number>} reason -> requests */
    this.finished = new Map();
    this.numShared = 0; // blocks in more than one table
    this.numCachedFree = 0; // blocks with a hash that nobody holds
  }

  /** Requests in the queue, the next one first. */
  get waiting() {
    const place = this.queue;
    return [...place.keys()].sort((x, y) => (place.get(x) ?? 0) - (place.get(y) ?? 0));
  }

  /** @param {number} block */
  blockState(block) {
    if (this.refCounts.has(block)) return "used";
    return this.cached.has(block) ? "cached" : "free";
  }

  /** @param {number} kind @param {number} a @param {number} b @param {number} c */
  apply(kind, a, b, c) {
    const rule = RULES[kind];
    if (rule !== undefined) rule(this, a, b, c);
    add(this.counts, kind, 1);
    this.position += 1;
  }

  /** A request's record, ours to change; made up if no event introduced it. @param {number} index */
  own(index) {
    let record = this.requests.get(index);
    if (record === undefined) record = new RequestState(this.epoch);
    else if (record.epoch !== this.epoch) record = record.copy(this.epoch);
    else return record;
    this.requests.set(index, record);
    return record;
  }

  /** An independent copy. */
  copy() {
    const other = new EngineState();
    this.epoch = ++lastEpoch; // from now on neither may change the shared records
    other.position = this.position;
    other.numShared = this.numShared;
    other.numCachedFree = this.numCachedFree;
    other.requests = new Map(this.requests);
    for (const name of Object.keys(TABLES)) {
      const table = /** @type {keyof typeof TABLES} */ (name);
      other[table] = new Map(this[table]);
    }
    return other;
  }

  /** The same as Python's `EngineState.as_dict`, without counters at 0. */
  toDict() {
    /** @type {Record<string, any>} */
    const parts = { position: this.position, requests: {} };
    for (const [index, record] of this.requests) parts.requests[index] = record.toDict();
    for (const [name, python] of Object.entries(TABLES)) {
      const table = /** @type {keyof typeof TABLES} */ (name);
      parts[python] = Object.fromEntries(this[table]);
    }
    return parts;
  }

  /** @param {Record<string, any>} parts what `as_dict` gave */
  static fromDict(parts) {
    const state = new EngineState();
    state.position = parts.position;
    for (const [index, record] of Object.entries(parts.requests)) {
      state.requests.set(Number(index), RequestState.fromDict(record, state.epoch));
    }
    for (const [name, python] of Object.entries(TABLES)) {
      const table = /** @type {keyof typeof TABLES} */ (name);
      for (const [key, value] of Object.entries(parts[python])) state[table].set(Number(key), value);
    }
    for (const references of state.refCounts.values()) if (references > 1) state.numShared += 1;
    for (const block of state.cached.keys()) if (!state.refCounts.has(block)) state.numCachedFree += 1;
    return state;
  }
}

/** @param {Map<number, number>} counter @param {number} key @param {number} amount */
function add(counter, key, amount) {
  counter.set(key, (counter.get(key) ?? 0) + amount);
}

/** @typedef {(state: EngineState, a: number, b: number, c: number) => void} Rule */

/** @type {Rule} */
function submit(state, request, promptTokens, maxTokens) {
  const record = new RequestState(state.epoch);
  record.promptTokens = promptTokens;
  record.maxTokens = maxTokens;
  record.place = state.position;
  state.requests.set(request, record);
  state.queue.set(request, record.place);
}

/** @type {Rule} */
function seat(state, request, slot, hitTokens) {
  const record = state.own(request);
  record.status = "running";
  record.seqSlot = slot;
  record.numComputed = Math.max(record.numComputed, hitTokens);
  state.slots.set(slot, request);
  state.queue.delete(request);
}

/** @param {number} kind @returns {Rule} */
function admitAs(kind) {
  return (state, request, slot, hitTokens) => {
    add(state.hitTokens, kind, hitTokens);
    seat(state, request, slot, hitTokens);
  };
}

/** @param {EngineState} state @param {RequestState} record @param {string} status @param {number} slot */
function leave(state, record, status, slot) {
  record.status = status;
  record.seqSlot = -1;
  state.slots.delete(slot);
}

/** @type {Rule} */
function preempt(state, request, slot, swapped) {
  const record = state.own(request);
  leave(state, record, "preempted", slot);
  record.numPreemptions += 1;
  if (!swapped) record.numComputed = 0;
  record.place = -state.position; // the last one preempted heads the queue
  state.queue.set(request, record.place);
}

/** @type {Rule} */
function finish(state, request, reason, slot) {
  const record = state.own(request);
  leave(state, record, "finished", slot);
  record.reason = reason;
  add(state.finished, reason, 1);
  state.queue.delete(request);
  if (record.hostBlocks.length) record.hostBlocks = [];
}

/** @type {Rule} */
function fork(state, parent, child, slot) {
  const source = state.own(parent);
  if (!state.requests.has(child)) submit(state, child, source.promptTokens, source.maxTokens);
  if (slot < 0) return;
  const shared = Math.min(source.numComputed, state.own(child).numTokens - 1);
  seat(state, child, slot, Math.max(shared, 0));
}

/** @type {Rule} */
function scheduled(state, request, tokens, phase) {
  const record = state.own(request);
  record.numComputed = Math.min(record.numComputed + tokens, record.numTokens);
  add(state.tokens, phase, tokens);
}

/** @type {Rule} */
function token(state, request, _tokenId, numOutput) {
  state.own(request).numOutput = numOutput;
}

/** @type {Rule} */
function hold(state, block, request, index) {
  const { table } = state.own(request);
  if (index >= 0 && index < table.length) table[index] = block; // copy-on-write
  else table.push(block);
  const references = (state.refCounts.get(block) ?? 0) + 1;
  state.refCounts.set(block, references);
  if (references === 2) state.numShared += 1;
  if (references === 1 && state.cached.has(block)) state.numCachedFree -= 1;
}

/** @type {Rule} */
function letGo(state, block, request) {
  const { table } = state.own(request);
  if (table.at(-1) === block) table.pop(); // tables are freed from the tail
  else if (table.includes(block)) table.splice(table.indexOf(block), 1);
  const references = (state.refCounts.get(block) ?? 0) - 1;
  if (references === 1) state.numShared -= 1;
  if (references > 0) state.refCounts.set(block, references);
  else if (state.refCounts.delete(block) && state.cached.has(block)) state.numCachedFree += 1;
}

/** @type {Rule} */
function keep(state, block, request) {
  if (!state.cached.has(block) && !state.refCounts.has(block)) state.numCachedFree += 1;
  state.cached.set(block, request);
}

/** @type {Rule} */
function evict(state, block) {
  if (state.cached.delete(block) && !state.refCounts.has(block)) state.numCachedFree -= 1;
}

/** @type {Rule} */
function swapIn(state, request, hostBlock) {
  const { hostBlocks } = state.own(request);
  if (hostBlocks.includes(hostBlock)) hostBlocks.splice(hostBlocks.indexOf(hostBlock), 1);
}

/** @type {Rule} */
function setRegion(state, request, start, length) {
  state.own(request).region = [start, length];
}

/** @type {Rule} */
function moveRegion(state, request, _oldStart, newStart) {
  const record = state.own(request);
  record.region = [newStart, record.region ? record.region[1] : 0];
}

/** @type {Record<number, Rule>} */
const RULES = {
  [KIND.SUBMIT]: submit,
  [KIND.ADMIT]: admitAs(KIND.ADMIT),
  [KIND.RESUME]: admitAs(KIND.RESUME),
  [KIND.SCHEDULED]: scheduled,
  [KIND.TOKEN]: token,
  [KIND.PREEMPT]: preempt,
  [KIND.FINISH]: finish,
  [KIND.BLOCK_ALLOC]: hold,
  [KIND.BLOCK_CACHE]: keep,
  [KIND.BLOCK_SHARE]: hold,
  [KIND.BLOCK_UNSHARE]: letGo,
  [KIND.BLOCK_EVICT]: evict,
  [KIND.BLOCK_FREE]: letGo,
  [KIND.SWAP_OUT]: (state, request, _block, host) => state.own(request).hostBlocks.push(host),
  [KIND.SWAP_IN]: swapIn,
  [KIND.FORK]: fork,
  [KIND.REGION_ALLOC]: setRegion,
  [KIND.REGION_GROW]: setRegion,
  [KIND.REGION_MOVE]: moveRegion,
  [KIND.REGION_FREE]: (state, request) => { state.own(request).region = null; },
  [KIND.KNOB]: (state, knob, _old, value) => state.knobs.set(knob, value),
};
