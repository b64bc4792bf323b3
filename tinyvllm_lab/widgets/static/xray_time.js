// @ts-check
/** The block over time: a row for each warp, a column for each step, a line for each open barrier. */

import { Surface } from "./draw.js";
import { mix } from "./theme.js";
import { LOOKS } from "./xray_view.js";
import { KINDS } from "./xray_run.js";

const LEFT = 4.4; // room for the names of the warps, in sizes of text

export class XRayTime {
  constructor() {
    this.left = 0;
    this.pitch = 1;
    this.row = 1;
    this.ticks = 1;
  }

  /** @param {Surface} surface @param {import("./xray_view.js").XRayScene} scene */
  draw(surface, scene) {
    const { run, tick, warp, width, size, theme, lines } = scene;
    const { page } = run;
    this.left = size * LEFT;
    this.ticks = Math.max(1, page.ticks);
    this.pitch = Math.min((width - this.left - 2) / this.ticks, size * 1.6);
    this.row = run.warps > 16 ? 4 : run.warps > 8 ? size * 0.7 : size * 0.9;
    const height = run.warps * (this.row + 1.5);
    surface.begin(width, Math.ceil(height + size * 1.5), theme);
    const labelled = this.row >= size * 0.6;
    for (let n = 0; n < run.warps; n++) {
      const y = n * (this.row + 1.5);
      surface.rect(this.left, y, this.pitch * this.ticks, this.row, theme.empty);
      if (labelled || n === 0) surface.text(labelled ? `warp ${n}` : "warps", 3, Math.max(y + this.row / 2, size * 0.5), { size: Math.min(size * 0.9, this.row + 0.5), colour: n === warp ? theme.text : theme.soft, weight: n === warp ? 700 : 400 });
    }
    for (let i = 0; i < page.steps; i++) {
      const { fill } = LOOKS[KINDS[run.kind[i]]];
      const dim = lines.size > 0 && !lines.has(run.line[i]);
      surface.rect(this.left + run.tick[i] * this.pitch, run.warp[i] * (this.row + 1.5), Math.max(this.pitch - (this.pitch > 3 ? 0.7 : 0), 0.6), this.row, dim ? mix(fill, theme.page, 0.75) : fill);
    }
    this.drawMarks(surface, scene, height);
    surface.text(`step ${tick + 1}`, Math.min(Math.max(this.left + (tick + 0.5) * this.pitch, this.left + size * 2), width - size * 2), height + size * 0.75, { size: size * 0.9, align: "center", weight: 600 });
  }

  /** Open barriers, findings, and where we are. @param {Surface} surface @param {import("./xray_view.js").XRayScene} scene @param {number} height */
  drawMarks(surface, { run, tick, theme }, height) {
    for (const open of run.page.opens) {
      const x = this.left + open * this.pitch;
      if (this.pitch > 0.8) surface.line(x - 0.35, 0, x - 0.35, height, theme.text, this.pitch > 4 ? 1.6 : 0.8);
    }
    for (const finding of run.page.findings.filter(({ here }) => here)) {
      const y = (finding.threads[0] >> 5) * (this.row + 1.5);
      surface.card(this.left + finding.tick * this.pitch - 1.5, y - 1, Math.max(this.pitch, 3) + 3, this.row + 2, 2, null, theme.warn, 2);
    }
    surface.card(this.left + tick * this.pitch - 1.5, 0, Math.max(this.pitch, 1.5) + 2, height, 2, null, theme.text, 1.6);
  }

  /** @param {number} x @param {number} y */
  at(x, y) {
    const tick = Math.max(0, Math.min(Math.floor((x - this.left) / this.pitch), this.ticks - 1));
    return { tick, warp: Math.max(0, Math.floor(y / (this.row + 1.5))) };
  }
}
