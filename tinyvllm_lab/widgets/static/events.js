// @ts-check
/** The event vocabulary, as in engine/events.py (a test holds the two together). */

export const KIND = Object.freeze({
  STEP: 1, STEP_END: 2, SUBMIT: 3, ADMIT: 4, RESUME: 5, SCHEDULED: 6, TOKEN: 7, PREEMPT: 8,
  FINISH: 9, BLOCK_ALLOC: 10, BLOCK_CACHE: 11, BLOCK_SHARE: 12, BLOCK_UNSHARE: 13,
  BLOCK_EVICT: 14, BLOCK_FREE: 15, BLOCK_COPY: 16, SWAP_OUT: 17, SWAP_IN: 18, FORK: 19,
  REGION_ALLOC: 20, REGION_GROW: 21, REGION_MOVE: 22, REGION_FREE: 23, KNOB: 24, REJECT: 25,
});

export const PHASE = Object.freeze({ PREFILL: 0, DECODE: 1, RECOMPUTE: 2 });

/** Words for the reader, by the number of the phase or reason. */
export const PHASE_WORDS = ["prefill", "decode", "recompute"];
export const REASON_WORDS = ["stop", "length", "abort", "timeout", "error"];
