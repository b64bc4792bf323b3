// @ts-check
/** What the calculators share: colours and units. */

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
