// @ts-check
/** What tests and measurements see of a panel. */

/**
 * @typedef {object} Shown a panel's frame
 * @property {any} model
 * @property {HTMLElement} root
 * @property {import("./page.js").Store} store
 * @property {import("./panel.js").Scene | null} scene of the last picture
 * @property {number} draws pictures so far
 * @property {{run: number, whole: boolean, steps: number}} drawn what the last picture showed
 */

/**
 * For tests: what a panel shows. Its element has it as `tinyvllm`; `window.__tinyvllm[name]` is that
 * of the newest panel of this name.
 * @param {string} name @param {Shown} frame
 */
export function publish(name, frame) {
  const page = /** @type {any} */ (globalThis);
  page.__tinyvllm ??= {};
  const element = /** @type {any} */ (frame.root);
  page.__tinyvllm[name] = element.tinyvllm = {
    name,
    feed: frame.model.get("feed_id"),
    get step() { return frame.store.step; },
    get firstStep() { return frame.store.run?.firstStep ?? 0; },
    get lastStep() { return frame.store.run?.lastStep ?? -1; },
    get draws() { return frame.draws; },
    get drawn() { return frame.drawn; },
    get playing() { return frame.store.playing; },
    get live() { return frame.store.follows; },
    get isFollower() { return frame.store.link?.follower === frame.store; },
    get engine() { return frame.store.status.state; },
    get focus() { return frame.store.focus; },
    get blocks() { return blocksByState(frame); },
    get slots() { return frame.scene ? Object.fromEntries(frame.scene.run.at(frame.store.step).slots) : {}; },
    get waiting() { return frame.scene ? frame.scene.run.at(frame.store.step).waiting : []; },
    seek: (/** @type {number} */ step) => frame.store.seek(step),
  };
}

/** @param {Shown} frame */
function blocksByState(frame) {
  const { run, step } = frame.store;
  if (run === null) return {};
  const state = run.at(step);
  let cached = 0;
  for (const block of state.cached.keys()) if (!state.refCounts.has(block)) cached += 1;
  const used = state.refCounts.size;
  return { used, cached, free: Math.max(0, (run.config.num_blocks ?? 1) - 1 - used - cached) };
}
