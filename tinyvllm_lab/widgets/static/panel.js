// @ts-check
/**
 * The frame of every panel: title, canvas, legend, controls, caption, status, keyboard, words for
 * screen readers. A panel gives `definePanel` a view that knows how to draw itself.
 */

import { Controls } from "./controls.js";
import { Surface } from "./draw.js";
import { publish } from "./hook.js";
import { link } from "./link.js";
import { storeOf } from "./page.js";
import { lookOf, themeOf, wantsLessMotion, watchTheme } from "./theme.js";
import { count, describeStep, duration, nameOf, sourceOf } from "./words.js";
import { addZoom } from "./zoom.js";

/** @typedef {import("./page.js").Store} Store */
/** @typedef {import("./replayer.js").Run} Run */
/** @typedef {import("./state.js").EngineState} EngineState */
/** @typedef {import("./theme.js").Theme} Theme */

/**
 * What a view draws.
 * @typedef {object} Scene
 * @property {Run} run
 * @property {EngineState} state after the step
 * @property {number} step
 * @property {number} width px
 * @property {number} size px of normal text: bigger for a projector
 * @property {Theme} theme
 * @property {number | null} focus request that stands out
 * @property {boolean} still no motion: jump to where things belong
 * @property {number} elapsed ms since the last picture
 * @property {Record<string, any>} options
 */

/** @typedef {{request?: number | null, step?: number | null, tip?: string}} Hit */
/** @typedef {{fill: string, label: string, mark?: "dashed" | "outline" | "dot" | "line"}} LegendItem */

/**
 * @typedef {object} View
 * @property {(scene: Scene) => number} height px that it needs
 * @property {(surface: Surface, scene: Scene) => boolean | void} draw true: draw again soon
 * @property {(x: number, y: number, scene: Scene) => Hit | null} hit what lies there
 * @property {(scene: Scene) => LegendItem[]} legend
 * @property {(scene: Scene) => string} [describe] words for screen readers, besides the step's
 * @property {(factor: number, scene: Scene) => void} [zoom] show so many times as many steps
 */

const WORDS_MS = 400; // while it moves, the words for screen readers follow so often
const SIZES = { normal: 12, presenter: 19 };

/** @param {string} tag @param {string} name @param {Element | null} [parent] @returns {any} */
function element(tag, name, parent = null) {
  const made = document.createElement(tag);
  made.className = name;
  parent?.append(made);
  return made;
}

class Frame {
  /** @param {any} model @param {HTMLElement} root @param {View} view @param {AbortSignal} signal */
  constructor(model, root, view, signal) {
    this.model = model;
    this.root = root;
    this.view = view;
    this.store = storeOf(model.get("feed_id"));
    this.size = SIZES[/** @type {"normal"} */ (model.get("size"))] ?? SIZES.normal;
    this.surface = new Surface(element("canvas", "tvl-canvas"));
    this.surface.canvas.setAttribute("role", "img");
    this.lastDraw = 0;
    this.lastWords = -Infinity;
    this.asked = 0;
    this.draws = 0;
    this.drawn = { run: -1, whole: false, steps: 0 }; // what the last picture showed
    this.legendKey = "";
    /** @type {Scene | null} */
    this.scene = null;
    /** @type {Theme | null} read when the panel is on the page */
    this.theme = null;
    this.build(signal);
    this.connect(signal);
    const linked = model.get("linked_feed");
    if (linked) link(this.store, storeOf(linked), signal);
    this.showStatus();
    this.ask();
  }

  /** @param {AbortSignal} signal */
  build(signal) {
    const { root, model } = this;
    root.classList.add("tvl");
    root.dataset.size = model.get("size");
    root.tabIndex = 0;
    root.setAttribute("role", "group");
    root.setAttribute("aria-label", `${model.get("title")} panel`);
    const head = element("div", "tvl-head", root);
    element("span", "tvl-title", head).textContent = model.get("title");
    this.badge = element("span", "tvl-badge", head);
    this.now = element("span", "tvl-now", head);
    if (this.view.zoom) addZoom(head, this.surface.canvas, (factor) => this.zoom(factor), signal);
    this.stage = element("div", "tvl-stage", root);
    this.stage.append(this.surface.canvas);
    this.tip = element("div", "tvl-tip", this.stage);
    this.tip.hidden = true;
    this.legend = element("div", "tvl-legend", root);
    this.controls = model.get("controls") ? new Controls(this.store, signal) : null;
    if (this.controls) root.append(this.controls.element);
    this.caption = element("div", "tvl-caption", root);
    this.words = element("div", "tvl-words", root);
    this.words.setAttribute("role", "status");
    this.error = element("details", "tvl-error", root);
  }

