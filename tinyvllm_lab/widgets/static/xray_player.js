// @ts-check
/** Play, step and scrub through the steps of a block. It keeps the step, and says when it moved. */

import { iconButton, setIcon } from "./buttons.js";

const SPEEDS = [1, 2, 5, 10, 25, 100]; // steps a second

export class XRayPlayer {
  /** @param {() => void} changed @param {AbortSignal} signal */
  constructor(changed, signal) {
    this.changed = changed;
    this.signal = signal;
    this.tick = 0;
    this.ticks = 0;
    this.speed = 5;
    this.playing = false;
    this.plays = 0; // how often it was started: an old loop ends when a new one begins
    /** @type {Record<string, number[]>} */
    this.jumps = { barrier: [], finding: [] };
    this.element = document.createElement("div");
    this.element.className = "tvl-controls";
    this.playButton = iconButton("Play", "play", "Space");
    this.scrub = document.createElement("input");
    Object.assign(this.scrub, { type: "range", min: "0", className: "tvl-scrub" });
    this.scrub.setAttribute("aria-label", "Step of the block");
    this.jump = choice("Jump to the next event of a kind", [["Jump to …", ""], ["next open barrier", "barrier"], ["next finding", "finding"]]);
    this.rate = choice("Speed", SPEEDS.map((n) => [n === 1 ? "1 step/s" : `${n} steps/s`, String(n)]));
    this.rate.value = String(this.speed);
    this.build();
  }

  build() {
    const { element, scrub, jump, rate } = this;
    element.append(
      this.button("First step", "first", "Home", () => this.seek(0)),
      this.button("One step back", "back", "←", () => this.seek(this.tick - 1)),
      this.playButton,
      this.button("One step on", "step", "→", () => this.seek(this.tick + 1)),
      this.button("Last step", "last", "End", () => this.seek(Infinity)),
      scrub, rate, jump,
    );
    this.playButton.addEventListener("click", () => this.toggle());
    scrub.addEventListener("input", () => this.seek(Number(scrub.value)));
    rate.addEventListener("change", () => (this.speed = Number(rate.value)));
    jump.addEventListener("change", () => {
      const places = this.jumps[jump.value] ?? [];
      this.seek(places.find((tick) => tick > this.tick) ?? places[0] ?? this.tick);
      jump.value = "";
    });
  }

  /** @param {string} label @param {"first" | "back" | "step" | "last"} icon @param {string} keys @param {() => void} action */
  button(label, icon, keys, action) {
    const made = iconButton(label, icon, keys);
    made.addEventListener("click", action);
    return made;
  }

  /** Another block of steps. @param {number} ticks @param {number} start @param {number[]} barriers @param {number[]} findings */
  load(ticks, start, barriers, findings) {
    this.ticks = ticks;
    this.jumps = { barrier: barriers.filter((tick) => tick < ticks), finding: [...findings].sort((a, b) => a - b) };
    for (const option of this.jump.options) option.disabled = option.value !== "" && !this.jumps[option.value].length;
    this.scrub.max = String(Math.max(0, ticks - 1));
    this.seek(start);
  }

  /** Shows a step, and stops playing. @param {number} tick */
  seek(tick) {
    this.playing = false;
    this.show(tick);
  }

  /** @param {number} tick */
  show(tick) {
    this.tick = Math.max(0, Math.min(tick, this.ticks - 1));
    this.scrub.value = String(this.tick);
    this.scrub.setAttribute("aria-valuetext", `step ${this.tick + 1} of ${this.ticks}`);
    setIcon(this.playButton, this.playing ? "Pause" : "Play", this.playing ? "pause" : "play", "Space");
    this.changed();
  }

  toggle() {
    this.playing = !this.playing;
    this.show(this.playing && this.tick >= this.ticks - 1 ? 0 : this.tick);
    if (this.playing) this.run();
  }

  /** Goes on with the browser's frames, so that a hidden page costs nothing. */
  run() {
    let last = performance.now();
    const mine = (this.plays += 1);
    const frame = (/** @type {number} */ now) => {
      if (!this.playing || this.signal.aborted || mine !== this.plays) return;
      const steps = Math.floor(((now - last) / 1000) * this.speed);
      if (steps > 0) {
        last = steps > 10 ? now : last + (1000 * steps) / this.speed;
        this.playing = this.tick + Math.min(steps, 10) < this.ticks - 1;
        this.show(this.tick + Math.min(steps, 10));
      }
      requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  }

  /** @param {string} key @returns {boolean} whether it meant something */
  key(key) {
    if (key === " ") this.toggle();
    else if (key === "ArrowLeft") this.seek(this.tick - 1);
    else if (key === "ArrowRight") this.seek(this.tick + 1);
    else if (key === "Home") this.seek(0);
    else if (key === "End") this.seek(Infinity);
    else return false;
    return true;
  }
}

/** @param {string} label @param {string[][]} options */
function choice(label, options) {
  const select = document.createElement("select");
  select.className = "tvl-select";
  select.setAttribute("aria-label", label);
  for (const [text, value] of options) select.add(new Option(text, value));
  return select;
}
