// @ts-check
/** The metric strip: what an operator watches, as numbers now and as lines over the run. */

import { holdingsOf } from "./kv.js";
import { definePanel } from "./panel.js";
import { countBelow, countUpTo } from "./series.js";
import { capacityOf, count, duration, unitOf, usedOf } from "./words.js";

/** @typedef {import("./panel.js").Scene} Scene */
/** @typedef {import("./draw.js").Surface} Surface */
/** @typedef {import("./replayer.js").Run} Run */

/** @typedef {import("./series.js").Sample} Sample */

/** @typedef {{colour: "first" | "second", points: [number, number][]}} Curve of the theme; row of the series and value */
/** @typedef {{x: number, y: number, w: number, h: number}} Box */
/** @typedef {{name: string, value: string, note: string, unit: string, curves: Curve[]}} Tile */

const TILES = 5;
const WINDOW_US = 1e6; // throughput is that of the last second
const POINTS = 240; // of a line

class MetricStrip {
  constructor() {
    /** @type {Curves | null} */
    this.curves = null;
  }

  /** Where the tiles are: in rows that are equally full, give or take one. @param {{width: number, size: number}} scene @returns {Box[]} */
  boxes({ width, size }) {
    const fit = Math.max(1, Math.min(TILES, Math.floor(width / (size * 15))));
    const columns = Math.ceil(TILES / Math.ceil(TILES / fit));
    const h = size * 10.2;
    return Array.from({ length: TILES }, (_, i) => {
      const row = Math.floor(i / columns);
      const inRow = Math.min(columns, TILES - row * columns);
      const w = (width - (inRow - 1) * size) / inRow;
      return { x: (i % columns) * (w + size), y: row * (h + size * 0.7), w, h };
    });
  }

  /** @param {Scene} scene */
  height(scene) {
    const last = this.boxes(scene)[TILES - 1];
    return last.y + last.h + scene.size * 0.7;
  }

  /** @param {Surface} surface @param {Scene} scene */
  draw(surface, scene) {
    const boxes = this.boxes(scene);
    if (this.curves?.run !== scene.run) this.curves = new Curves(scene.run);
    this.curves.update();
    tilesOf(scene, this.curves).forEach((tile, i) => drawTile(surface, scene, tile, boxes[i]));
  }

  /** @param {number} x @param {number} y @param {Scene} scene */
  hit(x, y, scene) {
    const { run, size } = scene;
    const box = this.boxes(scene).find((b) => x >= b.x && x < b.x + b.w && y >= b.y && y < b.y + b.h);
    const share = box && y - box.y >= size * 3 ? (x - box.x - 6) / (box.w - 12) : -1;
    if (share < 0 || share > 1) return null;
    const step = run.firstStep + Math.round(share * (run.lastStep - run.firstStep));
    return { step, tip: `step ${count(step)}` };
  }

  /** @param {Scene} scene */
  legend({ theme }) {
    return [
      { fill: theme.text, label: "the shown step; a click on a line goes there", mark: /** @type {const} */ ("line") },
      { fill: theme.first, label: "running, output, median, used", mark: /** @type {const} */ ("line") },
      { fill: theme.second, label: "waiting, slowest tenth (p90)", mark: /** @type {const} */ ("line") },
    ];
  }

  /** @param {Scene} scene */
  describe(scene) {
    if (this.curves === null) return "";
    return tilesOf(scene, this.curves).map((t) => `${t.name}: ${t.value} ${t.note}`).join(". ");
  }
}

/** Percentiles of all samples up to each one. */
class Percentiles {
  /** @param {Sample[]} samples in the order of the steps; more may come */
  constructor(samples) {
    this.samples = samples;
    /** @type {number[]} */
    this.sorted = [];
    /** @type {number[]} */
    this.steps = [];
    /** @type {number[]} */
    this.p50 = [];
    /** @type {number[]} */
    this.p90 = [];
  }

  update() {
    while (this.steps.length < this.samples.length) {
      const { step, value } = this.samples[this.steps.length];
      this.sorted.splice(countUpTo(this.sorted, value), 0, value);
      this.steps.push(step);
      this.p50.push(percentile(this.sorted, 0.5));
      this.p90.push(percentile(this.sorted, 0.9));
    }
  }

  /** @param {"p50" | "p90"} which @param {number} step */
  at(which, step) {
    const known = countUpTo(this.steps, step);
    return known ? this[which][known - 1] : NaN;
  }
}

/** @param {number[]} sorted @param {number} share between neighbours linearly */
function percentile(sorted, share) {
  const place = share * (sorted.length - 1);
  const low = Math.floor(place);
  const high = Math.min(low + 1, sorted.length - 1);
  return sorted[low] + (sorted[high] - sorted[low]) * (place - low);
}

/** The lines of the tiles; they change when the run grows, not with the shown step. */
class Curves {
  /** @param {Run} run */
  constructor(run) {
    this.run = run;
    this.known = -1; // steps that the lines know of
    this.ttft = new Percentiles(run.series.ttft);
    this.tpot = new Percentiles(run.series.tpot);
    /** @type {Curve[][]} by tile */
    this.tiles = [];
  }

