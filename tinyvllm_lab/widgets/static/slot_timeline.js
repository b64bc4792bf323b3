// @ts-check
/** The slot timeline: rows are seats, columns are steps. How high a bar is says what was computed. */

import { KIND, PHASE, PHASE_WORDS, REASON_WORDS } from "./events.js";
import { definePanel, requestSwatch } from "./panel.js";
import { lookOf, mix, PHASE_COLOURS } from "./theme.js";
import { count, nameOf, phasesOf, plural, seatsOf } from "./words.js";

/** @typedef {import("./panel.js").Scene} Scene */
/** @typedef {import("./draw.js").Surface} Surface */
/** @typedef {{left: number, first: number, last: number, pitch: number, top: number, rows: number, row: number, batch: number}} Layout */

const FEWEST = 20; // steps in the window
const AHEAD = 0.2; // of the window lies after the shown step
const HEIGHTS = [1, 0.5, 1]; // of a row, by phase
const FLAT = 6; // px of a row: below, corners are not rounded and rows have no gaps

class SlotTimeline {
  constructor() {
    /** @type {number | null} steps that are shown at a time; null: as the options say */
    this.span = null;
  }

  /** @param {number} factor @param {Scene} scene */
  zoom(factor, { run, options }) {
    const all = run.numSteps - run.firstStep;
    const span = Math.min(this.span ?? options.steps, Math.max(all, FEWEST));
    this.span = Math.max(FEWEST, Math.min(Math.round(span * factor), all));
  }

  /** @param {Scene} scene */
  height(scene) {
    const { top, rows, row, batch } = this.layout(scene);
    return top + rows * row + batch + scene.size * 3.2;
  }

  /** @param {Scene} scene @returns {Layout} */
  layout(scene) {
    const { run, step, width, size, options } = scene;
    const left = size * 3.2;
    const span = Math.min(this.span ?? options.steps, Math.max(run.numSteps - run.firstStep, FEWEST));
    const wanted = Math.round(step - span * (1 - AHEAD));
    const first = Math.max(run.firstStep, Math.min(wanted, run.lastStep + 1 - span));
    const rows = Math.max(seatsOf(run, scene.state), 1);
    const row = Math.max(3, Math.min(size * 2.1, (size * 22) / rows));
    return {
      left, first, last: first + span, pitch: (width - left - 2) / span, top: size * 0.4, rows, row,
      batch: size * 3.4,
    };
  }

  /** @param {Surface} surface @param {Scene} scene */
  draw(surface, scene) {
    const layout = this.layout(scene);
    drawSeats(surface, scene, layout);
    const { ctx } = surface;
    ctx.save();
    ctx.beginPath();
    ctx.rect(layout.left, 0, scene.width - layout.left, this.height(scene));
    ctx.clip();
    for (let slot = 0; slot < layout.rows; slot++) {
      drawStays(surface, scene, layout, slot);
      drawWork(surface, scene, layout, slot);
    }
    drawMarks(surface, scene, layout);
    drawBatch(surface, scene, layout);
    drawFuture(surface, scene, layout);
    for (let slot = 0; slot < layout.rows; slot++) drawLabels(surface, scene, layout, slot);
    surface.restore();
    drawAxis(surface, scene, layout);
  }

  /** @param {number} x @param {number} y @param {Scene} scene */
  hit(x, y, scene) {
    const layout = this.layout(scene);
    const { run } = scene;
    const step = layout.first + Math.floor((x - layout.left) / layout.pitch);
    if (x < layout.left || step < run.firstStep || step > run.lastStep) return null;
    const slot = Math.floor((y - layout.top) / layout.row);
    if (slot >= layout.rows || y < layout.top) return { step, tip: batchTip(scene, step) };
    const stay = at(run.series.stays.get(slot) ?? [], step);
    if (stay === null) return { step, tip: `step ${count(step)}, seat ${slot}: empty` };
    const work = at(run.series.work.get(slot) ?? [], step);
    const doing = work ? PHASE_WORDS[work.phase] : "idle: it has the seat, but computes nothing";
    return {
      step, request: stay.request,
      tip: `step ${count(step)}, seat ${slot}: ${nameOf(run, stay.request)}\n${doing}`,
    };
  }

  /** @param {Scene} scene */
  legend({ theme }) {
    return [
      { fill: requestSwatch(), label: "high bar: prefill · low bar: decode (in the request's colour)" },
      { fill: theme.empty, label: "seat empty" },
      { fill: PHASE_COLOURS[PHASE.RECOMPUTE], label: "computed again", mark: /** @type {const} */ ("outline") },
      { fill: theme.warn, label: "preempted", mark: /** @type {const} */ ("dot") },
      { fill: `linear-gradient(90deg, ${PHASE_COLOURS[0]} 50%, ${PHASE_COLOURS[1]} 50%)`, label: "below: tokens of the step, prefill and decode" },
    ];
  }
}

/** The stretch that holds a step. @template {{start: number, end: number}} T @param {T[]} list @param {number} step @returns {T | null} */
function at(list, step) {
  const found = list[firstEndingAfter(list, step)];
  return found !== undefined && found.start <= step ? found : null;
}

