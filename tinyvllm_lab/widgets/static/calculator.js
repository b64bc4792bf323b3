// @ts-check
/** What the calculators share: colours, units, shapes and fields. */

export const COLOURS = {
  weights: "#0072B2",
  kv: "#E69F00",
  kvLight: "#F3C567",
  beyond: "#D55E00",
};

/** Bytes in binary units, as memory is sold. @param {number} bytes */
export function bytesText(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const power = Math.min(Math.floor(Math.log2(Math.max(bytes, 1)) / 10), units.length - 1);
  const value = bytes / 1024 ** power;
  return `${value >= 100 || power === 0 ? value.toFixed(0) : value.toFixed(1)} ${units[power]}`;
}

const SVG = "http://www.w3.org/2000/svg";

/** @param {string} tag @param {Record<string, string | number>} attributes @param {string} [text] */
export function shape(tag, attributes, text) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  if (text !== undefined) made.textContent = text;
  return made;
}

/** @param {string} label @param {HTMLElement} field @param {HTMLElement} parent */
export function labelled(label, field, parent) {
  const box = document.createElement("label");
  box.className = "tvl-field";
  const name = document.createElement("span");
  name.textContent = label;
  box.append(name, field);
  for (const input of /** @type {NodeListOf<HTMLElement>} */ (box.querySelectorAll("input, select"))) {
    input.dataset.lmSuppressShortcuts = ""; // JupyterLab's: its arrow keys move between cells
  }
  parent.append(box);
}

/** @param {any} model @param {string} name @param {string[]} options */
export function select(model, name, options) {
  const field = document.createElement("select");
  field.className = "tvl-select";
  field.append(...options.map((option) => new Option(option, option)));
  field.value = model.get("choice")[name];
  field.addEventListener("change", () => choose(model, name, field.value));
  return field;
}

/** A slider over doublings. @param {any} model @param {string} name @param {number} low @param {number} high */
export function slider(model, name, low, high) {
  const box = document.createElement("span");
  const field = document.createElement("input");
  const value = document.createElement("output");
  Object.assign(field, { type: "range", min: Math.log2(low), max: Math.log2(high), step: 0.25, className: "tvl-scrub" });
  const show = (/** @type {number} */ number) => {
    value.textContent = number.toLocaleString("en");
    field.setAttribute("aria-valuetext", `${number}`);
  };
  field.value = String(Math.log2(model.get("choice")[name]));
  show(model.get("choice")[name]);
  field.addEventListener("input", () => {
    const number = Math.round(2 ** Number(field.value));
    show(number);
    choose(model, name, number);
  });
  box.append(field, value);
  return box;
}

/** A slider over chosen values. @param {any} model @param {string} name @param {number[]} values ascending @param {string} unit */
export function listSlider(model, name, values, unit) {
  const box = document.createElement("span");
  const field = document.createElement("input");
  const value = document.createElement("output");
  Object.assign(field, { type: "range", min: 0, max: values.length - 1, step: 1, className: "tvl-scrub" });
  const show = (/** @type {number} */ number) => {
    value.textContent = number.toLocaleString("en") + unit;
    field.setAttribute("aria-valuetext", `${number}${unit}`);
  };
  field.value = String(nearest(values, model.get("choice")[name]));
  show(model.get("choice")[name]);
  field.addEventListener("input", () => {
    const number = values[Number(field.value)];
    show(number);
    choose(model, name, number);
  });
  box.append(field, value);
  return box;
}

/** The last of ascending values that is not above a number. @param {number[]} values @param {number} number */
export const nearest = (values, number) => Math.max(0, values.filter((value) => value <= number).length - 1);

/** @param {any} model @param {string} name @param {string | number} value */
function choose(model, name, value) {
  model.set("choice", { ...model.get("choice"), [name]: value });
  model.save_changes();
}
