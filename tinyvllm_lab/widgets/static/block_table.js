// @ts-check
/** The block tables: for each running request, which physical block holds which part of it. */

import { holders } from "./kv.js";
import { definePanel } from "./panel.js";
import { COLOURS, lookOf, mix } from "./theme.js";
import { count, nameOf, plural } from "./words.js";

/** @typedef {import("./panel.js").Scene} Scene */
/** @typedef {import("./draw.js").Surface} Surface */
/** @typedef {{request: number, y: number, entries: number[]}} Row the entries that are shown; -1: some are left out */

const HEAD = 2; // first entries of a long table that are shown before its tail
const GAP = -1;

class BlockTable {
  constructor() {
    /** @type {Row[]} */
    this.rows = [];
  }

  /** @param {Scene} scene */
  metrics({ width, size, options }) {
    const left = size * 5.4;
    const chip = { w: size * 3, h: size * 1.9 };
    return { left, chip, pitch: chip.h + size * 2.15, columns: Math.max(1, Math.floor((width - left) / (chip.w + 3))), top: size * 2.1, most: options.rows };
  }

  /** Room for as many rows as there are seats, so that the page does not jump. @param {Scene} scene */
  height(scene) {
    const { top, pitch, most } = this.metrics(scene);
    const seats = scene.run.config.max_num_seqs ?? most;
    return top + Math.min(seats, most) * pitch + scene.size * 0.4;
  }

  /** The tables that are shown: the one in focus is among them. @param {Scene} scene */
  chosen(scene) {
    const { most } = this.metrics(scene);
    const all = holders(scene.state).filter((r) => scene.state.requests.get(r)?.table.length);
    const shown = all.slice(0, most);
    const { focus } = scene;
    if (focus !== null && all.includes(focus) && !shown.includes(focus)) shown[most - 1] = focus;
    return { shown, hidden: all.length - shown.length };
  }

  /** @param {Surface} surface @param {Scene} scene */
  draw(surface, scene) {
    const { size, theme, width } = scene;
    const { left, pitch, columns, top } = this.metrics(scene);
    const { shown, hidden } = this.chosen(scene);
    const more = hidden > 0 ? ` · ${plural(hidden, "more table")}` : "";
    const heads = ["logical block (entry of the table) → physical block (place in the pool)", "table entry → block"];
    const options = { size, colour: theme.soft, max: width - 4 };
    surface.text(surface.roomFor(heads.map((head) => head + more), width - 4, options), 2, size * 0.8, options);
    if (shown.length === 0) {
      surface.text("No request holds a block at this step.", left, top + size * 1.4, { size, colour: theme.soft });
    }
    this.rows = shown.map((request, i) => {
      const table = scene.state.requests.get(request)?.table ?? [];
      return { request, y: top + i * pitch, entries: entriesOf(table.length, columns) };
    });
    for (const row of this.rows) this.drawRow(surface, scene, row);
  }

  /** @param {Surface} surface @param {Scene} scene @param {Row} row */
  drawRow(surface, scene, row) {
    const { size, theme, focus, state } = scene;
    const { left, chip } = this.metrics(scene);
    const { request, y } = row;
    const look = lookOf(request);
    const table = state.requests.get(request)?.table ?? [];
    surface.ctx.globalAlpha = focus === null || focus === request ? 1 : 0.35;
    surface.card(0, y + size * 1.2, size * 4.6, chip.h, 5, surface.fillOf(request));
    surface.card(3, y + size * 1.35, size * 3, chip.h - size * 0.3, 3, look.fill);
    surface.text(`#${request}`, 7, y + size * 1.2 + chip.h / 2, { size, weight: 650, colour: look.ink });
    row.entries.forEach((entry, place) => {
      const x = left + place * (chip.w + 3);
      if (entry !== GAP) {
        this.drawEntry(surface, scene, { request, entry, block: table[entry], x, y: y + size * 1.2 });
        return;
      }
      const hidden = `+${count(table.length - row.entries.length + 1)}`;
      const middle = { size, colour: theme.soft, align: /** @type {const} */ ("center"), max: chip.w };
      surface.text(hidden, x + chip.w / 2, y + size * 1.2 + chip.h / 2, middle);
    });
    surface.ctx.globalAlpha = 1;
  }