  /** @param {AbortSignal} signal */
  connect(signal) {
    const { root, surface, store } = this;
    store.listen((change) => this.changed(change), signal);
    watchTheme(() => this.newTheme(), signal);
    const resized = new ResizeObserver(() => this.ask());
    resized.observe(this.stage);
    signal.addEventListener("abort", () => resized.disconnect());
    root.addEventListener("keydown", (event) => this.key(event), { signal });
    const { canvas } = surface;
    canvas.addEventListener("pointermove", (event) => this.pointer(event), { signal });
    canvas.addEventListener("pointerleave", () => this.leave(), { signal });
    canvas.addEventListener("click", (event) => this.click(event), { signal });
  }

  /** @param {import("./page.js").Change} change */
  changed(change) {
    if (change === "status") this.showStatus();
    this.ask();
  }

  /** @param {number} factor */
  zoom(factor) {
    if (this.scene) this.view.zoom?.(factor, this.scene);
    this.ask();
  }

  newTheme() {
    this.theme = null;
    this.legendKey = "";
    this.ask();
  }

  /** Draw in the next frame of the browser. */
  ask() {
    if (this.asked === 0) this.asked = requestAnimationFrame((now) => this.draw(now));
  }

  /** @param {number} now */
  draw(now) {
    this.asked = 0;
    const { run } = this.store;
    const width = this.stage.clientWidth;
    if (run === null || width === 0) return;
    this.theme ??= themeOf(this.root);
    const scene = this.makeScene(run, width, now, this.theme);
    this.scene = scene;
    this.surface.begin(width, Math.ceil(this.view.height(scene)), this.theme);
    const moves = this.view.draw(this.surface, scene);
    this.draws += 1;
    this.drawn = { run: this.store.runNumber, whole: this.store.isWhole, steps: run.numSteps };
    this.writeWords(scene);
    this.controls?.update();
    if (moves) this.ask();
  }

  /** @param {Run} run @param {number} width @param {number} now @param {Theme} theme @returns {Scene} */
  makeScene(run, width, now, theme) {
    const elapsed = Math.min(now - this.lastDraw, 100);
    this.lastDraw = now;
    const { step, focus, playing, speed } = this.store;
    const still = wantsLessMotion() || (playing && speed > 60) || this.draws === 0;
    return {
      run, step, width, focus, still, elapsed, size: this.size, theme,
      state: run.at(step), options: this.model.get("options"),
    };
  }

  /** @param {Scene} scene */
  writeWords(scene) {
    const { run, step } = scene;
    const row = run.series.row(step);
    const clock = run.series.clockEnd.values[row] - run.series.clock.values[0];
    const rest = this.store.isWhole ? "" : " · the rest is being computed";
    this.now.textContent = run.numSteps
      ? `step ${count(step)} of ${count(run.lastStep)} · ${duration(clock)}${rest}` : "no step yet";
    this.writeLegend(scene);
    const { playing, follows, status } = this.store;
    const moves = playing || (follows && status.state === "running");
    if (moves && this.lastDraw - this.lastWords < WORDS_MS) return;
    this.lastWords = this.lastDraw;
    const text = describeStep(run, step, scene.state);
    this.surface.canvas.setAttribute("aria-label", [text, this.view.describe?.(scene)].join(" ").trim());
    if (!moves) this.words.textContent = text;
  }

  /** @param {Scene} scene */
  writeLegend(scene) {
    const items = this.view.legend(scene);
    const [word, sentence] = sourceOf(scene.run);
    const key = JSON.stringify([items, word]);
    if (key === this.legendKey) return;
    this.legendKey = key;
    this.badge.textContent = word;
    this.badge.dataset.source = word;
    this.caption.textContent = [this.model.get("caption"), sentence].filter(Boolean).join(" ");
    this.legend.replaceChildren(...items.map(legendItem));
  }

