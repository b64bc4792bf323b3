// @ts-check
/** The source of a kernel with what each line costs: a list that the panel lights up. */

import { LOOKS } from "./xray_view.js";
import { costOf, times, worthOf } from "./xray_run.js";

/** @typedef {import("./xray_run.js").XRayRun} XRayRun */
/** @typedef {import("./xray_run.js").Access} Access */

const GOOD = 0.75;
const POOR = 0.4;
const DEEPEST = 16; // characters of indentation that are kept
const WORTH = { good: "#009E73", fair: "#E69F00", poor: "#D55E00" };

/** @param {string} name @param {string} [text] */
function cell(name, text = "") {
  const made = document.createElement("span");
  made.className = name;
  made.textContent = text;
  return made;
}

export class SourceList {
  /** @param {(line: {file: string, number: number} | null) => void} pointed @param {(line: {file: string, number: number}) => void} chosen */
  constructor(pointed, chosen) {
    this.element = document.createElement("div");
    this.element.className = "tvl-code";
    this.element.setAttribute("role", "list");
    this.element.setAttribute("aria-label", "Source, with the cost of each line");
    this.pointed = pointed;
    this.chosen = chosen;
    /** @type {Map<string, HTMLElement>} */
    this.rows = new Map();
  }

  /** @param {XRayRun} run */
  show(run) {
    this.rows.clear();
    const head = cell("tvl-code-line tvl-code-head");
    head.append(cell("tvl-code-number", "line"), cell("tvl-code-lanes", "lanes"), cell("tvl-code-cost", "cost"), cell("tvl-code-text", "source"));
    this.element.replaceChildren(head);
    let last = "";
    for (const { file, first, lines } of run.page.source) {
      const title = file === last ? "⋯" : file;
      this.element.append(cell("tvl-code-file", title));
      last = file;
      lines.forEach((text, n) => this.element.append(this.row(run, file, first + n, text)));
    }
  }

  /** @param {XRayRun} run @param {string} file @param {number} number @param {string} text */
  row(run, file, number, text) {
    const { page } = run;
    const mine = page.lines.map((line, n) => ({ line, n })).filter(({ line }) => line.file === file && line.number === number).map(({ n }) => n);
    const accesses = page.accesses.filter((access) => mine.includes(access.line));
    const findings = page.findings.filter((one) => one.file === file && (one.line === number || one.other_line === number));
    const row = cell("tvl-code-line");
    row.setAttribute("role", "listitem");
    if (mine.length) row.dataset.busy = "true";
    const code = cell("tvl-code-text", text.trimStart());
    code.style.setProperty("--tvl-indent", `${Math.min(text.length - text.trimStart().length, DEEPEST)}ch`);
    const finding = findings.find((one) => one.line === number) ?? findings[0];
    if (finding) code.prepend(cell("tvl-code-finding", finding.line === number ? finding.kind : `other side of a ${finding.kind}`));
    row.append(cell("tvl-code-number", `${number}`), cell("tvl-code-lanes", lanesOf(run, mine)), costCell(run, mine, accesses), code);
    row.title = accesses.map(accessText).join("\n");
    row.addEventListener("pointerenter", () => this.pointed(mine.length ? { file, number } : null));
    row.addEventListener("pointerleave", () => this.pointed(null));
    row.addEventListener("click", () => this.chosen({ file, number }));
    this.rows.set(`${file}:${number}`, row);
    return row;
  }

  /** Lights up the line of the chosen warp, those of the others, and those pointed at. @param {string} now @param {Set<string>} others @param {Set<string>} pointed @param {boolean} follow scroll to it */
  mark(now, others, pointed, follow) {
    for (const [key, row] of this.rows) {
      row.dataset.now = key === now ? "chosen" : others.has(key) ? "other" : "";
      row.dataset.pointed = String(pointed.has(key));
    }
    const row = this.rows.get(now);
    if (row && follow) this.reveal(row);
  }

  /** Scrolls inside the list alone: the page stays. @param {HTMLElement} row */
  reveal(row) {
    const { element } = this;
    const top = row.offsetTop - element.offsetTop;
    const room = element.clientHeight;
    if (top < element.scrollTop + room * 0.15 || top > element.scrollTop + room * 0.8) element.scrollTop = top - room * 0.4;
  }
}

/** @param {XRayRun} run @param {number[]} lines */
function lanesOf(run, lines) {
  if (!lines.length) return "";
  const lanes = run.page.activity[lines.reduce((a, b) => (run.page.activity[b][0] > run.page.activity[a][0] ? b : a))][1];
  return Number.isInteger(lanes) ? `${lanes}` : lanes.toFixed(1);
}

/** The worst access of a line; barriers and shuffles by name. @param {XRayRun} run @param {number[]} lines @param {Access[]} accesses */
function costCell(run, lines, accesses) {
  const worst = accesses.reduce((/** @type {Access | null} */ a, b) => (a === null || worthOf(b) < worthOf(a) ? b : a), null);
  const made = cell("tvl-code-cost");
  if (worst === null) {
    const kind = ["barrier", "warp_op"].find((name) => lines.some((line) => run.kindsOf(line).has(name)));
    if (kind) made.append(bar(LOOKS[kind].fill, 1), kind === "barrier" ? "barrier" : "shuffle");
    return made;
  }
  const worth = worthOf(worst);
  made.append(bar(worth >= GOOD ? WORTH.good : worth >= POOR ? WORTH.fair : WORTH.poor, worth), costOf(worst));
  return made;
}

/** @param {string} fill @param {number} share */
function bar(fill, share) {
  const made = cell("tvl-code-bar");
  made.style.setProperty("--tvl-swatch", fill);
  made.style.setProperty("--tvl-share", `${Math.max(8, Math.round(100 * share))}%`);
  return made;
}

/** @param {Access} access */
export function accessText(access) {
  const { operation, array, access_bytes: size, requests, lanes } = access;
  return `${operation} ${array}: ${costOf(access)}; ${times(requests, "request")} of ${lanes.toFixed(lanes % 1 ? 1 : 0)} lanes, ${size} bytes each`;
}
