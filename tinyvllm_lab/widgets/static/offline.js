// @ts-check
/** Panels in a page of their own: models that only hold what Python wrote into the page. */

/** @param {Record<string, any>} values */
function modelOf(values) {
  return {
    get: (/** @type {string} */ name) => values[name],
    on() {},
    off() {},
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
