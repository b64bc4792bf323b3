// @ts-check
/** The airport: requests wait in a queue, sit in seats while they are computed, and leave. */

import { Actors } from "./actors.js";
import { KIND, PHASE, PHASE_WORDS, REASON_WORDS } from "./events.js";
import { definePanel, requestSwatch } from "./panel.js";
import { lookOf, PHASE_COLOURS } from "./theme.js";
import { capacityOf, count, phasesOf, plural, seatsOf, unitOf, usedOf } from "./words.js";

/** @typedef {import("./panel.js").Scene} Scene */
/** @typedef {import("./draw.js").Surface} Surface */
/** @typedef {import("./actors.js").Box} Box */
/** @typedef {{name: string, x: number, w: number}} Zone */

const MOST_ROWS = 12;

class Airport {
  constructor() {
    this.actors = new Actors();
  }

  /** @param {Scene} scene */
  height(scene) {
    return this.layout(scene).height;
  }

  /** @param {Scene} scene */
  layout(scene) {
    const { size, width } = scene;
    const seats = Math.max(seatsOf(scene.run, scene.state), 1);
    const columns = Math.ceil(seats / (seats > 96 ? 16 : MOST_ROWS));
    const rows = Math.ceil(seats / columns);
    const pitch = size * (seats > 96 ? 1.5 : 2.3);
    const gap = size;
    const side = Math.max(width * 0.21, size * 6);
    const middle = width - 2 * side - 2 * gap;
    const top = size * 2;
    const hall = Math.max(rows * pitch, size * 14);
    const zones = {
      queue: { name: "Queue", x: 0, w: side },
      seats: { name: "Seats", x: side + gap, w: middle },
      done: { name: "Done", x: width - side, w: side },
    };
    return {
      seats, columns, rows, pitch, top, hall, zones, gap, height: top + hall + size * 4.1,
      seatPitch: hall / rows > pitch * 1.4 ? pitch * 1.4 : hall / rows,
    };
  }

  /** @param {Surface} surface @param {Scene} scene */
  draw(surface, scene) {
    const layout = this.layout(scene);
    const { actors } = this;
    actors.begin();
    drawHalls(surface, scene, layout);
    const seen = new Set();
    this.placeSeated(surface, scene, layout, seen);
    this.placeWaiting(surface, scene, layout, seen);
    this.placeDone(surface, scene, layout, seen);
    const moves = actors.move(scene.elapsed, scene.still);
    const working = workOf(scene);
    for (const actor of actors.all.values()) drawRequest(surface, scene, actor, working);
    drawGauges(surface, scene, layout);
    return moves;
  }

  /** @param {Surface} surface @param {Scene} scene @param {any} layout @param {Set<number>} seen */
  placeSeated(surface, scene, layout, seen) {
    const { zones, columns, rows, top, seatPitch } = layout;
    const w = zones.seats.w / columns;
    for (let slot = 0; slot < layout.seats; slot++) {
      const box = {
        x: zones.seats.x + Math.floor(slot / rows) * w + 1, y: top + (slot % rows) * seatPitch + 1.5,
        w: w - 4, h: seatPitch - 3,
      };
      drawSeat(surface, scene, slot, box);
      const request = scene.state.slots.get(slot);
      if (request === undefined) continue;
      seen.add(request);
      this.actors.place(request, box, { ...box, x: zones.queue.x + zones.queue.w / 2, w: box.w / 3 });
    }
  }

  /** @param {Surface} surface @param {Scene} scene @param {any} layout @param {Set<number>} seen */
  placeWaiting(surface, scene, layout, seen) {
    const { queue } = layout.zones;
    const waiting = scene.state.waiting;
    const grid = chipGrid(scene, queue, layout);
    const shown = waiting.length > grid.room ? grid.room - 1 : waiting.length;
    for (let i = 0; i < shown; i++) {
      const box = grid.box(i);
      seen.add(waiting[i]);
      this.actors.place(waiting[i], box, { ...box, x: queue.x - box.w });
    }
    if (shown < waiting.length) {
      const box = grid.box(shown);
      const more = `+${count(waiting.length - shown)}`;
      surface.text(more, box.x + 2, box.y + box.h / 2, { size: scene.size, colour: scene.theme.soft });
    }
  }

  /** @param {Surface} _surface @param {Scene} scene @param {any} layout @param {Set<number>} seen */
  placeDone(_surface, scene, layout, seen) {
    const { done, seats } = layout.zones;
    const h = scene.size * 1.75;
    const room = Math.floor((layout.hall - 2) / (h + 3));
    lastFinished(scene, room).forEach((request, place) => {
      if (seen.has(request)) return;
      const box = { x: done.x + 4, y: layout.top + 3 + place * (h + 3), w: done.w - 8, h };
      this.actors.place(request, box, { ...box, x: seats.x + seats.w / 2 });
    });
  }

  /** @param {number} x @param {number} y */
  hit(x, y) {
    const request = this.actors.at(x, y);
    return request === null ? null : { request };
  }

