// @ts-check
/** The kernel x-ray: one or several launches, step by step, with source, threads and memory. */

import { Surface } from "./draw.js";
import { themeOf, watchTheme } from "./theme.js";
import { XRayPlayer } from "./xray_player.js";
import { XRayRun, sentence, times } from "./xray_run.js";
import { SourceList } from "./xray_source.js";
import { XRayTime } from "./xray_time.js";
import { XRayView } from "./xray_view.js";
import { facts, legend } from "./xray_words.js";

const SIZES = { normal: 12, presenter: 17 };
const WORDS_MS = 400;

/** @param {string} tag @param {string} name @param {Element | null} [parent] @returns {any} */
function element(tag, name, parent = null) {
  const made = document.createElement(tag);
  made.className = name;
  parent?.append(made);
  return made;
}

class Frame {
  /** @param {any} model @param {HTMLElement} root @param {XRayRun[]} runs @param {AbortSignal} signal */
  constructor(model, root, runs, signal) {
    this.model = model;
    this.root = root;
    this.runs = runs;
    this.run = runs[0];
    this.size = SIZES[/** @type {"normal"} */ (model.get("size"))] ?? SIZES.normal;
    this.warp = 0;
    this.thread = -1;
    /** @type {Set<number>} lines that are pointed at */
    this.lines = new Set();
    this.asked = 0;
    this.draws = 0;
    this.height = 1;
    this.width = 0; // for which the height was measured
    this.surface = new Surface(element("canvas", "tvl-canvas"));
    this.surface.canvas.setAttribute("role", "img");
    this.timeSurface = new Surface(element("canvas", "tvl-canvas"));
    this.timeSurface.canvas.setAttribute("aria-hidden", "true"); // the scrubber says the same
    this.lastWords = -Infinity;
    /** @type {import("./theme.js").Theme | null} */
    this.theme = null;
    this.view = new XRayView();
    this.time = new XRayTime();
    this.player = new XRayPlayer(() => this.ask(), signal);
    this.source = new SourceList(
      (line) => this.point(line ? this.linesAt(line.file, line.number) : new Set(), -1),
      (line) => this.go(this.run.next(this.linesAt(line.file, line.number), this.player.tick)),
    );
    this.build();
    this.connect(signal);
    this.choose(0);
  }

  build() {
    const { root, model } = this;
    root.classList.add("tvl", "tvl-xray");
    root.dataset.size = model.get("size");
    root.tabIndex = 0;
    root.setAttribute("role", "group");
    root.setAttribute("aria-label", `${model.get("title")} panel`);
    const head = element("div", "tvl-head", root);
    element("span", "tvl-title", head).textContent = model.get("title");
    element("span", "tvl-badge", head).textContent = "measured";
    this.now = element("span", "tvl-now", head);
    this.tabs = element("div", "tvl-tabs", root);
    this.facts = element("div", "tvl-answer", root);
    const body = element("div", "tvl-xray-body", root);
    body.append(this.source.element);
    this.stage = element("div", "tvl-stage", body);
    this.stage.append(this.surface.canvas);
    this.tip = element("div", "tvl-tip", this.stage);
    this.tip.hidden = true;
    this.strip = element("div", "tvl-stage tvl-xray-time", root);
    this.strip.append(this.timeSurface.canvas);
    root.append(this.player.element);
    this.findings = element("div", "tvl-findings", root);
    root.append(legend());
    element("div", "tvl-caption", root).textContent = model.get("caption");
    this.words = element("div", "tvl-words", root);
    this.words.setAttribute("role", "status");
    this.buildTabs();
  }

  buildTabs() {
    this.tabs.hidden = this.runs.length < 2;
    this.tabs.setAttribute("role", "group");
    this.tabs.setAttribute("aria-label", "Which launch");
    this.runs.forEach((run, n) => {
      const button = element("button", "tvl-tab", this.tabs);
      button.type = "button";
      button.textContent = run.page.label;
      button.addEventListener("click", () => this.choose(n));
    });
  }

  /** @param {AbortSignal} signal */
  connect(signal) {
    watchTheme(() => this.newTheme(), signal);
    const resized = new ResizeObserver(() => this.ask());
    resized.observe(this.stage);
    signal.addEventListener("abort", () => resized.disconnect());
    this.root.addEventListener("keydown", (event) => this.key(event), { signal });
    const { canvas } = this.surface;
    canvas.addEventListener("pointermove", (event) => this.pointer(event), { signal });
    canvas.addEventListener("pointerleave", () => this.leave(), { signal });
    canvas.addEventListener("click", (event) => this.click(event), { signal });
    const strip = this.timeSurface.canvas;
    strip.addEventListener("pointermove", (event) => this.pointTime(event), { signal });
    strip.addEventListener("pointerleave", () => this.point(new Set(), -1), { signal });
    strip.addEventListener("click", (event) => {
      const { tick, warp } = this.time.at(...place(event, strip));
      this.warp = Math.min(warp, this.run.warps - 1);
      this.player.seek(tick);
    }, { signal });
  }

