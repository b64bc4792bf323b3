// @ts-check
/** Things that move from place to place: each step gives them a goal, each picture brings them nearer. */

/** @typedef {{x: number, y: number, w: number, h: number}} Box */
/** @typedef {Box & {request: number, goal: Box, seen: boolean}} Actor */

const REACH = 90; // ms in which two thirds of the way are done

export class Actors {
  constructor() {
    /** @type {Map<number, Actor>} */
    this.all = new Map();
  }

  /** Before the goals of a picture are given. */
  begin() {
    for (const actor of this.all.values()) actor.seen = false;
  }

  /** @param {number} request @param {Box} goal @param {Box} entrance where a new one comes from @returns {Actor} */
  place(request, goal, entrance) {
    let actor = this.all.get(request);
    if (actor === undefined) {
      actor = { ...entrance, request, goal, seen: true };
      this.all.set(request, actor);
    }
    actor.goal = goal;
    actor.seen = true;
    return actor;
  }

  /** Drops those without a goal and moves the others. @param {number} elapsed ms @param {boolean} still @returns {boolean} something still moves */
  move(elapsed, still) {
    const share = still ? 1 : 1 - Math.exp(-elapsed / REACH);
    let moves = false;
    for (const [request, actor] of this.all) {
      if (!actor.seen) this.all.delete(request);
      else moves = approach(actor, share) || moves;
    }
    return moves;
  }

  /** @param {number} x @param {number} y @returns {number | null} the request there */
  at(x, y) {
    for (const { request, x: left, y: top, w, h } of this.all.values()) {
      if (x >= left && x <= left + w && y >= top && y <= top + h) return request;
    }
    return null;
  }
}

/** @param {Actor} actor @param {number} share */
function approach(actor, share) {
  let far = 0;
  for (const side of /** @type {const} */ (["x", "y", "w", "h"])) {
    const way = actor.goal[side] - actor[side];
    actor[side] = Math.abs(way) < 0.4 ? actor.goal[side] : actor[side] + way * share;
    far = Math.max(far, Math.abs(actor.goal[side] - actor[side]));
  }
  return far > 0;
}
