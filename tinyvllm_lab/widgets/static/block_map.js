// @ts-check
/** The block map: every block of the KV pool, coloured by the request that holds it. */

import { BlockPixels, FADED } from "./block_pixels.js";
import { Surface } from "./draw.js";
import { KIND } from "./events.js";
import { holdingsOf } from "./kv.js";
import { definePanel, requestSwatch } from "./panel.js";
import { COLOURS, lookOf, mix } from "./theme.js";
import { capacityOf, count, nameOf, plural, unitOf } from "./words.js";

/** @typedef {import("./panel.js").Scene} Scene */
/** @typedef {import("./kv.js").Holdings} Holdings */
/** @typedef {{columns: number, rows: number, cell: number, top: number}} Grid */

const LARGEST = 34; // px, side of a block
const SMALLEST_DRAWN = 12; // below: one pixel a block, scaled up
const SMALLEST_LINED = 4; // below: no lines between the blocks

class BlockMap {
  constructor() {
    /** @type {Holdings | null} */
    this.holdings = null;
    this.summary = "";
    this.pixels = document.createElement("canvas");
    /** @type {ImageData | null} */
    this.image = null;
    this.colours = new BlockPixels();
    /** @type {Surface | null} */
    this.layer = null;
    this.layerKey = "";
    /** @type {string[]} of the blocks in the layer */
    this.looks = [];
  }

  /** @param {Scene} scene */
  height(scene) {
    const grid = this.grid(scene);
    return grid.top + grid.rows * grid.cell + 1;
  }

  /** @param {Scene} scene @returns {Grid} */
  grid({ run, width, size }) {
    const total = Math.max(run.config.num_blocks ?? 1, 1);
    const most = size * 27; // px of height
    let cell = LARGEST * (size / 12);
    while (cell > 1 && Math.ceil(total / Math.floor(width / cell)) * cell > most) cell -= 0.5;
    if (cell < SMALLEST_LINED) cell = width / Math.ceil(Math.sqrt((total * width) / most));
    const columns = Math.max(1, Math.floor(width / cell + 1e-6));
    return { columns, rows: Math.ceil(total / columns), cell, top: size * 2 };
  }

  /** @param {Surface} surface @param {Scene} scene */
  draw(surface, scene) {
    const grid = this.grid(scene);
    const holdings = holdingsOf(scene.run, scene.state);
    this.holdings = holdings;
    const summaries = summariesOf(scene, holdings);
    this.summary = summaries[0];
    const { size, theme, width } = scene;
    const options = { size, colour: theme.soft, max: width - 4 };
    surface.text(surface.roomFor(summaries, width - 4, options), 2, size * 0.8, options);
    if (grid.cell < SMALLEST_DRAWN) {
      this.drawPixels(surface, scene, grid, holdings);
      if (grid.cell >= SMALLEST_LINED) drawSmallMarks(surface, scene, grid, holdings);
      return;
    }
    this.drawBlocks(surface, scene, grid, holdings);
  }

  /** @param {Surface} surface @param {Scene} scene @param {Grid} grid @param {Holdings} holdings */
  drawPixels(surface, scene, grid, holdings) {
    const { columns, rows, cell, top } = grid;
    const { pixels } = this;
    const ctx = /** @type {CanvasRenderingContext2D} */ (pixels.getContext("2d"));
    if (this.image?.width !== columns || this.image.height !== rows) {
      Object.assign(pixels, { width: columns, height: rows });
      this.image = ctx.createImageData(columns, rows);
      this.colours = new BlockPixels();
    }
    this.colours.update(scene, holdings, new Uint32Array(this.image.data.buffer));
    ctx.putImageData(this.image, 0, 0);
    surface.ctx.imageSmoothingEnabled = false;
    surface.ctx.drawImage(pixels, 0, top, columns * cell, rows * cell);
  }

  /** Large blocks are kept in a picture of their own; those are drawn again that look different.
   * @param {Surface} surface @param {Scene} scene @param {Grid} grid @param {Holdings} holdings */
  drawBlocks(surface, scene, grid, holdings) {
    const { width, size, theme } = scene;
    const { height, scale } = surface;
    const key = [grid.columns, grid.cell, width, height, size, scale, theme.page].join();
    this.layer ??= new Surface(document.createElement("canvas"));
    if (key !== this.layerKey) {
      this.layer.begin(width, height, theme);
      this.layerKey = key;
      this.looks.length = 0;
    }
    const evicted = evictedIn(scene);
    for (let block = 0; block < holdings.owner.length; block++) {
      const look = lookOfBlock(scene, holdings, block, evicted);
      if (look === this.looks[block]) continue;
      this.looks[block] = look;
      const y = grid.top + Math.floor(block / grid.columns) * grid.cell;
      this.layer.ctx.clearRect((block % grid.columns) * grid.cell, y, grid.cell, grid.cell);
      drawBlock(this.layer, scene, grid, holdings, block, evicted.has(block));
    }
    surface.ctx.drawImage(this.layer.canvas, 0, 0, width, height);
  }