  readTheme() {
    const theme = themeOf(this.root);
    this.root.style.setProperty("--tvl-warn", theme.warn);
    return theme;
  }

  newTheme() {
    this.theme = null;
    this.ask();
  }

  /** Shows one of the launches. @param {number} number */
  choose(number) {
    this.run = this.runs[number];
    const { page } = this.run;
    [...this.tabs.children].forEach((tab, n) => tab.setAttribute("aria-pressed", String(n === number)));
    this.facts.textContent = facts(this.run);
    this.source.show(this.run);
    this.showFindings();
    this.lines = new Set();
    this.width = 0;
    this.warp = this.warpOf(page.start);
    this.player.load(page.ticks, page.start, page.opens, page.findings.filter((one) => one.here).map((one) => one.tick));
    this.ask();
  }

  /** The warp to look at: that of a finding, else the first that acts. @param {number} tick */
  warpOf(tick) {
    const finding = this.run.page.findings.find((one) => one.here && one.tick === tick);
    if (finding) return finding.threads[0] >> 5;
    const first = this.run.firstOf[tick];
    return first < this.run.page.steps ? this.run.warp[first] : 0;
  }

  showFindings() {
    const { findings } = this.run.page;
    this.findings.hidden = !findings.length;
    this.findings.replaceChildren(...findings.map((one) => {
      const button = element("button", "tvl-finding");
      button.type = "button";
      button.disabled = !one.here;
      button.textContent = one.message + (one.here ? "" : " (in a block whose steps are not shown)");
      button.title = one.here ? "Go to this step" : "";
      button.addEventListener("click", () => {
        this.warp = one.threads[0] >> 5;
        this.player.seek(one.tick);
      });
      return button;
    }));
  }

  /** @param {import("./xray_run.js").Step | null} step */
  go(step) {
    if (step === null) return;
    this.warp = step.warp;
    this.player.seek(step.tick);
  }

  /** @param {string} file @param {number} number */
  linesAt(file, number) {
    const { lines } = this.run.page;
    return new Set(lines.flatMap((line, n) => (line.file === file && line.number === number ? [n] : [])));
  }

  /** @param {Set<number>} lines @param {number} thread */
  point(lines, thread) {
    this.lines = lines;
    this.thread = thread;
    this.ask();
  }

  ask() {
    if (this.asked === 0) this.asked = requestAnimationFrame(() => this.draw());
  }

  draw() {
    this.asked = 0;
    const width = this.stage.clientWidth;
    if (width === 0) return;
    this.theme ??= this.readTheme();
    const { run, theme, size, warp, thread, lines } = this;
    const { tick } = this.player;
    const scene = { run, tick, warp, width, size, theme, thread, lines };
    this.drawView(scene);
    this.time.draw(this.timeSurface, { ...scene, width: this.strip.clientWidth });
    this.markSource();
    this.write();
    this.draws += 1;
  }

  /** The height is known when it is drawn; it does not shrink, so that the page keeps still.
   * @param {import("./xray_view.js").XRayScene} scene */
  drawView(scene) {
    const { surface, view } = this;
    surface.begin(scene.width, this.height, scene.theme);
    const needs = Math.ceil(view.draw(surface, scene));
    if (needs <= this.height && scene.width === this.width) return;
    this.width = scene.width;
    this.height = needs;
    surface.begin(scene.width, needs, scene.theme);
    view.draw(surface, scene);
  }

  markSource() {
    const { run, warp, lines } = this;
    const { tick } = this.player;
    const name = (/** @type {number} */ n) => `${run.page.lines[n].file}:${run.page.lines[n].number}`;
    const step = run.at(tick, warp);
    const others = new Set();
    const end = run.firstOf[tick + 1] ?? run.page.steps;
    for (let i = run.firstOf[tick]; i < end; i++) others.add(name(run.line[i]));
    this.source.mark(step ? name(step.line) : "", others, new Set([...lines].map(name)), !this.root.matches(":has(.tvl-code:hover)"));
  }

