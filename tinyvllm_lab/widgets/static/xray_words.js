// @ts-check
/** What stands around the picture of a kernel x-ray: the launch in words, and the legend. */

import { indexOf, product, times } from "./xray_run.js";
import { LOOKS } from "./xray_view.js";

/** @typedef {import("./xray_run.js").XRayRun} XRayRun */

/** Launch and sums, in words. @param {XRayRun} run */
export function facts({ page, warps }) {
  const { totals } = page;
  const number = (/** @type {number} */ value) => value.toLocaleString("en-US");
  const seen = page.logged.length === product(page.grid) ? "all blocks" : page.logged.length === 1 ? `block ${indexOf(page.logged[0] ?? 0, page.grid)}` : `${page.logged.length} blocks`;
  const parts = [
    `${page.kernel}: grid (${page.grid.join(", ")}) × block (${page.block.join(", ")}) = ${times(warps, "warp")} a block.`,
    `Counted in ${seen}: ${number(totals.global_bytes_moved)} bytes moved in ${times(totals.global_requests, "request")}`,
  ];
  if (totals.shared_requests) parts.push(`, ${times(totals.bank_conflict_passes, "extra pass")} of the banks`);
  if (totals.warp_operations) parts.push(`, ${times(totals.warp_operations, "shuffle")}`);
  const cut = page.left_out ? ` The first ${number(page.ticks)} steps are shown; ${number(page.left_out)} actions of threads after them are left out.` : "";
  const full = page.dropped ? ` The log was full: ${number(page.dropped)} events are not counted.` : "";
  return `${parts[0]} ${parts.slice(1).join("")}.${cut}${full}`;
}

/** What colours and marks mean. */
export function legend() {
  const box = document.createElement("div");
  box.className = "tvl-legend";
  const marks = Object.entries(LOOKS).map(([kind, { fill, label }]) => [fill, label, kind === "barrier" ? "hatched" : ""]);
  for (const [fill, label, mark] of [...marks, ["var(--tvl-soft)", "rests", "pale"], ["var(--tvl-soft)", "done", "line"], ["var(--tvl-warn)", "found by the checker", "outline"]]) {
    const key = document.createElement("span");
    key.className = "tvl-key";
    const swatch = document.createElement("i");
    swatch.className = "tvl-swatch";
    swatch.style.setProperty("--tvl-swatch", fill);
    if (mark) swatch.dataset.mark = mark;
    key.append(swatch, label);
    box.append(key);
  }
  return box;
}
