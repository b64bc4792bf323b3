// @ts-check
/** Panels in a page of their own: models that hold what Python wrote into the page. */

/** @param {Record<string, any>} values */
function modelOf(values) {
  const changed = new EventTarget();
  return {
    get: (/** @type {string} */ name) => (name === "offline" ? true : values[name]),
    set(/** @type {string} */ name, /** @type {any} */ value) {
      values[name] = value;
      changed.dispatchEvent(new Event(`change:${name}`));
    },
    on: (/** @type {string} */ name, /** @type {() => void} */ call) => changed.addEventListener(name, call),
    off: (/** @type {string} */ name, /** @type {() => void} */ call) => changed.removeEventListener(name, call),
    save_changes() {},
    send() {},
  };
}

/** @param {string} text base64 */
function bytesOf(text) {
  return new DataView(Uint8Array.from(atob(text), (char) => char.charCodeAt(0)).buffer);
}

/** @param {any[]} feeds @param {any[]} panels @param {Record<string, any>} modules */
function mount(feeds, panels, modules) {
  for (const feed of feeds) {
    modules.$feed.initialize({ model: modelOf({ ...feed, run_data: bytesOf(feed.run_data) }) });
  }
  for (const panel of panels) {
    const place = document.createElement("div");
    document.body.append(place);
    modules[panel.module].render({ model: modelOf(panel), el: place });
  }
}

export default { mount };