  /** @param {number} x @param {number} y @param {Scene} scene */
  hit(x, y, scene) {
    const { columns, cell, top } = this.grid(scene);
    const block = Math.floor((y - top) / cell) * columns + Math.floor(x / cell);
    const { holdings } = this;
    const inside = y >= top && x >= 0 && x < columns * cell;
    if (!inside || holdings === null || block < 0 || block >= holdings.owner.length) return null;
    const request = holdings.owner[block];
    const tip = blockTip(scene, holdings, block);
    return { request: request < 0 ? (scene.state.cached.get(block) ?? null) : request, tip };
  }

  /** @param {Scene} scene */
  legend({ theme }) {
    const plain = COLOURS[1];
    return [
      { fill: requestSwatch(), label: "held by a request" },
      { fill: `linear-gradient(90deg, ${plain} 55%, ${mix(plain, theme.page, 0.6)} 55%)`, label: "tail of a block: held, but empty" },
      { fill: theme.text, label: "shared by several", mark: /** @type {const} */ ("outline") },
      { fill: mix(plain, theme.page, FADED), label: "free, but cached: an equal prefix finds it" },
      { fill: theme.empty, label: "free" },
      { fill: theme.warn, label: "evicted from the cache in this step", mark: /** @type {const} */ ("dashed") },
    ];
  }

  describe() {
    return this.summary;
  }
}

/** @param {Scene} scene */
function evictedIn({ run, step }) {
  return new Set(run.numSteps ? run.firstsOf(step, KIND.BLOCK_EVICT) : []);
}

/** Everything on which the picture of a block depends. @param {Scene} scene @param {Holdings} holdings @param {number} block @param {Set<number>} evicted */
function lookOfBlock({ state, focus }, { owner, filled }, block, evicted) {
  const cachedBy = state.cached.get(block);
  const request = owner[block];
  const who = request >= 0 ? request : cachedBy;
  const stands = focus === null ? 0 : focus === who ? 1 : 2;
  return `${request},${filled[block]},${state.refCounts.get(block)},${cachedBy},${stands},${evicted.has(block)}`;
}

/** From long to short. @param {Scene} scene @param {Holdings} holdings */
function summariesOf({ state, run }, { held, wasted }) {
  const share = held ? `${((100 * wasted) / held).toFixed(1)} %` : "";
  const ofHeld = share && ` (${share} of what is held)`;
  if (unitOf(run) !== "block") {
    const of = `${count(held)} of ${plural(capacityOf(run), "token slot")} held by regions`;
    return [`${of} · ${count(wasted)} empty in them${ofHeld}`, of];
  }
  const { numShared: shared, numCachedFree: cached } = state;
  const used = state.refCounts.size;
  const free = Math.max(0, (run.config.num_blocks ?? 1) - 1 - used - cached);
  const blocks = [`${count(used)} used`, `${count(shared)} of them shared`, `${count(cached)} cached`, `${count(free)} free`];
  const brief = [`${count(used)} used (${count(shared)} shared)`, ...blocks.slice(2)];
  return [
    [...blocks, `${plural(wasted, "token slot")} empty in held blocks${ofHeld}`],
    [...brief, `${plural(wasted, "slot")} empty${share && ` (${share})`}`],
    brief,
    [blocks[0], ...blocks.slice(2)],
  ].map((parts) => parts.join(" · "));
}

/** @param {Surface} surface @param {Scene} scene @param {Grid} grid @param {Holdings} holdings @param {number} block @param {boolean} evicted */
function drawBlock(surface, scene, grid, holdings, block, evicted) {
  const { theme, state, focus, run, size } = scene;
  const { cell, columns, top } = grid;
  const gap = cell > 12 ? 2 : 1;
  const x = (block % columns) * cell;
  const y = top + Math.floor(block / columns) * cell;
  const side = cell - gap;
  const radius = cell > 14 ? 4 : 1;
  const request = holdings.owner[block];
  const held = request >= 0;
  const cachedBy = state.cached.get(block);
  const stands = focus === null || focus === (held ? request : cachedBy);
  surface.ctx.globalAlpha = stands ? 1 : 0.3;
  if (block === 0) drawNullBlock(surface, scene, x, y, side, radius);
  else if (held) {
    const share = holdings.filled[block] / (run.config.block_size ?? 1);
    drawHeld(surface, scene, { x, y, side, radius, request, share });
  } else if (cachedBy !== undefined) {
    surface.card(x, y, side, side, radius, mix(lookOf(cachedBy).fill, theme.page, FADED));
  } else surface.card(x, y, side, side, radius, theme.empty);
  const references = state.refCounts.get(block) ?? 0;
  if (references > 1) surface.card(x + 1, y + 1, side - 2, side - 2, radius, null, theme.text, cell > 12 ? 2 : 1);
  if (held && cell >= size * 2) {
    const edge = (side * holdings.filled[block]) / (run.config.block_size ?? 1);
    drawLabel(surface, scene, { request, references, x, y, side, edge });
  }
  if (evicted) {
    surface.ctx.setLineDash([3, 2]);
    surface.card(x + 0.5, y + 0.5, side - 1, side - 1, radius, null, theme.warn, 2);
    surface.ctx.setLineDash([]);
  }
  surface.ctx.globalAlpha = 1;
}

