// @ts-check
/** What the calculators have besides their fields: a drawing that knows its size, a legend. */

/**
 * Draws when the choice or the width changes, so that text has its size on any screen.
 * @param {any} model @param {Element} svg
 * @param {(width: number, unit: number) => void} draw given the px of the drawing's width and of text
 * @returns {() => void} ends it
 */
export function drawAtSize(model, svg, draw) {
  let asked = 0;
  const ask = () => {
    asked ||= requestAnimationFrame(() => {
      asked = 0;
      const { width } = svg.getBoundingClientRect();
      if (width > 0) draw(width, Number.parseFloat(getComputedStyle(svg).fontSize));
    });
  };
  const resized = new ResizeObserver(ask);
  resized.observe(svg);
  model.on("change:choice", ask);
  ask();
  return () => {
    resized.disconnect();
    model.off("change:choice", ask);
  };
}

/** Swatches with their meanings. @param {[string, string][]} items fill and words */
export function legendOf(items) {
  const box = document.createElement("div");
  box.className = "tvl-legend";
  for (const [fill, label] of items) {
    const key = document.createElement("span");
    key.className = "tvl-key";
    const swatch = document.createElement("i");
    swatch.className = "tvl-swatch";
    swatch.style.setProperty("--tvl-swatch", fill);
    key.append(swatch, label);
    box.append(key);
  }
  return box;
}
