// @ts-check
/**
 * Latency against throughput: one workload at rising rates, each point a run of the real scheduler
 * in simulated time. The kernel computes the runs and sends each point as it is done; limits,
 * percentiles and axes are the browser's own, and work without a kernel.
 */

import { shape } from "./calculator.js";
import { Chart, linearAxis, logAxis } from "./chart.js";
import { best, goodput, heard, latencyOf, saturation } from "./load_curves.js";
import { Knobs } from "./load_knobs.js";
import { LATENCIES, pointWords, progress, rateText, sentences } from "./load_words.js";
import { count, duration } from "./words.js";

/**
 * @typedef {import("./load_curves.js").Point} Point
 * @typedef {import("./load_curves.js").Curve} Curve
 * @typedef {import("./load_curves.js").Choice} Choice
 */

const THROUGHPUTS = { tokens: "output tokens a second", requests: "requests served a second" };
const LEGEND = [
  ["tvl-curve", "latency"], ["tvl-good", "goodput: requests a second that meet both limits"],
  ["tvl-served", "served"], ["tvl-offered", "offered"], ["tvl-limit", "limit"],
  ["tvl-curve tvl-ghost", "before the last knob"], ["tvl-hollow", "the queue grows"], ["tvl-best", "best rate"],
];
/** @type {Record<string, string>} */
const MARKS = { "tvl-hollow": "tvl-dot tvl-curve tvl-hollow", "tvl-best": "tvl-best" };
const ONE_COLUMN = 56; // em: below it the charts stand one under the other

/** Largest of the values, or 1 if there is none. @param {number[]} values */
const most = (values) => Math.max(...values.filter(Number.isFinite), 0) || 1;

class View {
  /** @param {any} model @param {HTMLElement} root @param {AbortSignal} signal */
  constructor(model, root, signal) {
    this.model = model;
    this.root = root;
    /** @type {import("./load_curves.js").Curves} */
    this.curves = model.get("curves") ?? model.get("opening");
    this.asked = 0;
    this.draws = 0;
    beginRoot(root, model.get("size"));
    const head = part(root, "div", "tvl-head");
    part(head, "span", "tvl-title").textContent = "Latency and throughput";
    part(head, "span", "tvl-badge").textContent = "simulated";
    this.now = part(head, "span", "tvl-now");
    this.knobs = new Knobs(model, root, signal);
    this.stage = part(root, "div", "tvl-charts");
    this.svgs = [emptyChart(this.stage), emptyChart(this.stage)];
    part(root, "div", "tvl-legend").append(...LEGEND.map(legendItem));
    this.answer = part(root, "div", "tvl-answer tvl-lines");
    this.readout = part(root, "div", "tvl-readout tvl-lines");
    this.readout.setAttribute("role", "status");
    this.caption = part(root, "div", "tvl-caption");
    this.error = part(root, "details", "tvl-error");
    this.connect(signal);
    model.send({ k: "ready" });
    this.ask();
  }

  /** @param {AbortSignal} signal */
  connect(signal) {
    const { model, root, stage } = this;
    const ask = () => this.ask();
    const hear = (/** @type {any} */ message) => this.hear(message);
    const open = () => this.hear({ k: "all", ...model.get("opening") });
    model.on("change:choice", ask);
    model.on("change:selected_place", ask);
    model.on("change:opening", open);
    model.on("msg:custom", hear);
    const resized = new ResizeObserver(ask);
    resized.observe(stage);
    signal.addEventListener("abort", () => {
      model.off("change:choice", ask);
      model.off("change:selected_place", ask);
      model.off("change:opening", open);
      model.off("msg:custom", hear);
      resized.disconnect();
    });
    root.addEventListener("keydown", (event) => this.key(event), { signal });
    stage.addEventListener("click", (event) => this.click(event), { signal });
  }

  /** @param {any} message */
  hear(message) {
    this.curves = heard(this.curves, message);
    this.knobs.answered();
    this.ask();
  }

  /** Draw in the next frame of the browser. */
  ask() {
    if (this.asked === 0) this.asked = requestAnimationFrame(() => this.draw());
  }

  /** @returns {Choice} */
  get choice() {
    return this.model.get("choice");
  }

  /** @returns {Point[]} */
  get points() {
    return this.curves.curve?.points ?? [];
  }

  /** @returns {Point | undefined} */
  get selected() {
    return this.points.find((point) => point.place === this.model.get("selected_place"));
  }

  // ------------------------------------------------------------------ choosing

  /** @param {MouseEvent} event */
  click(event) {
    const place = /** @type {HTMLElement} */ (event.target).dataset?.place;
    if (place !== undefined) this.select(Number(place));
  }

