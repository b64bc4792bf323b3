// @ts-check
/** Buttons with drawn icons, because fonts lack them. */

const ICONS = {
  first: "M3 3h2v10H3zM13 3v10L6 8z",
  back: "M11 3v10L5 8zM12 3h1.6v10H12z",
  play: "M4 2.5v11L13.5 8z",
  pause: "M4 3h3v10H4zM9 3h3v10H9z",
  step: "M5 3v10l6-5zM2.4 3H4v10H2.4z",
  last: "M11 3h2v10h-2zM3 3v10l7-5z",
  stop: "M3.5 3.5h9v9h-9z",
  nearer: "M7 3h2v4h4v2H9v4H7V9H3V7h4z",
  farther: "M3 7h10v2H3z",
};

/** @param {string} label @param {keyof typeof ICONS} icon @param {string} keys */
export function iconButton(label, icon, keys) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "tvl-button";
  setIcon(button, label, icon, keys);
  return button;
}

/** @param {HTMLButtonElement} button @param {string} label @param {keyof typeof ICONS} icon @param {string} keys */
export function setIcon(button, label, icon, keys) {
  if (button.dataset.icon === icon && button.getAttribute("aria-label") === label) return;
  button.dataset.icon = icon;
  button.setAttribute("aria-label", label);
  button.title = keys ? `${label} (${keys})` : label;
  button.innerHTML = `<svg viewBox="0 0 16 16" aria-hidden="true"><path d="${ICONS[icon]}"/></svg>`;
}
