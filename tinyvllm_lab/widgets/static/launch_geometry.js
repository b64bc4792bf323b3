// @ts-check
/**
 * The launch-geometry explorer: sliders for the problem, the block and the grid; who computes what,
 * who idles, and how full the GPU gets. A calculator: it needs no run and no kernel.
 */

import { shape } from "./calculator.js";
import { BLOCK_COLOURS, WRONG, cellsOf, drawElements, drawMap, drawSm, drawThreads, drawWaves } from "./launch_drawing.js";
import { choose, makeFields } from "./launch_fields.js";
import { figures, launchOf } from "./launch_figures.js";
import { codeOf, percent, sentences, threadText } from "./launch_words.js";

/**
 * @typedef {import("./launch_figures.js").Choice} Choice
 * @typedef {import("./launch_figures.js").Tables} Tables
 * @typedef {import("./launch_drawing.js").Scene} Scene
 */

const TEXT_PX = 12; // size of text for which the pictures are made
const LEGEND = [
  [BLOCK_COLOURS[0], "a block, and the elements that it computes"],
  ["", "threads that idle"],
  [WRONG, "what is wrong: elements that nobody computes, threads beyond the array (×) or in another row (!)"],
];

/** A picture with a heading. @param {HTMLElement} parent @param {string} name */
function part(parent, name) {
  const box = document.createElement("section");
  box.className = `tvl-picture tvl-picture-${name}`;
  const head = document.createElement("div");
  head.className = "tvl-picture-head";
  const svg = /** @type {SVGElement} */ (shape("svg", { class: "tvl-svg", role: "img" }));
  box.append(head, svg);
  parent.append(box);
  return { head, svg };
}

