// @ts-check
/** The fields of the launch-geometry explorer: sliders with a number to type, boxes, the kernels of the course. */

import { labelled, select } from "./calculator.js";
import { launchOf, resourcesOf } from "./launch_figures.js";

/**
 * @typedef {import("./launch_figures.js").Choice} Choice
 * @typedef {import("./launch_figures.js").Tables} Tables
 * @typedef {import("./launch_drawing.js").Scene} Scene
 * @typedef {{update: (shown: number, disabled?: boolean, most?: number) => void}} Field
 */

/** @param {any} model @param {Partial<Choice>} change */
export function choose(model, change) {
  model.set("choice", { ...model.get("choice"), ...change });
  model.save_changes();
}

/** A slider over doublings or steps, and the number to type. @param {string} label @param {HTMLElement} parent @param {[number, number, number]} range low, high, step (0: doublings) @param {(value: number) => void} changed @returns {Field} */
function numberField(label, parent, [low, high, step], changed) {
  const [slide, exact] = [document.createElement("input"), document.createElement("input")];
  const doublings = step === 0;
  const to = (/** @type {number} */ value) => (doublings ? Math.log2(Math.max(value, 1)) : value);
  const from = (/** @type {number} */ value) => (doublings ? Math.round(2 ** value) : value);
  Object.assign(slide, { type: "range", min: String(to(low)), max: String(to(high)), step: String(doublings ? 0.25 : step), className: "tvl-scrub" });
  Object.assign(exact, { type: "number", min: String(low), max: String(high), step: "1", className: "tvl-number" });
  slide.setAttribute("aria-label", label);
  slide.addEventListener("input", () => changed(Math.max(low, Math.min(from(Number(slide.value)), high))));
  const typed = () => changed(Math.max(low, Math.min(Math.round(Number(exact.value)) || low, Number(exact.max))));
  exact.addEventListener("change", typed);
  exact.addEventListener("keydown", (event) => event.key === "Enter" && typed());
  const box = document.createElement("span");
  box.append(slide, exact);
  labelled(label, box, parent);
  return {
    update(value, disabled = false, most = high) {
      slide.max = String(to(most));
      exact.max = String(most);
      if (from(Number(slide.value)) !== value) slide.value = String(to(value));
      slide.setAttribute("aria-valuetext", String(value));
      exact.value = String(value);
      slide.disabled = exact.disabled = disabled;
    },
  };
}

/** @param {string} label @param {HTMLElement} parent @param {(on: boolean) => void} changed */
function checkField(label, parent, changed) {
  const box = document.createElement("label");
  box.className = "tvl-check";
  const field = document.createElement("input");
  field.type = "checkbox";
  field.dataset.lmSuppressShortcuts = "";
  field.addEventListener("change", () => changed(field.checked));
  box.append(field, label);
  parent.append(box);
  return field;
}

/** The kernels of the course, by file. @param {any} model @param {Tables} tables @param {string} own */
function kernelSelect(model, tables, own) {
  const field = select(model, "kernel", [own]);
  /** @type {Map<string, HTMLOptGroupElement>} */
  const groups = new Map();
  for (const { name, file } of tables.kernels) {
    let group = groups.get(file);
    if (group === undefined) {
      group = document.createElement("optgroup");
      group.label = `${file}.cu`;
      groups.set(file, group);
      field.append(group);
    }
    group.append(new Option(name, name));
  }
  field.value = model.get("choice").kernel;
  return field;
}

/** All fields; returns what shows the choice in them. @param {any} model @param {Tables} tables @param {HTMLElement} parent */
export function makeFields(model, tables, parent) {
  const own = model.get("own");
  const put = (/** @type {string} */ name) => (/** @type {number} */ value) => choose(model, { [name]: value });
  const fill = (/** @type {string} */ name) => (/** @type {number} */ value) => {
    const { registers, shared } = resourcesOf(model.get("choice"), tables);
    choose(model, { registers, shared, kernel: own, [name]: value });
  };
  const fields = {
    columns: numberField("n, or columns", parent, [1, 2 ** 20, 0], put("columns")),
    rows: numberField("rows", parent, [1, 4096, 0], put("rows")),
    block_x: numberField("block, x", parent, [1, 1024, 1], put("block_x")),
    block_y: numberField("block, y", parent, [1, 64, 1], put("block_y")),
    grid_x: numberField("grid, x", parent, [1, 65536, 0], put("grid_x")),
    grid_y: numberField("grid, y", parent, [1, 4096, 0], put("grid_y")),
  };
  const kernel = kernelSelect(model, tables, own);
  labelled("kernel", kernel, parent);
  labelled("GPU", select(model, "gpu", tables.gpus.map((gpu) => gpu.name)), parent);
  const registers = numberField("registers", parent, [16, 255, 1], fill("registers"));
  const shared = numberField("shared, bytes", parent, [0, 232448, 256], fill("shared"));
  const checks = document.createElement("div");
  checks.className = "tvl-checks";
  const cover = checkField("the grid covers all elements", checks, (on) => {
    const { x, y } = launchOf(model.get("choice"));
    choose(model, { cover: on, grid_x: x.grid, grid_y: y.grid });
  });
  const stride = checkField("grid-stride loop", checks, (on) => choose(model, { stride: on }));
  const guard = checkField("guard: if (i < n)", checks, (on) => choose(model, { guard: on }));
  parent.append(checks);
  const look = numberField("look at block", parent, [0, 2 ** 32, 1], put("block"));
  return (/** @type {Scene} */ { choice, launch, block }) => {
    for (const name of /** @type {const} */ (["columns", "rows", "block_x", "block_y"])) fields[name].update(choice[name]);
    fields.grid_x.update(launch.x.grid, choice.cover, Math.max(65536, launch.x.grid));
    fields.grid_y.update(launch.y.grid, choice.cover);
    const needs = resourcesOf(choice, tables);
    registers.update(needs.registers);
    shared.update(needs.shared);
    kernel.value = choice.kernel;
    [cover.checked, stride.checked] = [choice.cover, choice.stride];
    [guard.checked, guard.disabled] = [launch.guarded, choice.stride];
    look.update(block, false, launch.x.grid * launch.y.grid - 1);
  };
}