  /** @param {Scene} scene */
  legend({ theme }) {
    return [
      { fill: requestSwatch(), label: "a request (colour, pattern and # are its own everywhere)" },
      ...PHASE_WORDS.map((label, phase) => ({ fill: PHASE_COLOURS[phase], label: `${label} tokens` })),
      { fill: theme.text, label: "KV in use" },
      { fill: theme.soft, label: "KV free, but cached" },
      { fill: theme.text, label: "preempted", mark: /** @type {const} */ ("dashed") },
    ];
  }
}

/** Chips in rows, the head of the queue first. @param {Scene} scene @param {Zone} zone @param {any} layout */
function chipGrid({ size }, zone, layout) {
  const h = size * 1.75;
  const columns = Math.max(1, Math.floor((zone.w - 5) / (size * 3.1 + 3)));
  const w = Math.min(size * 3.5, (zone.w - 5) / columns - 3);
  const rows = Math.max(1, Math.floor((layout.hall - 2) / (h + 3)));
  return {
    room: columns * rows,
    /** @param {number} i @returns {Box} */
    box: (i) => ({
      x: zone.x + 4 + (i % columns) * (w + 3), y: layout.top + 3 + Math.floor(i / columns) * (h + 3), w, h,
    }),
  };
}

/** The newest first. @param {Scene} scene @param {number} most */
function lastFinished({ run, step }, most) {
  const { marks } = run.series;
  const found = [];
  for (let i = marks.length - 1; i >= 0 && found.length < most; i--) {
    if (marks[i].step <= step && marks[i].kind === KIND.FINISH) found.push(marks[i].request);
  }
  return found;
}

/** What each request computes in this step. @param {Scene} scene @returns {Map<number, [number, number]>} tokens, phase */
function workOf({ run, step }) {
  const work = new Map();
  if (run.numSteps === 0) return work;
  for (const [kind, a, b, c] of run.eventsOf(step)) if (kind === KIND.SCHEDULED) work.set(a, [b, c]);
  return work;
}

/** @param {Surface} surface @param {Scene} scene @param {any} layout */
function drawHalls(surface, scene, layout) {
  const { theme, size, state } = scene;
  const reasons = [...state.finished].filter(([, n]) => n).map(([r, n]) => `${count(n)} ${REASON_WORDS[r]}`);
  const ended = [...state.finished.values()].reduce((sum, n) => sum + n, 0);
  const notes = {
    queue: [count(state.queue.size)],
    seats: [`${count(state.slots.size)} of ${count(layout.seats)} taken`, `${count(state.slots.size)} taken`],
    done: ended ? [`${count(ended)}: ${reasons.join(", ")}`, count(ended)] : ["0"],
  };
  for (const name of /** @type {const} */ (["queue", "seats", "done"])) {
    const zone = layout.zones[name];
    if (name !== "seats") surface.card(zone.x, layout.top, zone.w, layout.hall, 6, theme.panel);
    const width = surface.text(zone.name, zone.x + 2, size * 0.9, { size, weight: 650 });
    const x = zone.x + 2 + width + size * 0.6;
    const options = { size: size * 0.95, colour: theme.soft, max: zone.x + zone.w - x };
    surface.text(surface.roomFor(notes[name], options.max, options), x, size * 0.9, options);
  }
}

/** @param {Surface} surface @param {Scene} scene @param {number} slot @param {Box} box */
function drawSeat(surface, { theme, size }, slot, box) {
  surface.card(box.x, box.y, box.w, box.h, 5, theme.empty);
  if (box.h < size * 1.2 || box.w < size * 2) return;
  surface.text(String(slot), box.x + box.w / 2, box.y + box.h / 2, {
    size: size * 0.9, colour: theme.soft, align: "center",
  });
}

/** @param {Surface} surface @param {Scene} scene @param {import("./actors.js").Actor} actor @param {Map<number, [number, number]>} working */
function drawRequest(surface, scene, actor, working) {
  const { state, size, focus, theme } = scene;
  const { request, x, y, w, h } = actor;
  const record = state.requests.get(request);
  const look = lookOf(request);
  const ended = record?.status === "finished";
  surface.ctx.globalAlpha = focus !== null && focus !== request ? 0.35 : 1;
  surface.card(x, y, w, h, 5, surface.fillOf(request));
  if (record?.status === "preempted") surface.ctx.setLineDash([4, 3]);
  if (record?.status === "preempted" || focus === request) {
    surface.card(x + 1, y + 1, w - 2, h - 2, 4, null, theme.accent, 2);
  }
  surface.ctx.setLineDash([]);
  const words = ended && record ? endWords(record) : [workWords(working.get(request))];
  labelRequest(surface, actor, look, size, words);
  if (record?.status === "running" && w > size * 3) drawProgress(surface, record, look, actor);
  surface.ctx.globalAlpha = 1;
}

