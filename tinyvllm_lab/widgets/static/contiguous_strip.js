// @ts-check
/** The contiguous strip: the token slots of a contiguous allocator, in a row, with their holes. */

import { KIND } from "./events.js";
import { definePanel, requestSwatch } from "./panel.js";
import { stripOf } from "./regions.js";
import { COLOURS, lookOf, mix } from "./theme.js";
import { capacityOf, count, nameOf, plural, unitOf } from "./words.js";

/** @typedef {import("./panel.js").Scene} Scene */
/** @typedef {import("./draw.js").Surface} Surface */
/** @typedef {import("./regions.js").Strip} Strip */
/** @typedef {import("./regions.js").Region} Region */
/** @typedef {{number: number, slots: number, left: number, top: number, row: number, bar: number, scale: number}} Lines */
/** @typedef {{x: number, y: number, w: number}} Piece */

const SLOTS_A_LINE = 512;
const MOST_LINES = 10;
const TAIL = 0.6; // share of the page in the colour of reserved, empty slots
const PAGED = "The KV cache of this run is paged: it has blocks, not regions. BlockMap shows them.";

class ContiguousStrip {
  constructor() {
    this.summary = "";
    /** @type {Strip | null} */
    this.strip = null;
  }

  /** @param {Scene} scene @returns {Lines} */
  lines({ run, width, size }) {
    const capacity = capacityOf(run);
    const block = run.config.block_size ?? 1;
    const wanted = Math.max(1, Math.min(MOST_LINES, Math.ceil(capacity / SLOTS_A_LINE)));
    const slots = Math.max(1, Math.ceil(capacity / wanted / block)) * block;
    const number = Math.max(1, Math.ceil(capacity / slots));
    const left = size * 3.7;
    return {
      number, slots, left, top: size * 3.4, row: size * 2.15, bar: size * 1.6,
      scale: (width - left - 2) / slots,
    };
  }

  /** @param {Scene} scene */
  height(scene) {
    if (unitOf(scene.run) === "block") return scene.size * 2;
    const { top, number, row } = this.lines(scene);
    return top + number * row;
  }

  /** @param {Surface} surface @param {Scene} scene */
  draw(surface, scene) {
    const { run, state, size, theme, width } = scene;
    const words = { size, colour: theme.soft, max: width - 4 };
    if (unitOf(run) === "block") {
      this.summary = PAGED;
      surface.text(PAGED, 2, size, words);
      return;
    }
    const lines = this.lines(scene);
    const strip = stripOf(state, capacityOf(run));
    const texts = summaryOf(strip);
    this.strip = strip;
    this.summary = `${texts.map(([long]) => long).join(". ")}.`;
    texts.forEach((choices, row) => {
      surface.text(surface.roomFor(choices, words.max, words), 2, size * (0.75 + 1.35 * row), words);
    });
    drawHoles(surface, scene, strip, lines);
    for (const region of strip.regions) drawRegion(surface, scene, region, lines);
    drawMoves(surface, scene, strip, lines);
    for (const region of strip.regions) drawLabel(surface, scene, region, lines);
  }

  /** @param {number} x @param {number} y @param {Scene} scene */
  hit(x, y, scene) {
    const { strip } = this;
    if (strip === null || unitOf(scene.run) === "block") return null;
    const { left, top, row, bar, slots, scale, number } = this.lines(scene);
    const line = Math.floor((y - top) / row);
    const place = Math.floor((x - left) / scale);
    const slot = line * slots + place;
    const inside = line >= 0 && line < number && place >= 0 && place < slots && y - top - line * row < bar;
    if (!inside || slot >= strip.capacity) return null;
    const region = strip.regions.find((r) => slot >= r.start && slot < r.start + r.length);
    if (region !== undefined) return { request: region.request, tip: regionTip(scene, region, slot) };
    const hole = strip.holes.find((h) => slot >= h.start && slot < h.start + h.length);
    return hole ? { tip: `slot ${count(slot)}: a hole\n${range(hole)}` } : null;
  }

  /** @param {Scene} scene */
  legend({ run, theme }) {
    if (unitOf(run) === "block") return [];
    return [
      { fill: requestSwatch(), label: "slots of a request that hold tokens" },
      { fill: mix(COLOURS[1], theme.page, TAIL), label: "reserved for it, but empty" },
      { fill: theme.empty, label: "hole" },
      { fill: theme.soft, label: "the largest hole", mark: /** @type {const} */ ("dashed") },
      { fill: theme.warn, label: "moved in this step: from the dot to the outline", mark: /** @type {const} */ ("outline") },
    ];
  }

  describe() {
    return this.summary;
  }
}

/** What is held and what is free, each with its waste, from long to short. @param {Strip} strip */
function summaryOf({ regions, holes, capacity, held, internal, free, largest, external }) {
  const share = held ? ` (${((100 * internal) / held).toFixed(1)}%)` : "";
  const most = largest ? `, the largest ${count(largest.length)}` : "";
  const by = `held by ${plural(regions.length, "region")}`;
  const inHoles = `${count(free)} free in ${plural(holes.length, "hole")}`;
  return [
    [
      `${count(held)} of ${plural(capacity, "token slot")} ${by} · internal waste: ${count(internal)} of them are empty${share}`,
      `${count(held)} of ${plural(capacity, "slot")} ${by} · ${count(internal)} empty${share}`,
      `${count(held)} of ${plural(capacity, "slot")} held · ${count(internal)} empty`,
    ],
    [
      `${inHoles}${most} · external waste: ${count(external)} outside the largest`,
      `${inHoles}${most} · ${count(external)} outside it`, `${inHoles}${most}`,
    ],
  ];
}