/** On small blocks: lines between them, empty tails, sharing and evictions.
 * @param {Surface} surface @param {Scene} scene @param {Grid} grid @param {Holdings} holdings */
function drawSmallMarks(surface, scene, { cell, columns, rows, top }, { owner, filled }) {
  const { theme, state, run } = scene;
  const size = run.config.block_size ?? 1;
  const side = cell - 1;
  const mark = (/** @type {number} */ block, /** @type {string} */ colour) => {
    surface.ctx.strokeStyle = colour;
    surface.ctx.lineWidth = 1;
    surface.ctx.strokeRect((block % columns) * cell + 0.5, top + Math.floor(block / columns) * cell + 0.5, side - 1, side - 1);
  };
  for (let block = 1; block < owner.length; block++) {
    if (owner[block] < 0 || filled[block] === size) continue;
    const width = side * (1 - filled[block] / size);
    const x = (block % columns) * cell + side - width;
    surface.rect(x, top + Math.floor(block / columns) * cell, width, side, mix(lookOf(owner[block]).fill, theme.page, 0.6));
  }
  for (let column = 1; column <= columns; column++) surface.rect(column * cell - 1, top, 1, rows * cell, theme.page);
  for (let row = 1; row <= rows; row++) surface.rect(0, top + row * cell - 1, columns * cell, 1, theme.page);
  if (state.numShared) for (const [block, references] of state.refCounts) if (references > 1) mark(block, theme.text);
  for (const block of evictedIn(scene)) mark(block, theme.warn);
}

/** Block 0 belongs to nobody: writes that must go nowhere go there. @param {Surface} surface @param {Scene} scene @param {number} x @param {number} y @param {number} side @param {number} radius */
function drawNullBlock(surface, { theme }, x, y, side, radius) {
  surface.card(x + 0.5, y + 0.5, side - 1, side - 1, radius, null, theme.line);
  surface.line(x + 2, y + side - 2, x + side - 2, y + 2, theme.line);
}

/** @param {Surface} surface @param {Scene} scene @param {{x: number, y: number, side: number, radius: number, request: number, share: number}} block */
function drawHeld(surface, { theme, focus }, { x, y, side, radius, request, share }) {
  const fill = surface.fillOf(request);
  if (share >= 1) surface.card(x, y, side, side, radius, fill);
  else {
    surface.card(x, y, side, side, radius, mix(lookOf(request).fill, theme.page, 0.6));
    surface.rect(x, y, side * share, side, fill);
  }
  if (focus === request) surface.card(x + 0.5, y + 0.5, side - 1, side - 1, radius, null, theme.accent, 1.5);
}

/** On a plate as far as the block is filled, so that a pattern does not run through it.
 * @param {Surface} surface @param {Scene} scene @param {{request: number, references: number, x: number, y: number, side: number, edge: number}} block */
function drawLabel(surface, { size, theme }, { request, references, x, y, side, edge }) {
  const look = lookOf(request);
  const label = references > 1 ? `×${references}` : String(request);
  const width = Math.min(side - 4, label.length * size * 0.6 + 4);
  const left = (side - width) / 2;
  const plate = Math.min(width, edge - left);
  if (look.pattern !== "plain" && plate > 0) {
    surface.card(x + left, y + side / 2 - size * 0.6, plate, size * 1.2, plate < width ? 0 : 3, look.fill);
  }
  const options = { size: size * 0.9, weight: 600, align: /** @type {const} */ ("center"), max: side - 3 };
  surface.splitText(label, x + side / 2, y + side / 2 + 0.5, x + edge, [look.ink, theme.text], options);
}

/** @param {Scene} scene @param {Holdings} holdings @param {number} block */
function blockTip({ run, state }, { owner, filled, index }, block) {
  if (block === 0) return "block 0: the null block, never given out";
  const size = run.config.block_size ?? 1;
  const request = owner[block];
  const references = state.refCounts.get(block) ?? 0;
  const filledBy = state.cached.get(block);
  const cached = filledBy === undefined ? "" : `\nhas a hash: an equal prefix of ${nameOf(run, filledBy)} finds it`;
  if (request < 0) return `block ${block}: free${cached}`;
  const shared = references > 1 ? `, in ${references} tables` : "";
  return `block ${block}: entry ${index[block]} of ${nameOf(run, request)}${shared}\n${filled[block]} of ${plural(size, "token")}${cached}`;
}

export default definePanel(() => new BlockMap());