  /** @param {Surface} surface @param {Scene} scene @param {{request: number, entry: number, block: number, x: number, y: number}} place */
  drawEntry(surface, scene, { request, entry, block, x, y }) {
    const { size, theme, state, run } = scene;
    const { w, h } = this.metrics(scene).chip;
    const look = lookOf(request);
    const blockSize = run.config.block_size ?? 1;
    const computed = state.requests.get(request)?.numComputed ?? 0;
    const share = Math.max(0, Math.min(1, (computed - entry * blockSize) / blockSize));
    surface.text(String(entry), x + w / 2, y - size * 0.55, { size: size * 0.82, colour: theme.soft, align: "center" });
    surface.card(x, y, w, h, 4, mix(look.fill, theme.page, 0.72));
    surface.ctx.save();
    surface.ctx.beginPath();
    surface.ctx.rect(x, y, w * share, h);
    surface.ctx.clip();
    surface.card(x, y, w, h, 4, look.fill);
    surface.restore();
    const ink = share > 0.5 ? look.ink : theme.text;
    const centred = { size, weight: 600, align: /** @type {const} */ ("center"), max: w - 4, mono: true };
    surface.splitText(String(block), x + w / 2, y + h / 2, x + w * share, [look.ink, theme.text], centred);
    const references = state.refCounts.get(block) ?? 0;
    if (references > 1) {
      surface.card(x + 1, y + 1, w - 2, h - 2, 3, null, theme.text, 2);
      surface.text(`×${references}`, x + w - 3, y + h + 1, { size: size * 0.75, colour: theme.text, align: "right", base: "top" });
    }
    if (state.cached.has(block)) surface.card(x + w / 2 - 3, y + h - 4.5, 6, 2.5, 1, ink);
  }

  /** @param {number} x @param {number} y @param {Scene} scene */
  hit(x, y, scene) {
    const { left, chip, pitch } = this.metrics(scene);
    const row = this.rows.find((r) => y >= r.y && y < r.y + pitch);
    if (row === undefined) return null;
    const { request } = row;
    const table = scene.state.requests.get(request)?.table ?? [];
    const entry = row.entries[Math.floor((x - left) / (chip.w + 3))] ?? GAP;
    if (x < left || entry === GAP) return { request };
    return { request, tip: entryTip(scene, request, entry, table[entry]) };
  }

  /** @param {Scene} scene */
  legend({ theme }) {
    const fill = COLOURS[1];
    return [
      { fill, label: "physical block, full" },
      { fill: `linear-gradient(90deg, ${fill} 55%, ${mix(fill, theme.page, 0.72)} 55%)`, label: "partly filled" },
      { fill: theme.text, label: "shared: other tables point to it too", mark: /** @type {const} */ ("outline") },
      { fill: theme.text, label: "has a hash: an equal prefix finds it", mark: /** @type {const} */ ("line") },
    ];
  }
}

/** All entries of a table, or its head and its tail. @param {number} length @param {number} columns @returns {number[]} */
function entriesOf(length, columns) {
  if (length <= columns) return Array.from({ length }, (_, entry) => entry);
  const tail = Math.max(1, columns - HEAD - 1);
  return [0, 1, GAP, ...Array.from({ length: tail }, (_, i) => length - tail + i)];
}

/** @param {Scene} scene @param {number} request @param {number} entry @param {number} block */
function entryTip({ run, state }, request, entry, block) {
  const size = run.config.block_size ?? 1;
  const computed = state.requests.get(request)?.numComputed ?? 0;
  const tokens = Math.max(0, Math.min(size, computed - entry * size));
  const references = state.refCounts.get(block) ?? 0;
  const first = entry * size;
  return [
    `${nameOf(run, request)}: tokens ${count(first)} to ${count(first + size - 1)} → block ${block}`,
    `${tokens} of ${plural(size, "token")} computed`,
    references > 1 ? `shared: ${references} tables hold it` : "",
    state.cached.has(block) ? "has a hash: an equal prefix finds it" : "",
  ].filter(Boolean).join("\n");
}

export default definePanel(() => new BlockTable());
