// @ts-check
/** More or fewer steps at a time: two buttons, or the wheel with Ctrl, which is also a pinch. */

import { iconButton } from "./buttons.js";

const BY_BUTTON = 2;
const BY_WHEEL = 1.2;

/** @param {HTMLElement} head of the panel @param {HTMLElement} canvas @param {(factor: number) => void} zoom show so many times as many steps @param {AbortSignal} signal */
export function addZoom(head, canvas, zoom, signal) {
  const fewer = iconButton("Fewer steps", "nearer", "Ctrl and wheel up");
  const more = iconButton("More steps", "farther", "Ctrl and wheel down");
  fewer.addEventListener("click", () => zoom(1 / BY_BUTTON), { signal });
  more.addEventListener("click", () => zoom(BY_BUTTON), { signal });
  const place = document.createElement("span");
  place.className = "tvl-zoom";
  place.append(more, fewer);
  head.append(place);
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoom(event.deltaY > 0 ? BY_WHEEL : 1 / BY_WHEEL);
  }, { signal, passive: false });
}