  write() {
    const { run, warp, player } = this;
    const { ticks, opens } = run.page;
    const passed = opens.filter((open) => open <= player.tick).length;
    this.now.textContent = ticks
      ? `step ${player.tick + 1} of ${ticks.toLocaleString("en-US")}${opens.length ? ` · ${passed} of ${times(opens.length, "barrier")} passed` : ""}`
      : "no memory access, barrier or shuffle";
    const now = performance.now();
    if (player.playing && now - this.lastWords < WORDS_MS) return;
    this.lastWords = now;
    const states = Object.entries(run.count(player.tick)).filter(([, n]) => n).map(([state, n]) => `${n} threads ${state}`);
    const text = `Step ${player.tick + 1} of ${ticks}. ${sentence(run, warp, player.tick)} ${states.join(", ")}.`;
    this.surface.canvas.setAttribute("aria-label", text);
    if (!player.playing) this.words.textContent = text;
  }

  /** @param {PointerEvent} event */
  pointer(event) {
    const [x, y] = place(event, this.surface.canvas);
    const spot = this.view.hit(x, y);
    this.tip.hidden = spot === null;
    this.surface.canvas.style.cursor = spot?.warp !== undefined ? "pointer" : "default";
    if (spot === null) return this.point(new Set(), -1);
    this.point(this.linesOf(spot), spot.thread ?? -1);
    this.tip.textContent = spot.tip();
    const box = this.stage.getBoundingClientRect();
    this.tip.style.left = `${Math.max(0, Math.min(x + 12, box.width - this.tip.offsetWidth - 4))}px`;
    const above = y + 16 + this.tip.offsetHeight > box.height;
    this.tip.style.top = `${above ? y - this.tip.offsetHeight - 8 : y + 16}px`;
  }

  /** Lines that belong to what is pointed at. @param {import("./xray_view.js").Spot} spot @returns {Set<number>} */
  linesOf(spot) {
    const { run } = this;
    if (spot.array !== undefined) return run.linesOfArray(spot.array);
    const step = spot.warp === undefined ? null : run.at(this.player.tick, spot.warp);
    return new Set(step ? [step.line] : []);
  }

  /** @param {PointerEvent} event */
  pointTime(event) {
    const { tick, warp } = this.time.at(...place(event, this.timeSurface.canvas));
    const step = this.run.at(tick, warp);
    this.point(new Set(step ? [step.line] : []), -1);
  }

  leave() {
    this.tip.hidden = true;
    this.point(new Set(), -1);
  }

  /** @param {MouseEvent} event */
  click(event) {
    const spot = this.view.hit(...place(event, this.surface.canvas));
    if (spot?.warp === undefined) return;
    this.warp = spot.warp;
    this.ask();
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const target = /** @type {HTMLElement} */ (event.target);
    if (event.ctrlKey || event.metaKey || event.altKey || target.tagName === "SELECT") return;
    if (event.key === " " && target.tagName === "BUTTON") return;
    if (event.key === "ArrowUp" || event.key === "ArrowDown") {
      this.warp = Math.max(0, Math.min(this.warp + (event.key === "ArrowUp" ? -1 : 1), this.run.warps - 1));
      this.ask();
    } else if (!this.player.key(event.key)) return;
    event.preventDefault();
    event.stopPropagation();
  }
}

/** @param {MouseEvent} event @param {HTMLCanvasElement} canvas @returns {[number, number]} */
function place(event, canvas) {
  const box = canvas.getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top];
}

/** For tests: the element, and for the newest panel of this name the page, tell what it shows. @param {string} name @param {Frame} frame */
function publish(name, frame) {
  const page = /** @type {any} */ (globalThis);
  page.__tinyvllm ??= {};
  page.__tinyvllm[name] = /** @type {any} */ (frame.root).tinyvllm = {
    get step() { return frame.player.tick; },
    get lastStep() { return frame.run.page.ticks - 1; },
    get draws() { return frame.draws; },
    get playing() { return frame.player.playing; },
    get warp() { return frame.warp; },
    get label() { return frame.run.page.label; },
    get threads() { return frame.run.count(frame.player.tick); },
    get words() { return sentence(frame.run, frame.warp, frame.player.tick); },
    seek: (/** @type {number} */ tick) => frame.player.seek(tick),
  };
}

export default {
  /** @param {{model: any, el: HTMLElement}} context */
  async render({ model, el }) {
    const ended = new AbortController();
    const root = element("div", "tvl", el);
    const runs = await Promise.all(model.get("runs").map((/** @type {any} */ page) => XRayRun.of(page)));
    publish(model.get("name"), new Frame(model, root, runs, ended.signal));
    return () => ended.abort();
  },
};