/** @param {{end: number}[]} list @param {number} step */
function firstEndingAfter(list, step) {
  let low = 0;
  let high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (list[middle].end > step) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** Those of a list that the window shows. @template {{start: number, end: number}} T @param {T[] | undefined} list @param {Layout} layout @returns {T[]} */
function visible(list, { first, last }) {
  if (list === undefined) return [];
  const shown = [];
  for (let i = firstEndingAfter(list, first); i < list.length && list[i].start < last; i++) shown.push(list[i]);
  return shown;
}

/** @param {Layout} layout @param {number} step */
const xOf = ({ left, first, pitch }, step) => left + (step - first) * pitch;

/** @param {Surface} surface @param {Scene} scene @param {Layout} layout */
function drawSeats(surface, { width, size, theme }, { left, top, row, rows }) {
  const every = Math.ceil((size * 1.1) / row);
  if (row < FLAT) surface.rect(left, top, width - left, rows * row, theme.panel);
  for (let slot = 0; slot < rows; slot++) {
    const y = top + slot * row;
    if (row >= FLAT) surface.rect(left, y + 0.5, width - left, row - 1, theme.panel);
    if (slot % every) continue;
    surface.text(String(slot), left - size * 0.6, y + row / 2, {
      size: size * 0.9, colour: theme.soft, align: "right",
    });
  }
  if (rows * row < size * 7) return;
  const { ctx } = surface;
  ctx.save();
  ctx.translate(size * 0.7, top + (rows * row) / 2);
  ctx.rotate(-Math.PI / 2);
  surface.text("seat", 0, 0, { size, colour: theme.soft, align: "center" });
  surface.restore();
}

/** @param {Surface} surface @param {Scene} scene @param {Layout} layout @param {number} slot */
function drawStays(surface, { run, theme, focus }, layout, slot) {
  for (const { request, start, end } of visible(run.series.stays.get(slot), layout)) {
    const x = xOf(layout, start);
    const width = (Math.min(end, run.numSteps) - start) * layout.pitch;
    surface.ctx.globalAlpha = focus === null || focus === request ? 1 : 0.3;
    const fill = mix(lookOf(request).fill, theme.panel, 0.72);
    const y = layout.top + slot * layout.row + 0.5;
    const w = Math.max(width - 0.7, 0.7);
    if (layout.row < FLAT) surface.rect(x, y, w, layout.row - 1, fill);
    else surface.card(x, y, w, layout.row - 1, 3, fill);
    surface.ctx.globalAlpha = 1;
  }
}

/** @param {Surface} surface @param {Scene} scene @param {Layout} layout @param {number} slot */
function drawWork(surface, { run, focus }, layout, slot) {
  const { row, top, pitch } = layout;
  for (const { request, phase, start, end } of visible(run.series.work.get(slot), layout)) {
    const height = Math.max(1.5, (row - 1) * HEIGHTS[phase]);
    const y = top + slot * row + (row - height) / 2;
    const width = Math.max((end - start) * pitch - 0.7, 0.7);
    surface.ctx.globalAlpha = focus === null || focus === request ? 1 : 0.3;
    surface.rect(xOf(layout, start), y, width, height, surface.fillOf(request, row > 8));
    if (phase === PHASE.RECOMPUTE) {
      surface.card(xOf(layout, start) + 0.5, y + 0.5, Math.max(width - 1, 1), height - 1, 1, null, PHASE_COLOURS[phase], 2);
    }
    surface.ctx.globalAlpha = 1;
  }
}

/** @param {Surface} surface @param {Scene} scene @param {Layout} layout @param {number} slot */
function drawLabels(surface, { run, size, width, step, theme }, layout, slot) {
  const { row, top, left } = layout;
  if (row < size * 1.1) return;
  for (const { request, start, end } of visible(run.series.stays.get(slot), layout)) {
    const x = Math.max(xOf(layout, start), left) + 2;
    const room = Math.min(xOf(layout, Math.min(end, run.numSteps)), width) - x - 2;
    const label = `#${request}`;
    const needs = label.length * size * 0.6 + 4;
    if (room < needs) continue;
    const look = lookOf(request);
    const isToCome = start > step; // as pale as its bar
    const plate = isToCome ? mix(look.fill, theme.page, 0.72) : look.fill;
    surface.card(x, top + slot * row + (row - size * 1.15) / 2, needs, size * 1.15, 3, plate);
    surface.text(label, x + 2, top + slot * row + row / 2 + 0.5, {
      size: size * 0.88, weight: 650, colour: isToCome ? theme.text : look.ink, max: needs,
    });
  }
}

/** @param {Surface} surface @param {Scene} scene @param {Layout} layout */
function drawMarks(surface, { run, theme }, layout) {
  const { marks } = run.series;
  const { row, top, pitch, first, last } = layout;
  for (let i = lowerBound(marks, first); i < marks.length && marks[i].step < last; i++) {
    const { step, slot, kind } = marks[i];
    if (slot < 0 || kind !== KIND.PREEMPT) continue;
    const x = xOf(layout, step) + Math.min(pitch, 4) / 2;
    const radius = Math.max(2, Math.min(row * 0.22, 5));
    surface.card(x - radius, top + slot * row + row / 2 - radius, 2 * radius, 2 * radius, radius, theme.warn, theme.page);
  }
}

/** @param {{step: number}[]} marks ascending @param {number} step */
function lowerBound(marks, step) {
  let low = 0;
  let high = marks.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (marks[middle].step < step) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Tokens of each step, prefill on decode, against the budget. @param {Surface} surface @param {Scene} scene @param {Layout} layout */
function drawBatch(surface, { run, theme, width }, layout) {
  const { top, rows, row, batch, first, last, pitch, left } = layout;
  const bottom = top + rows * row + batch;
  const budget = run.config.max_num_batched_tokens || 1;
  const room = batch * 0.82;
  surface.rect(left, bottom - room, width - left, room, theme.panel);
  const { prefill, decode, recompute } = run.series;
  const each = Math.max(1, Math.floor(1 / pitch)); // steps in a column: the fullest of them is drawn
  for (let step = Math.max(first, run.firstStep); step < Math.min(last, run.numSteps); step += each) {
    const at = fullest(run.series, run.series.row(step), each);
    let y = bottom;
    for (const [column, phase] of /** @type {const} */ ([[decode, 1], [prefill, 0], [recompute, 2]])) {
      const height = (room * column.values[at]) / budget;
      y -= height;
      if (height > 0) surface.rect(xOf(layout, step), y, Math.max(pitch * each - 0.4, 0.6), height, PHASE_COLOURS[phase]);
    }
  }
}

/** The row with the most tokens of so many. @param {import("./series.js").Series} series @param {number} start @param {number} rows */
function fullest({ prefill, decode, recompute }, start, rows) {
  const total = (/** @type {number} */ at) => prefill.values[at] + decode.values[at] + recompute.values[at];
  let found = start;
  const stop = Math.min(start + rows, decode.length);
  for (let at = start + 1; at < stop; at++) if (total(at) > total(found)) found = at;
  return found;
}

/** What comes after the shown step is pale. @param {Surface} surface @param {Scene} scene @param {Layout} layout */
function drawFuture(surface, { step, theme, width }, layout) {
  const x = xOf(layout, step + 1);
  const bottom = layout.top + layout.rows * layout.row + layout.batch;
  surface.ctx.globalAlpha = 0.62;
  if (x < width) surface.rect(x, 0, width - x, bottom + 1, theme.page);
  surface.ctx.globalAlpha = 1;
  surface.rect(Math.min(x, width - 2) - 1, 0, 2, bottom, theme.text);
}

/** @param {Surface} surface @param {Scene} scene @param {Layout} layout */
function drawAxis(surface, { size, theme, width, step }, layout) {
  const { top, rows, row, batch, first, last, pitch, left } = layout;
  const y = top + rows * row + batch;
  surface.text("tokens", left - size * 0.4, y - batch * 0.4, {
    size: size * 0.85, colour: theme.soft, align: "right", max: left,
  });
  const each = tickStep((last - first) / Math.max(2, (width - left) / (size * 7)));
  for (let tick = Math.ceil(first / each) * each; tick < last; tick += each) {
    const x = xOf(layout, tick) + pitch / 2;
    surface.line(x, y, x, y + 4, theme.line);
    if (x < width - size * 1.5) {
      surface.text(count(tick), x, y + size * 1.1, { size: size * 0.9, colour: theme.soft, align: "center" });
    }
  }
  surface.text("step", left - size * 0.8, y + size * 1.1, { size: size * 0.9, colour: theme.soft, align: "right" });
  const now = Math.max(left + size * 2, Math.min(xOf(layout, step) + pitch / 2, width - size * 2));
  surface.card(now - size * 2, y + size * 1.8, size * 4, size * 1.3, 3, theme.text);
  surface.text(count(step), now, y + size * 2.47, { size: size * 0.9, weight: 600, colour: theme.page, align: "center" });
}

/** 1, 2 or 5 times a power of ten. @param {number} wanted */
function tickStep(wanted) {
  const power = 10 ** Math.floor(Math.log10(Math.max(wanted, 1)));
  return [1, 2, 5, 10].map((n) => n * power).find((n) => n >= wanted) ?? 10 * power;
}

/** @param {Scene} scene @param {number} step */
function batchTip({ run }, step) {
  const parts = phasesOf(run, step).map((n, phase) => (n ? plural(n, `${PHASE_WORDS[phase]} token`) : ""));
  const ended = run.series.marks.filter((m) => m.step === step && m.kind === KIND.FINISH);
  const names = ended.map((m) => `#${m.request} ${REASON_WORDS[m.reason] ?? ""}`);
  const text = parts.filter(Boolean).join(", ") || "nothing computed";
  return `step ${count(step)}: ${text}${names.length ? `\nfinished: ${names.join(", ")}` : ""}`;
}

export default definePanel(() => new SlotTimeline());
