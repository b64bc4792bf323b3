// @ts-check
/** The knobs of the explorer: those that the kernel simulates with, and those of the picture. */

import { labelled, listSlider, nearest, select, slider } from "./calculator.js";
import { LATENCIES } from "./load_words.js";

const SILENCE_MS = 4000;
const OFFLINE = "This page has no kernel, so the workload and the server stay as they were. The limits and the picture can be changed.";
const SILENT = "The kernel does not answer: run the cell again.";

/** @type {Record<string, string>} */
const LABELS = {
  gpu: "GPU", prompt: "prompt tokens, median", answer: "answer tokens, median", long_prompts: "prompts 8× as long",
  latency: "latency", percentile: "percentile", throughput: "throughput in",
  ttft_ms: "limit of TTFT", tpot_ms: "limit of TPOT",
};
/** @type {Record<string, string>} */
const UNITS = { long_prompts: " %", ttft_ms: " ms", tpot_ms: " ms" };

/** @type {Record<string, string>} */
const WORDS = { ...LATENCIES, tokens: "output tokens", requests: "requests" };

export class Knobs {
  /** @param {any} model @param {HTMLElement} root @param {AbortSignal} signal */
  constructor(model, root, signal) {
    this.model = model;
    /** @type {Map<string, HTMLElement>} */
    this.fields = new Map();
    const server = group(root, "Workload and server: every change is simulated anew");
    const picture = group(root, "Limits and picture");
    const { simulated, help } = model.get("tables");
    for (const name of Object.keys(model.get("choice"))) {
      const field = this.field(name);
      field.title = help[name] ?? "";
      labelled(LABELS[name] ?? name, field, simulated.includes(name) ? server.fields : picture.fields);
      this.fields.set(name, field);
    }
    this.notice = document.createElement("div");
    this.notice.className = "tvl-notice";
    this.notice.setAttribute("role", "status");
    server.box.append(this.notice);
    server.box.disabled = Boolean(model.get("offline"));
    this.say(model.get("offline") ? OFFLINE : "");
    server.box.addEventListener("input", () => this.asked(), { signal });
    signal.addEventListener("abort", () => clearTimeout(this.timer));
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.timer = undefined;
  }

  /** @param {string} name */
  field(name) {
    const { model } = this;
    const { ranges, options, steps } = model.get("tables");
    if (name in options) return withWords(select(model, name, options[name]));
    if (name in steps) return listSlider(model, name, steps[name], UNITS[name]);
    return slider(model, name, ranges[name][0], ranges[name][1]);
  }

  /** A knob was turned here: the kernel should answer, or at least say what it has when asked. */
  asked() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      this.model.send({ k: "ready" });
      this.timer = setTimeout(() => this.say(SILENT), SILENCE_MS);
    }, SILENCE_MS);
  }

  /** The kernel has answered. */
  answered() {
    clearTimeout(this.timer);
    this.say("");
  }

  /** @param {string} text */
  say(text) {
    this.notice.textContent = text;
    this.notice.hidden = !text;
  }

  /** Show what Python has turned. */
  follow() {
    for (const [name, field] of this.fields) {
      const value = this.model.get("choice")[name];
      const input = field.querySelector("input");
      if (field instanceof HTMLSelectElement) field.value = value;
      else if (input && input !== document.activeElement) this.showNumber(name, field, input, value);
    }
  }

  /** @param {string} name @param {HTMLElement} field @param {HTMLInputElement} input @param {number} value */
  showNumber(name, field, input, value) {
    const values = this.model.get("tables").steps[name];
    input.value = String(values ? nearest(values, value) : Math.log2(value));
    const text = value.toLocaleString("en") + (UNITS[name] ?? "");
    input.setAttribute("aria-valuetext", text);
    /** @type {HTMLElement} */ (field.querySelector("output")).textContent = text;
  }
}

/** @param {HTMLSelectElement} field */
function withWords(field) {
  for (const option of field.options) option.textContent = WORDS[option.value] ?? option.value;
  return field;
}

/** @param {HTMLElement} root @param {string} name */
function group(root, name) {
  const box = document.createElement("fieldset");
  box.className = "tvl-group";
  const title = document.createElement("legend");
  title.textContent = name;
  const fields = document.createElement("div");
  fields.className = "tvl-fields";
  box.append(title, fields);
  root.append(box);
  return { box, fields };
}