/** From long to short. @param {import("./state.js").RequestState} record */
function endWords(record) {
  const reason = REASON_WORDS[record.reason ?? 0];
  return [`${reason} · ${count(record.numOutput)}`, reason, ""];
}

/** @param {[number, number] | undefined} work */
function workWords(work) {
  if (work === undefined) return "";
  return work[1] === PHASE.DECODE ? "decode" : `${PHASE_WORDS[work[1]]} ${count(work[0])}`;
}

/** The label on a plate of the request's colour, so that a pattern does not run through it.
 * @param {Surface} surface @param {Box & {request: number}} box @param {import("./theme.js").Look} look @param {number} size @param {string[]} texts from long to short */
function labelRequest(surface, box, look, size, texts) {
  const { x, y, w, h, request } = box;
  if (h < size * 1.1) return;
  const label = `#${request}`;
  const y0 = y + h / 2 - (h > size * 2 ? size * 0.12 : 0);
  const textWidth = Math.min(label.length * size * 0.66 + 6, w - 4);
  if (look.pattern !== "plain") surface.card(x + 3, y0 - size * 0.7, textWidth, size * 1.4, 3, look.fill);
  surface.text(label, x + 6, y0, { size, weight: 650, colour: look.ink, max: w - 8 });
  const room = w - 16 - textWidth;
  if (room < size * 2.5) return;
  const options = { size: size * 0.92, colour: look.ink, align: /** @type {const} */ ("right"), max: room };
  const words = surface.roomFor(texts, room, options);
  if (!words) return;
  const wordsWidth = Math.min(room, words.length * size * 0.52 + 8);
  if (look.pattern !== "plain") {
    surface.card(x + w - wordsWidth - 3, y0 - size * 0.7, wordsWidth, size * 1.4, 3, look.fill);
  }
  surface.text(words, x + w - 6, y0, options);
}

/** How far a request is: computed tokens of all that it may have; the notch is the end of its prompt.
 * @param {Surface} surface @param {import("./state.js").RequestState} record @param {import("./theme.js").Look} look @param {Box} box */
function drawProgress(surface, record, look, { x, y, w, h }) {
  const total = record.promptTokens + record.maxTokens;
  if (total <= 0 || h < 16) return;
  const height = Math.max(3, h * 0.12);
  const full = w - 10;
  const top = y + h - height - 2;
  surface.ctx.save();
  surface.ctx.globalAlpha *= 0.35;
  surface.rect(x + 5, top, full, height, look.ink);
  surface.restore();
  surface.rect(x + 5, top, full * Math.min(1, record.numComputed / total), height, look.ink);
  surface.rect(x + 5 + (full * record.promptTokens) / total - 0.75, top - 2, 1.5, height + 3, look.ink);
}

/** @param {Surface} surface @param {Scene} scene @param {any} layout */
function drawGauges(surface, scene, layout) {
  const { run, state, step, size, width, theme } = scene;
  const top = layout.top + layout.hall + size * 0.9;
  const budget = run.config.max_num_batched_tokens ?? 0;
  const phases = phasesOf(run, step);
  const tokens = phases.reduce((sum, n) => sum + n, 0);
  const half = (width - layout.gap) / 2;
  const notes = [`${count(tokens)} of ${plural(budget, "token")}`, plural(tokens, "token")];
  drawGauge(surface, scene, 0, top, half, "This step", notes,
    phases.map((n, phase) => [n / (budget || 1), PHASE_COLOURS[phase]]));
  const capacity = capacityOf(run);
  const used = usedOf(run, state);
  const cached = state.numCachedFree;
  const text = `${count(used)} of ${plural(capacity, unitOf(run))}`;
  const more = cached ? [`${text}, ${count(cached)} more cached`] : [];
  drawGauge(surface, scene, half + layout.gap, top, half, "KV memory", [...more, text, `${count(used)} used`],
    [[used / (capacity || 1), theme.text], [cached / (capacity || 1), theme.soft]]);
}

/** @param {Surface} surface @param {Scene} scene @param {number} x @param {number} y @param {number} w @param {string} name @param {string[]} notes from long to short @param {(string | number)[][]} parts share and colour */
function drawGauge(surface, { size, theme }, x, y, w, name, notes, parts) {
  const width = surface.text(name, x + 2, y + size * 0.8, { size, weight: 650 });
  const options = { size: size * 0.95, colour: theme.soft, max: w - width - size };
  const note = surface.roomFor(notes, options.max, options);
  surface.text(note, x + 2 + width + size * 0.6, y + size * 0.8, options);
  const top = y + size * 1.9;
  const height = size * 1.1;
  surface.ctx.save();
  surface.ctx.beginPath();
  surface.ctx.roundRect(x, top, w, height, 4);
  surface.ctx.clip();
  surface.rect(x, top, w, height, theme.empty);
  let left = x;
  for (const [share, colour] of parts) {
    surface.rect(left, top, w * Number(share), height, String(colour));
    left += w * Number(share);
  }
  surface.restore();
}

export default definePanel(() => new Airport());
