// @ts-check
/** The feed of one run: takes what Python sends and keeps the page's `Store` up to date. */

import { forget, storeOf } from "./page.js";
import { Run } from "./replayer.js";
import { decodeEvents, decodeRun } from "./trace.js";

// While a page is loaded anew, what it sends can get lost on the way: it asks until it is answered.
const ASK_AGAIN_MS = 1000;
const GREETINGS = 30;
const MOST_EVENTS = 1_000_000; // then the page asks for the newest part only

/** @typedef {{get: (name: string) => any, on: Function, off: Function, send: Function}} Model */

/** Takes messages one after the other; a run is decoded while the next ones wait. */
class Receiver {
  /** @param {Model} model */
  constructor(model) {
    this.model = model;
    this.store = storeOf(model.get("feed_id"));
    this.number = 0;
    this.runNumber = 0;
    this.asked = -ASK_AGAIN_MS; // when the whole run was asked for, after a gap
    this.isHeard = false; // the kernel has answered the greeting
    this.queue = Promise.resolve();
  }

  start() {
    const { model, store } = this;
    store.begin(model.get("is_live"), this.runNumber);
    store.command = (command, value = null) => model.send({ k: "do", do: command, v: value });
    store.setStatus(model.get("status"));
    if (model.get("pace")) store.speed = model.get("pace");
    this.later(() => this.takeRun(model.get("run_data"), 0, model.get("start_step"), model.get("is_whole")));
    model.on("msg:custom", (/** @type {any} */ message, /** @type {DataView[]} */ buffers) => {
      this.later(() => this.take(message, buffers));
    });
    this.greet(GREETINGS);
  }

  /** @param {() => any} work */
  later(work) {
    this.queue = this.queue.then(work).catch((error) => {
      console.error(error);
      const { state } = this.store.status;
      this.store.setStatus({ state, error: String(error), traceback: error.stack ?? "" });
    });
  }

  /** @param {any} message @param {DataView[]} buffers */
  async take(message, buffers) {
    if (message.k === "run") await this.takeAnyRun(message, buffers[0]);
    else if (message.k === "e") this.takeEvents(message, buffers[0]);
    else if (message.k === "s") this.takeStatus(message);
    else if (message.k === "w") this.takeEnd(message);
    else if (message.k === "n") this.takeAnswer(message.n);
  }

  /** The same run again after a gap, or another one. @param {any} message @param {DataView} bytes */
  async takeAnyRun(message, bytes) {
    if (message.run !== this.runNumber) {
      this.runNumber = message.run;
      this.store.begin(message.live, message.run);
      if (message.pace) this.store.speed = message.pace;
    }
    await this.takeRun(bytes, message.n, message.start, message.whole);
  }

  /** @param {DataView} bytes @param {number} number of the last message that is in it @param {number} start @param {boolean} isWhole */
  async takeRun(bytes, number, start, isWhole) {
    const { header, rows } = await decodeRun(bytes);
    this.number = number;
    this.asked = -ASK_AGAIN_MS;
    this.store.setRun(new Run(header, rows), start, isWhole);
  }

  /** @param {any} message @param {DataView} buffer */
  takeEvents(message, buffer) {
    const { run } = this.store;
    if (run === null || message.n <= this.number) return;
    if (message.n !== this.number + 1 || run.count > MOST_EVENTS) {
      this.askAgain();
      return;
    }
    this.number = message.n;
    Object.assign(run.requests, message.q);
    Object.assign(run.texts, message.t);
    if (message.v) run.knobValues.push(...message.v);
    run.append(decodeEvents(buffer, message.c));
    this.store.grown();
  }

  /** @param {any} message */
  takeStatus(message) {
    const { store } = this;
    if (message.state === "stopped") store.isLive = store.follows = false;
    store.setStatus({ state: message.state, error: message.error, traceback: message.traceback });
  }

  /** A run that was sent in parts is whole. @param {{n: number, start: number}} message */
  takeEnd({ n, start }) {
    if (n === this.number) this.store.finish(start);
    else this.askAgain();
  }

  askAgain() {
    const now = performance.now();
    if (now - this.asked < ASK_AGAIN_MS) return;
    this.asked = now;
    this.model.send({ k: "again" });
  }

  /** Say that the page is there until the kernel answers. @param {number} times */
  greet(times) {
    if (this.isHeard || times === 0) return;
    this.model.send({ k: "ready" });
    setTimeout(() => this.greet(times - 1), ASK_AGAIN_MS);
  }

  /** @param {number} number of the last message that the kernel has sent */
  takeAnswer(number) {
    this.isHeard = true;
    if (number !== this.number) this.askAgain();
  }
}

export default {
  /** @param {{model: Model}} context */
  initialize({ model }) {
    new Receiver(model).start();
    return () => forget(model.get("feed_id"));
  },
};