  /** @param {number | null} place */
  select(place) {
    this.model.set("selected_place", place);
    this.model.save_changes();
    this.ask();
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const target = /** @type {HTMLElement} */ (event.target);
    if (event.ctrlKey || event.metaKey || event.altKey || target !== this.root) return;
    const places = this.points.map((point) => point.place);
    const at = places.indexOf(this.model.get("selected_place"));
    const next = /** @type {Record<string, number>} */ ({
      ArrowLeft: at < 0 ? places.length - 1 : at - 1, ArrowRight: at + 1, Home: 0, End: places.length - 1,
    })[event.key];
    if (event.key === "Escape") this.select(null);
    else if (next === undefined) return;
    else if (next in places) this.select(places[next]);
    event.preventDefault();
    event.stopPropagation();
  }

  // ------------------------------------------------------------------- drawing

  draw() {
    this.asked = 0;
    const room = this.stage.clientWidth;
    if (room === 0) return;
    const unit = Number.parseFloat(getComputedStyle(this.root).fontSize);
    const alone = room < ONE_COLUMN * unit;
    const width = alone ? room : (room - 1.5 * unit) / 2;
    this.knobs.follow();
    this.drawLatency(width, 25 * unit, unit);
    this.drawGoodput(width, 25 * unit, unit);
    this.writeWords();
    this.draws += 1;
  }

  /** All curves on the page, the former one first. */
  get shown() {
    return /** @type {Curve[]} */ ([this.curves.former, this.curves.curve].filter(Boolean));
  }

  /** @param {number} width @param {number} height @param {number} unit */
  drawLatency(width, height, unit) {
    const { choice, shown } = this;
    const limit = 1000 * ({ ttft: choice.ttft_ms, tpot: choice.tpot_ms, e2e: 0 })[choice.latency];
    const times = shown.flatMap((c) => c.points.map((point) => latencyOf(point, choice)));
    const all = [...times, limit].filter((time) => time > 0);
    const [low, high] = all.length ? [Math.min(...all) / 1.4, Math.max(...all) * 1.4] : [1e4, 1e6];
    const widest = most(shown.flatMap((c) => [
      c.capacity?.[choice.throughput] ?? 0, ...c.points.map((point) => point[choice.throughput]),
    ]));
    const chart = new Chart(this.svgs[0], width, height, unit, linearAxis(1.08 * widest, count), logAxis(low, high, duration));
    const name = `${LATENCIES[choice.latency]}, ${choice.percentile}`;
    chart.grid(THROUGHPUTS[choice.throughput], name);
    const capacity = this.curves.curve?.capacity;
    if (capacity) chart.upright(capacity[choice.throughput], "tvl-capacity", "capacity");
    if (limit) chart.line([[0, limit], [1.08 * widest, limit]], "tvl-limit");
    const place = (/** @type {Point} */ p) => /** @type {[number, number]} */ ([p[choice.throughput], latencyOf(p, choice)]);
    this.drawCurve(chart, place, "tvl-curve", (p) => `${name} ${duration(latencyOf(p, choice))}`);
  }

  /** @param {number} width @param {number} height @param {number} unit */
  drawGoodput(width, height, unit) {
    const { choice, shown } = this;
    const widest = most(shown.flatMap((c) => [1.5 * (c.capacity?.requests ?? 0), ...c.points.map((p) => p.rate)]));
    const highest = most(shown.flatMap((c) => [c.capacity?.requests ?? 0, ...c.points.map((p) => p.requests)]));
    const top = 1.12 * highest;
    const chart = new Chart(this.svgs[1], width, height, unit, linearAxis(1.02 * widest, rateText), linearAxis(top, rateText));
    const full = saturation(this.points);
    if (full) {
      const x = chart.x(full.rate);
      chart.add("rect", { x, y: chart.top, width: chart.right - x, height: chart.bottom - chart.top, class: "tvl-full" });
      chart.text("the queue grows", chart.right - 0.5 * unit, chart.top + 1.3 * unit, "tvl-tick", "end");
    }
    chart.grid("requests offered a second", "requests a second");
    chart.line([[0, 0], [Math.min(top, widest), Math.min(top, widest)]], "tvl-offered");
    chart.line(this.points.map((p) => [p.rate, p.requests]), "tvl-served");
    const found = best(this.points, choice);
    if (found) chart.upright(found.rate, "tvl-best", `best: ${rateText(found.rate)}`);
    const place = (/** @type {Point} */ p) => /** @type {[number, number]} */ ([p.rate, goodput(p, choice)]);
    this.drawCurve(chart, place, "tvl-good", (p) => `${rateText(goodput(p, choice))} requests a second are good`);
  }

