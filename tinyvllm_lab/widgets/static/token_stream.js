// @ts-check
/** The token stream: what each request has written so far, token by token. */

import { REASON_WORDS } from "./events.js";
import { definePanel, requestSwatch } from "./panel.js";
import { countUpTo } from "./series.js";
import { lookOf } from "./theme.js";
import { count, plural, seatsOf } from "./words.js";

/** @typedef {import("./panel.js").Scene} Scene */
/** @typedef {import("./draw.js").Surface} Surface */

class TokenStream {
  constructor() {
    /** @type {number[]} */
    this.shown = [];
  }

  /** @param {Scene} scene */
  rows(scene) {
    return Math.max(2, Math.min(scene.options.rows, seatsOf(scene.run, scene.state)));
  }

  /** @param {Scene} scene */
  height(scene) {
    return this.rows(scene) * this.pitch(scene);
  }

  /** @param {Scene} scene */
  pitch({ size }) {
    return size * 3.4;
  }

  /** Those in seats, by seat; then those who left last. @param {Scene} scene */
  chosen(scene) {
    const { state, run, step } = scene;
    const rows = this.rows(scene);
    const seated = [...state.slots.keys()].sort((x, y) => x - y).map((slot) => state.slots.get(slot) ?? 0);
    const shown = seated.slice(0, rows);
    const { marks } = run.series;
    for (let i = marks.length - 1; i >= 0 && shown.length < rows; i--) {
      if (marks[i].step > step || marks[i].reason < 0 || shown.includes(marks[i].request)) continue;
      shown.push(marks[i].request);
    }
    const { focus } = scene;
    if (focus !== null && state.requests.has(focus) && !shown.includes(focus)) shown[rows - 1] = focus;
    return shown;
  }

  /** @param {Surface} surface @param {Scene} scene */
  draw(surface, scene) {
    this.shown = this.chosen(scene);
    this.shown.forEach((request, place) => drawRow(surface, scene, request, place * this.pitch(scene)));
    if (this.shown.length === 0) {
      surface.text("No request is running yet.", 2, this.pitch(scene) / 2, { size: scene.size, colour: scene.theme.soft });
    }
  }

  /** @param {number} _x @param {number} y @param {Scene} scene */
  hit(_x, y, scene) {
    const request = this.shown[Math.floor(y / this.pitch(scene))];
    return request === undefined ? null : { request };
  }

  /** @param {Scene} scene */
  legend({ theme, run }) {
    const known = Object.keys(run.texts).length > 0;
    return [
      { fill: requestSwatch(), label: "token of this step" },
      { fill: theme.empty, label: known ? "earlier tokens" : "earlier tokens, as ids: this run has no text" },
    ];
  }

  /** @param {Scene} scene */
  describe(scene) {
    return this.shown.slice(0, 4).map((r) => `#${r}: ${textOf(scene, r).slice(-120)}`).join(" ");
  }
}

/** Tokens of a request up to the shown step. @param {Scene} scene @param {number} request */
function tokensOf({ run, step }, request) {
  const tokens = run.series.tokens.get(request);
  if (tokens === undefined) return { ids: [], isNew: false };
  const length = countUpTo(tokens.steps, step);
  return { ids: tokens.ids.slice(0, length), isNew: tokens.steps[length - 1] === step };
}

/** @param {Scene} scene @param {number} request */
function textOf(scene, request) {
  return tokensOf(scene, request).ids.map((id) => scene.run.texts[id] ?? ` ${id}`).join("");
}

/** @param {Surface} surface @param {Scene} scene @param {number} request @param {number} y */
function drawRow(surface, scene, request, y) {
  const { size, width, theme, state, focus, run } = scene;
  const record = state.requests.get(request);
  const look = lookOf(request);
  const left = size * 5.4;
  surface.ctx.globalAlpha = focus === null || focus === request ? 1 : 0.35;
  surface.card(0, y + 2, size * 4.6, size * 2.9, 5, surface.fillOf(request));
  surface.card(3, y + 5, size * 4.6 - 6, size * 2.9 - 6, 3, look.fill);
  surface.text(`#${request}`, 8, y + size * 1.1, { size, weight: 650, colour: look.ink });
  surface.text(statusWords(record), 8, y + size * 2.2, { size: size * 0.8, colour: look.ink, max: size * 4.6 - 12 });
  const prompt = run.requests[request]?.prompt;
  const about = prompt
    ? `“${prompt.replaceAll(/\s+/g, " ")}”`
    : `prompt of ${plural(record?.promptTokens ?? 0, "token")}`;
  const output = record ? `${count(record.numOutput)} of ${count(record.maxTokens)}` : "";
  surface.text(output, width - 2, y + size * 0.9, { size: size * 0.88, colour: theme.soft, align: "right" });
  surface.text(about, left, y + size * 0.9, { size: size * 0.92, colour: theme.soft, max: width - left - size * 8 });
  drawTokens(surface, scene, request, { x: left, y: y + size * 1.65, w: width - left - 2, h: size * 1.5 });
  surface.ctx.globalAlpha = 1;
}

/** @param {import("./state.js").RequestState | undefined} record */
function statusWords(record) {
  if (record === undefined) return "";
  return record.status === "finished" ? REASON_WORDS[record.reason ?? 0] : record.status;
}

/** The newest tokens that fit, the last one in the request's colour if it is new.
 * @param {Surface} surface @param {Scene} scene @param {number} request @param {{x: number, y: number, w: number, h: number}} box */
function drawTokens(surface, scene, request, box) {
  const { run, size, theme } = scene;
  const { ids, isNew } = tokensOf(scene, request);
  const advance = surface.widthOf("0", surface.setFont({ size, mono: true }));
  /** @type {[string, number][]} */
  const pieces = [];
  let room = box.w;
  for (let i = ids.length - 1; i >= 0; i--) {
    const text = (run.texts[ids[i]] ?? String(ids[i])).replaceAll("\n", "↵").replaceAll("\t", "→");
    const width = Math.max(1, text.length) * advance + size * 0.35;
    if (width > room) break;
    room -= width;
    pieces.unshift([text, width]);
  }
  let x = box.x;
  pieces.forEach(([text, width], place) => {
    const fresh = isNew && place === pieces.length - 1;
    const look = lookOf(request);
    surface.card(x, box.y, width - 1.5, box.h, 3, fresh ? look.fill : theme.empty);
    surface.text(text, x + size * 0.1, box.y + box.h / 2 + 0.5, { size, mono: true, colour: fresh ? look.ink : theme.text });
    x += width;
  });
}

export default definePanel(() => new TokenStream());