/** Stripes for what idles. @param {HTMLElement} parent */
function hatching(parent) {
  const name = `tvl-idle-${Math.random().toString(36).slice(2)}`; // its own on the page
  const svg = shape("svg", { width: 0, height: 0, class: "tvl-defs", "aria-hidden": "true" });
  const pattern = shape("pattern", { id: name, width: 5, height: 5, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" });
  pattern.append(shape("rect", { width: 5, height: 5, class: "tvl-free" }), shape("rect", { width: 1.6, height: 5, class: "tvl-stripe" }));
  svg.append(pattern);
  parent.append(svg);
  return `url(#${name})`;
}

/** @param {string} fill @param {string} label */
function key(fill, label) {
  const box = document.createElement("span");
  box.className = "tvl-key";
  const icon = shape("svg", { viewBox: "0 0 18 12", width: 18, height: 12 });
  icon.append(shape("rect", { width: 18, height: 12, rx: 2, fill }));
  box.append(icon, label);
  return box;
}

/** @param {string} name @param {HTMLElement} parent */
function textBox(name, parent) {
  const box = document.createElement("div");
  box.className = name;
  parent.append(box);
  return box;
}

class Explorer {
  /** @param {any} model @param {HTMLElement} el */
  constructor(model, el) {
    this.model = model;
    this.el = el;
    /** @type {Tables} */
    this.tables = model.get("tables");
    /** @type {number | null} */
    this.thread = null;
    el.classList.add("tvl");
    el.dataset.size = model.get("size");
    el.innerHTML =
      '<div class="tvl-head"><span class="tvl-title">Launch geometry</span>' +
      '<span class="tvl-badge">computed</span><span class="tvl-now"></span></div><div class="tvl-fields"></div>';
    this.now = /** @type {HTMLElement} */ (el.querySelector(".tvl-now"));
    this.hatch = hatching(el);
    this.showFields = makeFields(model, this.tables, /** @type {HTMLElement} */ (el.querySelector(".tvl-fields")));
    this.answer = textBox("tvl-answer tvl-lines", el);
    this.answer.setAttribute("role", "status");
    const parts = textBox("tvl-pictures", el);
    this.map = part(parts, "map");
    this.sm = part(parts, "sm");
    this.waves = /** @type {SVGElement} */ (shape("svg", { class: "tvl-svg", role: "img" }));
    this.sm.svg.after(this.waves);
    this.elements = part(parts, "wide");
    this.threads = part(parts, "wide");
    this.pointed = textBox("tvl-pointer-words", el);
    this.pointed.setAttribute("role", "status");
    textBox("tvl-legend", el).append(...LEGEND.map(([fill, label]) => key(fill || this.hatch, label)));
    this.code = document.createElement("pre");
    this.code.className = "tvl-launch-code";
    el.append(this.code);
    textBox("tvl-caption", el).textContent = model.get("caption");
    this.listen();
  }

  listen() {
    const { svg } = this.threads;
    svg.setAttribute("tabindex", "0");
    svg.addEventListener("keydown", (event) => this.key(/** @type {KeyboardEvent} */ (event)));
    svg.addEventListener("pointerover", (event) => this.point(/** @type {SVGElement} */ (event.target).dataset.thread));
    this.map.svg.addEventListener("click", (event) => {
      const { block } = /** @type {SVGElement} */ (event.target).dataset;
      if (block !== undefined) choose(this.model, { block: Number(block) });
    });
  }

  /** @param {string | undefined} thread */
  point(thread) {
    if (thread === undefined) return;
    this.thread = Number(thread);
    this.show();
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const { warp } = this.tables;
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -warp, ArrowDown: warp };
    const step = steps[/** @type {keyof typeof steps} */ (event.key)];
    if (step === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    const { x, y } = launchOf(this.model.get("choice"));
    const next = (this.thread ?? 0) + (this.thread === null ? 0 : step);
    this.point(String(Math.max(0, Math.min(next, x.block * y.block - 1))));
  }

  /** @param {Element} svg @returns {number} width in units of the pictures */
  widthOf(svg) {
    const unit = parseFloat(getComputedStyle(this.el).fontSize) / TEXT_PX || 1;
    return Math.max(240, (svg.getBoundingClientRect().width || 700) / unit);
  }

  /** @returns {Scene} */
  scene() {
    /** @type {Choice} */
    const choice = this.model.get("choice");
    const launch = launchOf(choice);
    const block = Math.min(choice.block, launch.x.grid * launch.y.grid - 1);
    const last = launch.x.block * launch.y.block - 1;
    const thread = this.thread === null ? null : Math.min(this.thread, last);
    return { choice, tables: this.tables, launch, figures: figures(choice, this.tables), width: 0, block, thread, hatch: this.hatch };
  }

  show() {
    const scene = this.scene();
    const { choice, launch, figures: found, block, thread } = scene;
    this.showFields(scene);
    for (const [{ svg }, draw] of /** @type {const} */ ([[this.map, drawMap], [this.sm, drawSm], [this.elements, drawElements], [this.threads, drawThreads]])) {
      draw(svg, { ...scene, width: this.widthOf(svg) });
    }
    drawWaves(this.waves, { ...scene, width: this.widthOf(this.waves) });
    const lines = sentences(choice, this.tables, launch, found);
    this.answer.replaceChildren(...lines.map((line) => {
      const box = document.createElement("div");
      box.textContent = line;
      box.classList.toggle("tvl-error-line", line.startsWith("Error"));
      return box;
    }));
    this.now.textContent = `${percent(found.idle / found.threads)} idle · ${percent(found.occupancy)} occupancy`;
    this.pointed.textContent = thread === null ? "Point at a thread, or walk over them with the arrow keys." : threadText(launch, block, thread, this.tables.warp);
    this.code.textContent = codeOf(launch, launch.guarded);
    this.name(scene, lines);
  }

  /** Headings, and words for screen readers. @param {Scene} scene @param {string[]} lines */
  name({ launch, block, figures: found }, lines) {
    const { wide, high } = cellsOf(launch);
    const cell = wide * high > 1 ? `; a cell is ${high > 1 ? `${wide} × ${high}` : wide} blocks` : "";
    this.map.head.textContent = `The grid's blocks, coloured as far as their threads compute${cell}`;
    this.sm.head.textContent = "One SM: what its resident blocks take; below, the waves of blocks";
    this.elements.head.textContent = "The elements, in the colour of the block that computes them";
    this.threads.head.textContent = `Block ${block}: a warp a row, with the element of each thread`;
    this.map.svg.setAttribute("aria-label", lines[0]);
    this.elements.svg.setAttribute("aria-label", lines.slice(0, -1).join(" "));
    this.sm.svg.setAttribute("aria-label", lines[lines.length - 1]);
    this.waves.setAttribute("aria-label", `${found.waves} full waves, then ${found.tail} blocks`);
    const threads = launch.x.block * launch.y.block;
    this.threads.svg.setAttribute("aria-label", `Block ${block}, ${threads} threads; arrow keys move from thread to thread`);
  }
}

export default {
  /** @param {{model: any, el: HTMLElement}} context */
  render({ model, el }) {
    const explorer = new Explorer(model, el);
    const show = () => explorer.show();
    model.on("change:choice", show);
    const resized = new ResizeObserver(show);
    resized.observe(el);
    show();
    return () => {
      model.off("change:choice", show);
      resized.disconnect();
    };
  },
};