  showStatus() {
    const { error, traceback, state } = this.store.status;
    this.root.dataset.state = state;
    this.error.hidden = !error;
    if (!error) return;
    const summary = document.createElement("summary");
    summary.textContent = error;
    const text = document.createElement("pre");
    text.textContent = traceback;
    this.error.replaceChildren(summary, text);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const target = /** @type {HTMLElement} */ (event.target);
    if (event.ctrlKey || event.metaKey || event.altKey || target.tagName === "SELECT") return;
    const action = KEYS[event.key];
    if (action === undefined || (event.key === " " && target.tagName === "BUTTON")) return;
    const { link: linked, isLive } = this.store;
    action(linked && !isLive ? linked.leader : this.store);
    event.preventDefault();
    event.stopPropagation();
  }

  /** @param {MouseEvent} event @returns {Hit | null} */
  under(event) {
    const box = this.surface.canvas.getBoundingClientRect();
    const { scene } = this;
    return scene && this.view.hit(event.clientX - box.left, event.clientY - box.top, scene);
  }

  /** @param {PointerEvent} event */
  pointer(event) {
    const hit = this.under(event);
    this.store.point(hit?.request ?? null);
    const text = hit && this.scene ? (hit.tip ?? requestTip(this.scene, hit.request)) : "";
    this.tip.hidden = !text;
    this.surface.canvas.style.cursor = hit ? "pointer" : "default";
    if (!text) return;
    this.tip.textContent = text;
    const box = this.stage.getBoundingClientRect();
    const left = event.clientX - box.left;
    const top = event.clientY - box.top;
    this.tip.style.left = `${Math.max(4, Math.min(left + 12, box.width - this.tip.offsetWidth - 6))}px`;
    const above = top + 16 + this.tip.offsetHeight > box.height;
    this.tip.style.top = `${above ? top - this.tip.offsetHeight - 8 : top + 16}px`;
  }

  leave() {
    this.tip.hidden = true;
    this.store.point(null);
  }

  /** @param {MouseEvent} event */
  click(event) {
    const hit = this.under(event);
    if (hit?.step !== undefined && hit.step !== null) this.store.seek(hit.step);
    if (hit?.request !== undefined && hit.request !== null) this.store.select(hit.request);
  }
}

/** @type {Record<string, (store: Store) => void>} */
const KEYS = {
  " ": (store) => store.toggle(),
  ArrowLeft: (store) => store.nudge(-1),
  ArrowRight: (store) => store.nudge(1),
  Home: (store) => store.seek(-Infinity),
  End: (store) => store.seek(Infinity),
  "+": (store) => store.faster(1),
  "=": (store) => store.faster(1),
  "-": (store) => store.faster(-1),
};

/** @param {LegendItem} item */
function legendItem({ fill, label, mark }) {
  const entry = element("span", "tvl-key");
  const swatch = element("i", "tvl-swatch", entry);
  swatch.style.setProperty("--tvl-swatch", fill);
  if (mark) swatch.dataset.mark = mark;
  entry.append(label);
  return entry;
}

/** @param {Scene} scene @param {number | null | undefined} request */
export function requestTip(scene, request) {
  if (request === null || request === undefined) return "";
  const record = scene.state.requests.get(request);
  if (record === undefined) return nameOf(scene.run, request);
  const { status, promptTokens, numOutput, maxTokens, numComputed, table } = record;
  return [
    `${nameOf(scene.run, request)}: ${status}`,
    `prompt ${count(promptTokens)}, output ${count(numOutput)} of ${count(maxTokens)} tokens`,
    status === "finished" ? "" : `${count(numComputed)} tokens computed, ${count(table.length)} blocks`,
  ].filter(Boolean).join("\n");
}

/** A swatch that stands for "the colour of a request". */
export const requestSwatch = () => [0, 1, 2].map((n) => lookOf(n).fill).reduce(
  (text, fill, n) => `${text}, ${fill} ${n * 33}% ${n * 33 + 33}%`, "linear-gradient(90deg",
) + ")";

/** The anywidget module of a panel. @param {() => View} makeView called for each view on the page */
export function definePanel(makeView) {
  return {
    /** @param {{model: any, el: HTMLElement}} context */
    render({ model, el }) {
      const ended = new AbortController();
      const root = element("div", "tvl", el);
      publish(model.get("name"), new Frame(model, root, makeView(), ended.signal));
      return () => ended.abort();
    },
  };
}
