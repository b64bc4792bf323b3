// @ts-check
/** The bar under a panel: play, step, scrub, speed, jump. */

import { iconButton, setIcon } from "./buttons.js";
import { SPEEDS } from "./page.js";

/** @typedef {import("./page.js").Store} Store */

export class Controls {
  /** @param {Store} store @param {AbortSignal} signal */
  constructor(store, signal) {
    this.store = store;
    this.element = document.createElement("div");
    this.element.className = "tvl-controls";
    this.play = iconButton("Play", "play", "Space");
    this.stop = iconButton("Stop the engine", "stop", "");
    this.scrub = scrubber();
    this.speed = speedChoice();
    this.jump = jumpChoice();
    this.live = liveMark();
    this.element.append(
      this.withAction(iconButton("First step", "first", "Home"), () => store.seek(-Infinity)),
      this.withAction(iconButton("One step back", "back", "←"), () => store.nudge(-1)),
      this.withAction(this.play, () => store.toggle()),
      this.withAction(iconButton("One step on", "step", "→"), () => store.nudge(1)),
      this.withAction(iconButton("Newest step", "last", "End"), () => store.seek(Infinity)),
      this.withAction(this.stop, () => store.command("stop")),
      this.scrub, this.live, this.speed, this.jump,
    );
    this.connect(signal);
    this.update();
  }

  /** @param {HTMLButtonElement} button @param {() => void} action */
  withAction(button, action) {
    button.addEventListener("click", action);
    return button;
  }

  /** @param {AbortSignal} signal */
  connect(signal) {
    const { store, scrub, speed, jump } = this;
    scrub.addEventListener("input", () => store.seek(Number(scrub.value)), { signal });
    speed.addEventListener("change", () => store.setSpeed(Number(speed.value)), { signal });
    jump.addEventListener("change", () => {
      store.jump(/** @type {"preempt" | "evict" | "finish"} */ (jump.value));
      jump.value = "";
    }, { signal });
  }

  update() {
    const { store, scrub } = this;
    const { run } = store;
    const runs = store.follows ? store.status.state === "running" : store.playing;
    const what = store.follows ? " the engine" : "";
    setIcon(this.play, (runs ? "Pause" : "Play") + what, runs ? "pause" : "play", "Space");
    this.stop.hidden = !store.isLive;
    this.live.hidden = !store.isLive;
    this.live.dataset.on = String(store.follows);
    this.live.textContent = store.follows ? "live" : "past";
    if (run === null) return;
    scrub.min = String(run.firstStep);
    scrub.max = String(Math.max(run.lastStep, run.firstStep));
    scrub.value = String(store.step);
    scrub.setAttribute("aria-valuetext", `step ${store.step} of ${run.lastStep}`);
    if (![...this.speed.options].some((o) => Number(o.value) === store.speed)) {
      this.speed.add(new Option(`${store.speed} steps/s`, String(store.speed)));
    }
    this.speed.value = String(store.speed);
    for (const option of this.jump.options) {
      const steps = run.series.jumps[/** @type {"finish"} */ (option.value)];
      if (steps) option.disabled = steps.length === 0;
    }
  }
}

function scrubber() {
  const scrub = document.createElement("input");
  scrub.type = "range";
  scrub.className = "tvl-scrub";
  scrub.setAttribute("aria-label", "Step");
  return scrub;
}

function speedChoice() {
  const select = document.createElement("select");
  select.className = "tvl-select";
  select.dataset.lmSuppressShortcuts = ""; // JupyterLab's: its arrow keys move between cells
  select.setAttribute("aria-label", "Speed");
  select.title = "Speed (+ and −)";
  for (const speed of SPEEDS) {
    select.add(new Option(speed === 1 ? "1 step/s" : `${speed} steps/s`, String(speed)));
  }
  return select;
}

function jumpChoice() {
  const select = document.createElement("select");
  select.className = "tvl-select";
  select.dataset.lmSuppressShortcuts = "";
  select.setAttribute("aria-label", "Jump to the next event of a kind");
  select.add(new Option("Jump to …", ""));
  select.add(new Option("next preemption", "preempt"));
  select.add(new Option("next eviction", "evict"));
  select.add(new Option("next finish", "finish"));
  return select;
}

function liveMark() {
  const mark = document.createElement("span");
  mark.className = "tvl-live";
  return mark;
}
