// @ts-check
/** The colours of all blocks, one number a block. From picture to picture only those change that events name. */

import { KIND } from "./events.js";
import { COLOURS, mix, rgb } from "./theme.js";
import { WIDTH } from "./trace.js";
import { unitOf } from "./words.js";

/** @typedef {Pick<import("./panel.js").Scene, "run" | "state" | "theme" | "focus">} Scene */
/** @typedef {import("./kv.js").Holdings} Holdings */

export const FADED = 0.72; // share of the page in the colour of a cached block
const MOST_EVENTS = 16384; // between two pictures; after a longer way all blocks are coloured anew

/** @type {Set<number>} */
const TOUCHING = new Set([
  KIND.BLOCK_ALLOC, KIND.BLOCK_CACHE, KIND.BLOCK_SHARE, KIND.BLOCK_UNSHARE, KIND.BLOCK_EVICT,
  KIND.BLOCK_FREE,
]);

export class BlockPixels {
  constructor() {
    /** @type {Scene["run"] | null} */
    this.run = null;
    this.key = ""; // everything besides the run on which colours depend
    this.position = -1; // events that the colours know of
    /** @type {number[]} */
    this.palette = [];
    /** @type {number[]} */
    this.dimmed = [];
    this.empty = 0;
  }

  /** @param {Scene} scene @param {Holdings} holdings @param {Uint32Array} colours changed in place: the machine's bytes of a canvas pixel */
  update(scene, holdings, colours) {
    const { run, state, theme, focus } = scene;
    const key = [theme.page, theme.empty, focus, colours.length].join();
    const events = state.position - this.position;
    const isNear = run === this.run && key === this.key && events >= 0 && events < MOST_EVENTS;
    if (isNear && unitOf(run) === "block") this.recolour(scene, holdings, colours);
    else this.colourAll(scene, holdings, colours);
    Object.assign(this, { run, key, position: state.position });
  }

  /** @param {Scene} scene @param {Holdings} holdings @param {Uint32Array} colours */
  colourAll(scene, holdings, colours) {
    const { page, empty } = scene.theme;
    this.palette = COLOURS.map((colour) => packed(colour));
    this.dimmed = COLOURS.map((colour) => packed(mix(colour, page, FADED)));
    this.empty = packed(empty);
    colours[0] = 0; // the null block
    for (let block = 1; block < holdings.owner.length; block++) {
      colours[block] = this.colourOf(scene, holdings, block);
    }
  }

  /** What the events since the last picture name. @param {Scene} scene @param {Holdings} holdings @param {Uint32Array} colours */
  recolour(scene, holdings, colours) {
    const { rows, firstEvent } = scene.run;
    const stop = (scene.state.position - firstEvent) * WIDTH;
    for (let at = (this.position - firstEvent) * WIDTH; at < stop; at += WIDTH) {
      const block = rows[at + 1];
      if (!TOUCHING.has(rows[at]) || block < 1 || block >= holdings.owner.length) continue;
      colours[block] = this.colourOf(scene, holdings, block);
    }
  }

  /** @param {Scene} scene @param {Holdings} holdings @param {number} block */
  colourOf({ state, focus }, { owner }, block) {
    const request = owner[block];
    if (request >= 0) {
      const stands = focus === null || focus === request;
      return (stands ? this.palette : this.dimmed)[request % COLOURS.length];
    }
    const cachedBy = state.cached.get(block);
    return cachedBy === undefined ? this.empty : this.dimmed[cachedBy % COLOURS.length];
  }
}

/** @param {string} hex */
function packed(hex) {
  const [r, g, b] = rgb(hex);
  return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
}
