// @ts-check
/** `Surface`: a canvas with the few shapes that the panels are made of, sharp on any screen. */

import { lookOf } from "./theme.js";

const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif';
const MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace";
const TILE = 8; // px, side of a pattern's tile
const MOST_WIDTHS = 2000; // texts whose width is remembered

/** @typedef {import("./theme.js").Theme} Theme */
/** @typedef {{size?: number, weight?: number, colour?: string, align?: CanvasTextAlign, base?: CanvasTextBaseline, max?: number, mono?: boolean}} TextOptions */

export class Surface {
  /** @param {HTMLCanvasElement} canvas */
  constructor(canvas) {
    this.canvas = canvas;
    this.ctx = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    this.width = 0;
    this.height = 0;
    this.scale = 1;
    /** @type {Theme | null} */
    this.theme = null;
    /** @type {Map<string, CanvasPattern>} */
    this.patterns = new Map();
    /** @type {Map<string, number>} of texts that were drawn, by font and text */
    this.widths = new Map();
    this.font = ""; // the context's; to set it is slow
  }

  /** @param {number} width @param {number} height @param {Theme} theme */
  begin(width, height, theme) {
    const scale = globalThis.devicePixelRatio || 1;
    const { canvas, ctx } = this;
    if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
      canvas.width = Math.round(width * scale);
      canvas.height = Math.round(height * scale);
      canvas.style.width = `${width}px`;
      canvas.style.height = `${height}px`;
    }
    if (scale !== this.scale) this.patterns.clear();
    Object.assign(this, { width, height, scale, theme, font: "" });
    ctx.setTransform(scale, 0, 0, scale, 0, 0);
    ctx.globalAlpha = 1;
    ctx.clearRect(0, 0, width, height);
  }

  /** @param {number} x @param {number} y @param {number} w @param {number} h @param {string | CanvasPattern} fill */
  rect(x, y, w, h, fill) {
    this.ctx.fillStyle = fill;
    this.ctx.fillRect(x, y, w, h);
  }

  /** @param {number} x @param {number} y @param {number} w @param {number} h @param {number} radius @param {string | CanvasPattern | null} fill @param {string | null} [stroke] @param {number} [lineWidth] */
  card(x, y, w, h, radius, fill, stroke = null, lineWidth = 1) {
    const { ctx } = this;
    ctx.beginPath();
    ctx.roundRect(x, y, w, h, Math.min(radius, w / 2, h / 2));
    if (fill !== null) {
      ctx.fillStyle = fill;
      ctx.fill();
    }
    if (stroke !== null) {
      ctx.strokeStyle = stroke;
      ctx.lineWidth = lineWidth;
      ctx.stroke();
    }
  }

  /** @param {number} x1 @param {number} y1 @param {number} x2 @param {number} y2 @param {string} colour @param {number} [width] @param {number[]} [dash] */
  line(x1, y1, x2, y2, colour, width = 1, dash = []) {
    const { ctx } = this;
    ctx.beginPath();
    ctx.setLineDash(dash);
    ctx.moveTo(x1, y1);
    ctx.lineTo(x2, y2);
    ctx.strokeStyle = colour;
    ctx.lineWidth = width;
    ctx.stroke();
    ctx.setLineDash([]);
  }

  /** What was saved by the context's `save`, and its font with it. */
  restore() {
    this.ctx.restore();
    this.font = "";
  }

  /** @param {TextOptions} options @returns {string} */
  setFont(options) {
    const font = fontOf(options);
    if (font !== this.font) this.ctx.font = this.font = font;
    return font;
  }

  /** @param {string} text @param {number} x @param {number} y @param {TextOptions} [options] @returns {number} its width */
  text(text, x, y, options = {}) {
    const { ctx } = this;
    const { align = "left", base = "middle", max } = options;
    const font = this.setFont(options);
    ctx.textAlign = align;
    ctx.textBaseline = base;
    ctx.fillStyle = options.colour ?? this.theme?.text ?? "#000";
    const fits = max === undefined || this.widthOf(text, font) <= max;
    const shown = fits ? text : fitted(ctx, text, max);
    ctx.fillText(shown, x, y);
    return this.widthOf(shown, font);
  }

  /** Measuring takes longer than drawing, and labels repeat. @param {string} text @param {string} font the context's */
  widthOf(text, font) {
    const key = font + text;
    let width = this.widths.get(key);
    if (width === undefined) {
      if (this.widths.size >= MOST_WIDTHS) this.widths.clear();
      this.widths.set(key, (width = this.ctx.measureText(text).width));
    }
    return width;
  }

  /** The first of some texts that is not too wide, else the last. @param {string[]} texts from long to short @param {number} max @param {TextOptions} options */
  roomFor(texts, max, options) {
    const font = this.setFont(options);
    return texts.find((text) => this.widthOf(text, font) <= max) ?? texts[texts.length - 1];
  }

  /** A text on two colours: left of `edge` in one ink, right of it in another.
   * @param {string} text @param {number} x @param {number} y @param {number} edge @param {[string, string]} inks @param {TextOptions} options */
  splitText(text, x, y, edge, inks, options) {
    const { ctx, width, height } = this;
    inks.forEach((colour, side) => {
      ctx.save();
      ctx.beginPath();
      ctx.rect(side ? edge : 0, 0, side ? width : edge, height);
      ctx.clip();
      this.text(text, x, y, { ...options, colour });
      this.restore();
    });
  }

  /** The fill of a request: its colour, with its pattern if there is room for one.
   * @param {number} request @param {boolean} [withPattern] @returns {string | CanvasPattern} */
  fillOf(request, withPattern = true) {
    const look = lookOf(request);
    if (!withPattern || look.pattern === "plain") return look.fill;
    const key = look.fill + look.pattern;
    let pattern = this.patterns.get(key);
    if (pattern === undefined) this.patterns.set(key, (pattern = this.makePattern(look)));
    return pattern;
  }

  /** @param {import("./theme.js").Look} look */
  makePattern(look) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = Math.round(TILE * this.scale);
    const ctx = /** @type {CanvasRenderingContext2D} */ (tile.getContext("2d"));
    ctx.scale(tile.width / TILE, tile.width / TILE);
    ctx.fillStyle = look.fill;
    ctx.fillRect(0, 0, TILE, TILE);
    ctx.strokeStyle = ctx.fillStyle = look.ink === "#ffffff" ? "#ffffff66" : "#00000047";
    drawTile(ctx, look.pattern);
    const pattern = /** @type {CanvasPattern} */ (this.ctx.createPattern(tile, "repeat"));
    pattern.setTransform(new DOMMatrix().scale(TILE / tile.width));
    return pattern;
  }
}

