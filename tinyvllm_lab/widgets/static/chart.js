// @ts-check
/** A chart in an SVG: axes with round ticks, lines and marks, in px of the screen. */

import { shape } from "./calculator.js";

/** @typedef {{low: number, high: number, log: boolean, ticks: number[], text: (value: number) => string}} Axis */
/** @typedef {[number, number]} Place */

/** From 0 on. @param {number} high @param {(value: number) => string} text @param {number} [most] ticks @returns {Axis} */
export function linearAxis(high, text, most = 6) {
  const step = roundStep(high / most);
  const ticks = Array.from({ length: Math.floor(high / step) + 1 }, (_, i) => i * step);
  return { low: 0, high, log: false, ticks, text };
}

/** The smallest of 1, 2, 5, 10, 20, … that is not below. @param {number} least */
function roundStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((n) => n * power).find((step) => step >= least * 0.999) ?? 10 * power;
}

/** Ticks at 1, 2, 5, 10, … @param {number} low @param {number} high @param {(value: number) => string} text @returns {Axis} */
export function logAxis(low, high, text) {
  const ticks = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) {
    ticks.push(...[1, 2, 5].map((n) => n * 10 ** power));
  }
  return { low, high, log: true, ticks: ticks.filter((v) => v >= low * 0.999 && v <= high * 1.001), text };
}

/** How far along an axis a value lies, 0 to 1. @param {Axis} axis @param {number} value */
export function along({ low, high, log }, value) {
  const part = log ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
  return Math.max(0, Math.min(part, 1));
}

export class Chart {
  /**
   * @param {Element} svg it is emptied
   * @param {number} width @param {number} height px
   * @param {number} unit px of the text's size
   * @param {Axis} x @param {Axis} y
   */
  constructor(svg, width, height, unit, x, y) {
    this.svg = svg;
    this.unit = unit;
    this.axes = { x, y };
    const labels = Math.max(...y.ticks.map((value) => y.text(value).length));
    this.left = (0.62 * labels + 0.9) * unit;
    this.right = width - 0.8 * unit;
    this.top = 2.3 * unit;
    this.bottom = height - 3.4 * unit;
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.setAttribute("width", String(width));
    svg.setAttribute("height", String(height));
    svg.replaceChildren();
  }

  /** @param {number} value */
  x(value) {
    return this.left + along(this.axes.x, value) * (this.right - this.left);
  }

  /** @param {number} value */
  y(value) {
    return this.bottom - along(this.axes.y, value) * (this.bottom - this.top);
  }

  /** @param {string} tag @param {Record<string, string | number>} attributes @param {string} [text] */
  add(tag, attributes, text) {
    const made = shape(tag, attributes, text);
    this.svg.append(made);
    return made;
  }

  /** Grid, ticks and the names of both axes. @param {string} xName @param {string} yName */
  grid(xName, yName) {
    const { left, right, top, bottom, unit, axes } = this;
    for (const value of axes.x.ticks) {
      const x = this.x(value);
      this.add("line", { x1: x, x2: x, y1: top, y2: bottom, class: "tvl-grid" });
      this.text(axes.x.text(value), x, bottom + 1.25 * unit, "tvl-tick", "middle");
    }
    for (const value of axes.y.ticks) {
      const y = this.y(value);
      this.add("line", { x1: left, x2: right, y1: y, y2: y, class: "tvl-grid" });
      this.text(axes.y.text(value), left - 0.5 * unit, y + 0.35 * unit, "tvl-tick", "end");
    }
    this.text(xName, (left + right) / 2, bottom + 2.8 * unit, "tvl-tick", "middle");
    this.text(yName, 0, 0.95 * unit, "tvl-chart-name", "start");
  }

  /** @param {string} text @param {number} x @param {number} y @param {string} name class @param {"start" | "middle" | "end"} anchor */
  text(text, x, y, name, anchor) {
    this.add("text", { x, y, class: name, "text-anchor": anchor }, text);
  }

  /** A line through points, by their values. @param {Place[]} places @param {string} name class */
  line(places, name) {
    const known = places.filter(([x, y]) => Number.isFinite(x) && Number.isFinite(y));
    const points = known.map(([x, y]) => `${this.x(x).toFixed(1)},${this.y(y).toFixed(1)}`).join(" ");
    this.add("polyline", { points, class: name });
  }

  /** A line across the chart at a value of x, with its name on top. @param {number} value @param {string} name class @param {string} label */
  upright(value, name, label) {
    const x = this.x(value);
    this.add("line", { x1: x, x2: x, y1: this.top, y2: this.bottom, class: name });
    const anchor = x > (this.left + this.right) / 2 ? "end" : "start";
    this.text(label, x, this.top - 0.4 * this.unit, "tvl-tick", anchor);
  }
}