  /** The former curve, the curve, and its marks. @param {Chart} chart @param {(point: Point) => [number, number]} place @param {string} name class @param {(point: Point) => string} words */
  drawCurve(chart, place, name, words) {
    const { former } = this.curves;
    if (former) chart.line(former.points.map(place), `${name} tvl-ghost`);
    chart.line(this.points.map(place), name);
    const found = best(this.points, this.choice);
    for (const point of this.points) {
      const [x, y] = place(point);
      if (!Number.isFinite(y)) continue;
      const at = { cx: chart.x(x), cy: chart.y(y) };
      if (point === found) chart.add("circle", { ...at, r: 0.85 * chart.unit, class: "tvl-best" });
      if (point === this.selected) chart.add("circle", { ...at, r: 0.85 * chart.unit, class: "tvl-selected" });
      chart.add("circle", { ...at, r: 0.4 * chart.unit, class: `tvl-dot ${name}${point.saturated ? " tvl-hollow" : ""}` });
      const target = chart.add("circle", { ...at, r: 1.1 * chart.unit, class: "tvl-target", "data-place": point.place });
      target.append(shape("title", {}, `${rateText(point.rate)} requests a second offered: ${words(point)}`));
    }
  }

  // --------------------------------------------------------------------- words

  writeWords() {
    const { curve, former } = this.curves;
    this.root.toggleAttribute("data-former", former !== null);
    this.now.textContent = progress(curve);
    const text = sentences(curve, former, this.choice).join("\n");
    this.answer.textContent = text;
    for (const svg of this.svgs) svg.setAttribute("aria-label", `${svg.querySelector(".tvl-chart-name")?.textContent}. ${text}`);
    const readout = this.selected ? pointWords(this.selected, this.choice) : "Click a mark, or press an arrow key, to see its numbers.";
    if (this.readout.textContent !== readout) this.readout.textContent = readout;
    this.caption.textContent = this.model.get("caption").replace("{requests}", count(curve?.num_requests ?? 0))
      .replace("{model}", `${curve?.knobs.model ?? ""}`).replace("{gpu}", `${curve?.knobs.gpu ?? ""}`);
    this.error.hidden = !curve?.error;
    if (!curve?.error) return;
    const summary = document.createElement("summary");
    summary.textContent = curve.error;
    const trace = document.createElement("pre");
    trace.textContent = curve.traceback;
    this.error.replaceChildren(summary, ...(curve.traceback ? [trace] : []));
  }
}

/** @param {HTMLElement} root @param {string} size */
function beginRoot(root, size) {
  root.classList.add("tvl", "tvl-load");
  root.dataset.size = size;
  root.tabIndex = 0;
  root.dataset.lmSuppressShortcuts = ""; // JupyterLab's: its arrow keys move between cells
  root.setAttribute("role", "group");
  root.setAttribute("aria-label", "Latency and throughput. Arrow keys choose a rate.");
}

/** @param {HTMLElement} parent @param {string} tag @param {string} name class */
function part(parent, tag, name) {
  const made = document.createElement(tag);
  made.className = name;
  parent.append(made);
  return made;
}

/** @param {HTMLElement} parent */
function emptyChart(parent) {
  const svg = shape("svg", { role: "img" });
  parent.append(svg);
  return svg;
}

/** @param {string[]} item class, label */
function legendItem([name, label]) {
  const key = document.createElement("span");
  key.className = "tvl-key";
  const icon = shape("svg", { viewBox: "0 0 20 12", width: 20, height: 12, "aria-hidden": "true" });
  if (name in MARKS) icon.append(shape("circle", { cx: 10, cy: 6, r: 4.5, class: MARKS[name] }));
  else icon.append(shape("line", { x1: 0, x2: 20, y1: 6, y2: 6, class: name }));
  key.append(icon, label);
  return key;
}

/** For tests: what the newest view shows. @param {View} view */
function publish(view) {
  const page = /** @type {any} */ (globalThis);
  const element = /** @type {any} */ (view.root);
  page.__tinyvllm ??= {};
  page.__tinyvllm.latency_throughput = element.tinyvllm = {
    name: "latency_throughput",
    get curve() { return view.curves.curve; },
    get former() { return view.curves.former; },
    get selected() { return view.selected?.place ?? null; },
    get draws() { return view.draws; },
  };
}

export default {
  /** @param {{model: any, el: HTMLElement}} context */
  render({ model, el }) {
    const ended = new AbortController();
    const root = document.createElement("div");
    el.append(root);
    publish(new View(model, root, ended.signal));
    return () => ended.abort();
  },
};
