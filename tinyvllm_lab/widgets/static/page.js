// @ts-check
/**
 * What the panels of a page share: for each run its events, the step that is shown, and the request
 * under the pointer. A panel's code is loaded on its own, so the runs live in a table on `window`.
 */

/** @typedef {import("./link.js").Link} Link */
/** @typedef {import("./replayer.js").Run} Run */
/** @typedef {{state: string, error: string, traceback: string}} Status */
/** @typedef {"run" | "step" | "mark" | "status"} Change */

export const SPEEDS = [1, 2, 5, 10, 20, 30, 60, 120, 240, 1000];

/** One run on the page, and who looks at it. */
export class Store {
  constructor() {
    /** @type {Run | null} */
    this.run = null;
    this.step = 0;
    this.playing = false;
    this.speed = 10; // steps a second
    this.isLive = false;
    this.follows = false; // shows the newest step as it comes
    this.isPoster = false; // a first picture: play starts from the beginning
    this.runNumber = 0; // of the runs that this page has shown one after the other
    this.isWhole = false; // false: the rest of the run is still being computed
    /** @type {Status} */
    this.status = { state: "", error: "", traceback: "" };
    /** @type {number | null} request under the pointer, in whatever panel */
    this.hover = null;
    /** @type {number | null} */
    this.selected = null;
    /** @type {Link | null} to another run of the workload, at the same moment */
    this.link = null;
    this.listeners = new Set();
    /** @type {(command: string, value?: number | null) => void} */
    this.command = () => {};
    this.owed = 0; // parts of a step that were not shown yet
    this.lastFrame = 0;
  }

  /** The request that stands out: the one under the pointer, or else the selected one. */
  get focus() {
    return this.hover ?? this.selected;
  }

  /** @param {(change: Change) => void} listener @param {AbortSignal} signal */
  listen(listener, signal) {
    this.listeners.add(listener);
    signal.addEventListener("abort", () => this.listeners.delete(listener));
  }

  /** @param {Change} change */
  tell(change) {
    for (const listener of this.listeners) listener(change);
  }

  /** Another run comes. @param {boolean} isLive @param {number} number */
  begin(isLive, number) {
    this.run = null;
    this.runNumber = number;
    this.isWhole = false;
    this.isLive = this.follows = isLive;
    this.playing = this.isPoster = false;
    this.hover = this.selected = null;
  }

  /** @param {Run} run @param {number} start first step to show @param {boolean} isWhole */
  setRun(run, start, isWhole = true) {
    const again = this.run !== null;
    this.run = run;
    this.isWhole = isWhole;
    if (this.follows) this.step = run.lastStep;
    else if (!again) this.pose(run, start);
    else this.step = clamp(this.step, run.firstStep, run.lastStep);
    this.tell("run");
    this.link?.align();
  }

  /** A first picture. @param {Run} run @param {number} start */
  pose(run, start) {
    this.step = clamp(start, run.firstStep, run.lastStep);
    this.isPoster = true;
    this.speed = SPEEDS.find((speed) => run.stepStarts.length / speed <= 30) ?? 1000;
  }

  /** The run that was shown in parts is whole. @param {number} start first step to show, if nobody has moved yet */
  finish(start) {
    if (this.run === null || this.isWhole) return;
    this.isWhole = true;
    if (this.isPoster) this.pose(this.run, start);
    this.tell("run");
    this.link?.align();
  }

  /** New events came. */
  grown() {
    if (this.follows && this.run) this.step = Math.max(this.run.lastStep, this.run.firstStep);
    this.tell("step");
  }

  /** @param {number} step @param {boolean} [goesOn] keep playing */
  seek(step, goesOn = false) {
    if (this.run === null) return;
    this.isPoster = false;
    this.moveTo(step, goesOn);
    this.link?.bring(this);
  }

  /** The same for this run alone. @param {number} step @param {boolean} [goesOn] */
  moveTo(step, goesOn = false) {
    const { run } = this;
    if (run === null) return;
    if (!goesOn) this.playing = false;
    this.step = clamp(step, run.firstStep, run.lastStep);
    this.follows = this.isLive && this.step === run.lastStep && !goesOn;
    this.tell("step");
  }

  /** In front of a live engine: run or pause it; else play or pause the picture. */
  toggle() {
    if (this.follows) {
      this.command(this.status.state === "running" ? "pause" : "start");
    } else if (this.playing) {
      this.playing = false;
      this.tell("step");
    } else {
      this.play();
    }
  }

  play() {
    const { run } = this;
    if (run === null) return;
    if (this.isPoster || this.step >= run.lastStep) this.step = run.firstStep;
    this.isPoster = false;
    this.playing = true;
    this.owed = 0;
    this.lastFrame = performance.now();
    this.tell("step");
    this.link?.bring(this);
    requestAnimationFrame((now) => this.frame(now));
  }

  /** @param {number} now */
  frame(now) {
    const { run } = this;
    if (!this.playing || run === null) return;
    this.owed += (Math.min(now - this.lastFrame, 250) / 1000) * this.speed;
    this.lastFrame = now;
    const steps = Math.floor(this.owed);
    if (steps > 0) {
      this.owed -= steps;
      this.seek(this.step + steps, true);
      if (this.step >= run.lastStep) {
        this.playing = false;
        this.follows = this.isLive;
        this.tell("step");
      }
    }
    requestAnimationFrame((time) => this.frame(time));
  }

  /** One step on. In front of a live engine that rests, the engine makes one. @param {number} by */
  nudge(by) {
    const rests = this.status.state === "paused" || this.status.state === "new";
    if (by > 0 && this.follows && rests) this.command("step");
    else this.seek(this.step + by);
  }

  /** @param {number} by places in the list of speeds */
  faster(by) {
    const place = SPEEDS.findIndex((speed) => speed >= this.speed);
    this.setSpeed(SPEEDS[clamp((place < 0 ? SPEEDS.length - 1 : place) + by, 0, SPEEDS.length - 1)]);
  }

  /** @param {number} speed steps a second; of a live engine: its pace */
  setSpeed(speed) {
    this.speed = speed;
    if (this.follows) this.command("pace", speed);
    this.tell("step");
  }

  /** To the next step where this happens. @param {"preempt" | "evict" | "finish"} what */
  jump(what) {
    const steps = this.run?.series.jumps[what] ?? [];
    const next = steps.find((step) => step > this.step) ?? steps[0];
    if (next !== undefined) this.seek(next);
  }

  /** @param {number | null} request */
  point(request) {
    if (request === this.hover) return;
    this.hover = request;
    this.tell("mark");
    this.link?.mark(this);
  }

  /** @param {number | null} request */
  select(request) {
    this.selected = request === this.selected ? null : request;
    this.tell("mark");
    this.link?.mark(this);
  }

  /** @param {Status} status */
  setStatus(status) {
    this.status = status;
    this.tell("status");
  }
}

/** @param {number} value @param {number} low @param {number} high */
export function clamp(value, low, high) {
  return Math.max(low, Math.min(value, high));
}

/** The run with this id; made when the first panel or its feed asks for it. @param {string} id @returns {Store} */
export function storeOf(id) {
  const page = /** @type {any} */ (globalThis);
  page.__tinyvllm_runs ??= new Map();
  if (!page.__tinyvllm_runs.has(id)) page.__tinyvllm_runs.set(id, new Store());
  return page.__tinyvllm_runs.get(id);
}

/** A run is closed: panels that still show it keep it. @param {string} id */
export function forget(id) {
  const page = /** @type {any} */ (globalThis);
  page.__tinyvllm_runs?.delete(id);
}