/** Where some slots lie, line by line. @param {Lines} lines @param {number} start @param {number} length */
function piecesOf({ slots, left, top, row, scale }, start, length) {
  /** @type {Piece[]} */
  const pieces = [];
  for (let at = start; at < start + length; ) {
    const line = Math.floor(at / slots);
    const place = at - line * slots;
    const part = Math.min(start + length - at, slots - place);
    pieces.push({ x: left + place * scale, y: top + line * row, w: part * scale });
    at += part;
  }
  return pieces;
}

/** @param {Surface} surface @param {Scene} scene @param {Strip} strip @param {Lines} lines */
function drawHoles(surface, { theme, size }, { capacity, largest }, lines) {
  const { number, slots, left, top, row, bar } = lines;
  for (let line = 0; line < number; line++) {
    surface.text(count(line * slots), left - size * 0.5, top + line * row + bar / 2, {
      size: size * 0.88, colour: theme.soft, align: "right",
    });
  }
  for (const { x, y, w } of piecesOf(lines, 0, capacity)) surface.rect(x, y, w, bar, theme.empty);
  if (largest === null) return;
  surface.ctx.setLineDash([3, 3]);
  for (const { x, y, w } of piecesOf(lines, largest.start, largest.length)) {
    surface.card(x + 0.5, y + 0.5, Math.max(w - 1, 1), bar - 1, 1, null, theme.soft);
  }
  surface.ctx.setLineDash([]);
}

/** @param {Surface} surface @param {Scene} scene @param {Region} region @param {Lines} lines */
function drawRegion(surface, { theme, focus }, { request, start, length, used }, lines) {
  const { bar } = lines;
  const { fill } = lookOf(request);
  surface.ctx.globalAlpha = focus === null || focus === request ? 1 : 0.3;
  for (const { x, y, w } of piecesOf(lines, start, length)) surface.rect(x, y, w, bar, mix(fill, theme.page, TAIL));
  for (const { x, y, w } of piecesOf(lines, start, used)) surface.rect(x, y, w, bar, surface.fillOf(request));
  for (const { x, y } of piecesOf(lines, start, 1)) surface.rect(x, y, 1, bar, theme.page); // the next one begins
  surface.ctx.globalAlpha = 1;
}

/** On the widest piece. @param {Surface} surface @param {Scene} scene @param {Region} region @param {Lines} lines */
function drawLabel(surface, { focus, size }, { request, start, length }, lines) {
  const { bar } = lines;
  const look = lookOf(request);
  const pieces = piecesOf(lines, start, length);
  const widest = pieces.reduce((a, b) => (b.w > a.w ? b : a), { x: 0, y: 0, w: 0 });
  const label = `#${request}`;
  const needs = label.length * size * 0.58 + 6;
  if (widest.w < needs + 5) return;
  surface.ctx.globalAlpha = focus === null || focus === request ? 1 : 0.3;
  surface.card(widest.x + 3, widest.y + bar * 0.16, needs, bar * 0.68, 3, look.fill);
  surface.text(label, widest.x + 3 + needs / 2, widest.y + bar / 2 + 0.5, {
    size: size * 0.88, weight: 600, colour: look.ink, align: "center", max: needs,
  });
  surface.ctx.globalAlpha = 1;
}

/** @param {Surface} surface @param {Scene} scene @param {Strip} strip @param {Lines} lines */
function drawMoves(surface, { run, step, theme, size }, { regions }, lines) {
  if (run.numSteps === 0) return;
  const { bar } = lines;
  for (const [kind, request, from] of run.eventsOf(step)) {
    const region = kind === KIND.REGION_MOVE && regions.find((r) => r.request === request);
    if (!region) continue;
    const pieces = piecesOf(lines, region.start, region.length);
    for (const { x, y, w } of pieces) {
      surface.card(x + 0.5, y + 0.5, Math.max(w - 1, 2), bar - 1, 1, null, theme.warn, 2);
    }
    const [old] = piecesOf(lines, from, 1);
    const radius = size / 3;
    surface.line(old.x + radius, old.y + bar, pieces[0].x, pieces[0].y + bar / 2, theme.warn);
    surface.card(old.x, old.y + bar - radius, 2 * radius, 2 * radius, radius, theme.warn, theme.page);
  }
}

/** @param {{start: number, length: number}} part */
const range = ({ start, length }) => `slots ${count(start)} to ${count(start + length - 1)}: ${count(length)}`;

/** @param {Scene} scene @param {Region} region @param {number} slot */
function regionTip({ run }, region, slot) {
  const state = slot < region.start + region.used ? "holds a token" : "reserved, but empty";
  return `slot ${count(slot)}: ${state}\n${nameOf(run, region.request)}, ${range(region)}, ${count(region.used)} used`;
}

export default definePanel(() => new ContiguousStrip());