/** @param {TextOptions} options */
function fontOf({ size = 12, weight = 400, mono }) {
  return `${weight} ${size}px ${mono ? MONO : FONT}`;
}

/** @param {CanvasRenderingContext2D} ctx @param {string} pattern */
function drawTile(ctx, pattern) {
  ctx.lineWidth = 1.6;
  ctx.beginPath();
  if (pattern === "diagonal") {
    for (const shift of [-TILE, 0, TILE]) {
      ctx.moveTo(shift - 1, TILE + 1);
      ctx.lineTo(shift + TILE + 1, -1);
    }
    ctx.stroke();
  } else if (pattern === "dots") {
    ctx.arc(2, 2, 1.3, 0, 7);
    ctx.arc(6, 6, 1.3, 0, 7);
    ctx.fill();
  } else {
    ctx.fillRect(3, 0, 1.8, TILE);
  }
}

/** The text, cut with an ellipsis if it is too wide. @param {CanvasRenderingContext2D} ctx @param {string} text @param {number} max */
export function fitted(ctx, text, max) {
  if (ctx.measureText(text).width <= max) return text;
  let low = 0;
  let high = text.length;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (ctx.measureText(`${text.slice(0, middle)}…`).width <= max) low = middle;
    else high = middle - 1;
  }
  return low ? `${text.slice(0, low)}…` : "";
}