  update() {
    this.ttft.update();
    this.tpot.update();
    if (this.known === this.run.numSteps) return;
    this.known = this.run.numSteps;
    const { series, firstStep } = this.run;
    this.tiles = [
      [
        this.curve("first", (i) => series.running.values[i]),
        this.curve("second", (i) => series.waiting.values[i]),
      ],
      [this.curve("first", (i) => throughput(this.run, i))],
      ...[this.ttft, this.tpot].map((times) => [
        this.curve("first", (i) => times.at("p50", i + firstStep)),
        this.curve("second", (i) => times.at("p90", i + firstStep)),
      ]),
      [this.curve("first", (i) => series.used.values[i])],
    ];
  }

  /** @param {"first" | "second"} colour @param {(row: number) => number} at @returns {Curve} */
  curve(colour, at) {
    const rows = this.run.stepStarts.length;
    /** @type {[number, number][]} */
    const points = [];
    const each = Math.max(1, rows / POINTS);
    for (let i = 0; i < rows; i += each) {
      const row = Math.floor(i);
      const value = at(row);
      if (Number.isFinite(value)) points.push([row, value]);
    }
    return { colour, points };
  }
}

/** Output tokens a second over the last second of engine clock. @param {Run} run @param {number} row */
function throughput({ series }, row) {
  const { clock, outputsSoFar } = series;
  const end = series.clockEnd.values[row];
  const first = countBelow(clock.values, end - WINDOW_US, row + 1);
  const start = clock.values[first];
  if (first > row || end <= start) return NaN;
  const before = first ? outputsSoFar.values[first - 1] : 0;
  return ((outputsSoFar.values[row] - before) * 1e6) / (end - start);
}

/** @param {Scene} scene @param {Curves} curves @returns {Tile[]} */
function tilesOf(scene, { tiles, ttft, tpot }) {
  const { run, step, state } = scene;
  const capacity = capacityOf(run) || 1;
  const used = usedOf(run, state);
  const { held, wasted } = holdingsOf(run, state);
  const speed = throughput(run, run.series.row(step));
  return [
    {
      name: "Requests", value: `${count(state.slots.size)} running`, unit: "",
      note: `${count(state.queue.size)} waiting`, curves: tiles[0] ?? [],
    },
    {
      name: "Throughput", value: Number.isFinite(speed) ? `${count(Math.round(speed))} tok/s` : "–",
      note: "output, last second", unit: "tok/s", curves: tiles[1] ?? [],
    },
    latencyTile("TTFT", "to the first token", ttft, step, tiles[2]),
    latencyTile("TPOT", "per further token", tpot, step, tiles[3]),
    {
      name: "KV memory", value: `${((100 * used) / capacity).toFixed(0)} % used`, unit: `${unitOf(run)}s`,
      note: held ? `${((100 * wasted) / held).toFixed(1)} % of it empty` : "nothing held",
      curves: tiles[4] ?? [],
    },
  ];
}

/** @param {string} name @param {string} about @param {Percentiles} times @param {number} step @param {Curve[] | undefined} curves @returns {Tile} */
function latencyTile(name, about, times, step, curves) {
  return {
    name, value: duration(times.at("p50", step)), unit: "s", curves: curves ?? [],
    note: `${about}; p90 ${duration(times.at("p90", step))}`,
  };
}

/** @param {Surface} surface @param {Scene} scene @param {Tile} tile @param {Box} box */
function drawTile(surface, scene, tile, { x, y, w, h }) {
  const { size, theme, run, step } = scene;
  surface.card(x, y, w, h, 6, theme.panel);
  const name = surface.text(tile.name, x + 6, y + size, { size, weight: 650 });
  surface.text(tile.value, x + w - 6, y + size, { size: size * 1.05, weight: 650, align: "right", max: w - name - 16 });
  surface.text(tile.note, x + 6, y + size * 2.5, { size: size * 0.9, colour: theme.soft, max: w - 12 });
  const chart = { x: x + 6, y: y + size * 4.1, w: w - 12, h: h - size * 4.9 };
  const rows = Math.max(run.numSteps - run.firstStep, 1);
  const top = Math.max(...tile.curves.flatMap(({ points }) => points.map(([, v]) => v)), 0) || 1;
  surface.line(chart.x, chart.y + chart.h, chart.x + chart.w, chart.y + chart.h, theme.line);
  const shown = tile.unit === "s" ? duration(top) : `${count(Math.round(top))} ${tile.unit}`.trim();
  surface.text(`max ${shown}`, chart.x + chart.w, chart.y - size * 0.35, { size: size * 0.78, colour: theme.soft, align: "right" });
  for (const { colour, points } of tile.curves) drawLine(surface, chart, points, rows, top, theme[colour]);
  const now = chart.x + (chart.w * (step - run.firstStep)) / Math.max(rows - 1, 1);
  surface.rect(Math.min(now, chart.x + chart.w - 1.5), chart.y, 1.5, chart.h, theme.text);
}

/** @param {Surface} surface @param {Box} chart @param {[number, number][]} points @param {number} rows @param {number} top @param {string} colour */
function drawLine({ ctx }, chart, points, rows, top, colour) {
  ctx.beginPath();
  for (const [row, value] of points) {
    const x = chart.x + (chart.w * row) / Math.max(rows - 1, 1);
    const y = chart.y + chart.h * (1 - (0.9 * value) / top);
    ctx.lineTo(x, y);
  }
  ctx.strokeStyle = colour;
  ctx.lineWidth = 1.6;
  ctx.lineJoin = "round";
  ctx.stroke();
}

export default definePanel(() => new MetricStrip());
