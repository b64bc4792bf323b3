// @ts-check
/**
 * The arithmetic of a launch: who computes what, who idles, and how its blocks fill a GPU. The same
 * as `launch_figures.py`; a test compares them.
 */

/**
 * @typedef {{rows: number, columns: number, block_x: number, block_y: number, cover: boolean, grid_x: number, grid_y: number, stride: boolean, guard: boolean, kernel: string, registers: number, shared: number, gpu: string, block: number}} Choice
 * @typedef {{name: string, architecture: number, sms: number, warps: number, blocks: number, shared: number, reserved: number, max_shared_per_block: number, shared_unit: number}} Gpu
 * @typedef {{name: string, file: string, max_threads: number, static_shared: number, dynamic_shared_per_thread: number, registers: Record<string, number>}} Kernel
 * @typedef {{gpus: Gpu[], kernels: Kernel[], warp: number, most_threads: number, registers: number, parts: number, register_unit: number}} Tables
 * @typedef {{size: number, block: number, grid: number, reach: number}} Axis
 * @typedef {{x: Axis, y: Axis, stride: boolean, guarded: boolean}} Launch
 */

/** @param {number} a @param {number} b */
const ceilDiv = (a, b) => Math.ceil(a / b);

/** @param {number} n @param {number} unit */
const roundUp = (n, unit) => ceilDiv(n, unit) * unit;

/** @param {number} size @param {number} block @param {number} grid 0: as many as cover all @returns {Axis} */
function axis(size, block, grid) {
  const blocks = grid || ceilDiv(size, block);
  return { size, block, grid: blocks, reach: block * blocks };
}

/** @param {Choice} c @returns {Launch} */
export function launchOf(c) {
  const x = axis(c.columns, c.block_x, c.cover ? 0 : c.grid_x);
  const y = axis(c.rows, c.block_y, c.cover ? 0 : c.grid_y);
  return { x, y, stride: c.stride, guarded: c.guard || c.stride };
}

/** Registers of a thread and bytes of a block: the sliders', or those of a kernel of the course. @param {Choice} c @param {Tables} tables */
export function resourcesOf(c, tables) {
  const kernel = tables.kernels.find((k) => k.name === c.kernel);
  if (!kernel) return { registers: c.registers, shared: c.shared };
  const dynamic = kernel.dynamic_shared_per_thread * c.block_x * c.block_y;
  return { registers: kernel.registers[gpuOf(c, tables).architecture], shared: kernel.static_shared + dynamic };
}

/** @param {Choice} c @param {Tables} tables @returns {Gpu} */
export function gpuOf(c, tables) {
  return /** @type {Gpu} */ (tables.gpus.find((gpu) => gpu.name === c.gpu));
}

/** A thread by the running numbers of its block and of itself, x first. @param {Launch} launch @param {number} block @param {number} thread */
export function threadOf({ x, y, stride, guarded }, block, thread) {
  const row = Math.floor(block / x.grid) * y.block + Math.floor(thread / x.block);
  const column = (block % x.grid) * x.block + (thread % x.block);
  if (row < y.size && column < x.size) {
    const passes = ceilDiv(y.size - row, y.reach) * ceilDiv(x.size - column, x.reach);
    return { row, column, state: "computes", elements: stride ? passes : 1 };
  }
  const inside = row * x.size + column < y.size * x.size;
  return { row, column, state: guarded ? "idle" : inside ? "elsewhere" : "outside", elements: 0 };
}

/** Of a block's threads, those that compute. @param {Launch} launch @param {number} block */
export function shareOf({ x, y }, block) {
  const of = (/** @type {Axis} */ a, /** @type {number} */ at) => Math.min(Math.max(a.size - at * a.block, 0), a.block) / a.block;
  return of(x, block % x.grid) * of(y, Math.floor(block / x.grid));
}

/** Threads with an element, and how many blocks have so many. @param {Axis} a @returns {[number, number][]} */
function kindsOf(a) {
  const whole = Math.min(Math.floor(a.size / a.block), a.grid);
  const ragged = whole < a.grid && a.size % a.block > 0 ? 1 : 0;
  return [[a.block, whole], [a.size % a.block, ragged], [0, a.grid - whole - ragged]];
}

/** Computing lanes of each warp of a block in which `wide` x `high` threads compute. @param {Launch} launch @param {number} warp @param {number} wide @param {number} high */
function lanesOf({ x, y }, warp, wide, high) {
  const lanes = new Array(ceilDiv(x.block * y.block, warp)).fill(0);
  for (let row = 0; row < high; row++) {
    for (let column = 0; column < wide; column++) lanes[Math.floor((row * x.block + column) / warp)] += 1;
  }
  return lanes;
}

/** @param {Launch} launch @param {number} warp */
function warpsOf(launch, warp) {
  const { x, y } = launch;
  let partly = 0;
  let empty = 0;
  for (const [wide, inX] of kindsOf(x)) {
    for (const [high, inY] of kindsOf(y)) {
      if (inX * inY === 0) continue;
      const lanes = lanesOf(launch, warp, wide, high);
      partly += inX * inY * lanes.filter((count) => count > 0 && count < warp).length;
      empty += inX * inY * lanes.filter((count) => count === 0).length;
    }
  }
  return { warps: ceilDiv(x.block * y.block, warp) * x.grid * y.grid, partly, empty };
}

/** Threads that without a guard compute another row's element once more. @param {Launch} launch */
function elsewhereOf({ x, y, guarded }) {
  let found = 0;
  for (let row = 0; !guarded && row < Math.min(y.size, y.reach); row++) {
    found += Math.max(0, Math.min(x.reach, (y.size - row) * x.size) - x.size);
  }
  return found;
}

/** Blocks that each limit of an SM alone would allow, as NVIDIA's `cuda_occupancy.h` counts them. @param {Gpu} gpu @param {Tables} tables @param {number} threads @param {number} registers @param {number} shared */
export function fitsOf(gpu, tables, threads, registers, shared) {
  const warps = ceilDiv(threads, tables.warp);
  const byWarp = roundUp(registers * tables.warp, tables.register_unit);
  const tooMany = byWarp * roundUp(warps, tables.parts) > tables.registers;
  const inParts = Math.floor(tables.registers / tables.parts / byWarp) * tables.parts;
  return {
    warps: Math.floor(gpu.warps / warps),
    blocks: gpu.blocks,
    registers: tooMany ? 0 : Math.floor(inParts / warps),
    "shared memory": Math.floor(gpu.shared / Math.max(1, roundUp(shared + gpu.reserved, gpu.shared_unit))),
  };
}

/** Blocks on an SM, share of its warps, and what stops one more. @param {Choice} c @param {Tables} tables */
function residentsOf(c, tables) {
  const gpu = gpuOf(c, tables);
  const { registers, shared } = resourcesOf(c, tables);
  const threads = c.block_x * c.block_y;
  if (threads > tables.most_threads) return { resident: 0, occupancy: 0, limiter: "threads of a block" };
  const bounds = tables.kernels.find((k) => k.name === c.kernel)?.max_threads ?? threads;
  if (threads > bounds) return { resident: 0, occupancy: 0, limiter: "launch bounds" };
  const fits = fitsOf(gpu, tables, threads, registers, shared);
  if (fits.registers === 0) return { resident: 0, occupancy: 0, limiter: "registers" };
  if (shared > gpu.max_shared_per_block) return { resident: 0, occupancy: 0, limiter: "shared memory" };
  const [limiter, resident] = Object.entries(fits).reduce((least, next) => (next[1] < least[1] ? next : least));
  return { resident, occupancy: (resident * ceilDiv(threads, tables.warp)) / gpu.warps, limiter };
}

/** What a launch comes to; the names are those of `Figures` in Python. @param {Choice} c @param {Tables} tables */
export function figures(c, tables) {
  const launch = launchOf(c);
  const { x, y, stride, guarded } = launch;
  const computing = Math.min(x.size, x.reach) * Math.min(y.size, y.reach);
  const [blocks, threads] = [x.grid * y.grid, x.reach * y.reach];
  const elsewhere = elsewhereOf(launch);
  const covered = (/** @type {Axis} */ a) => (stride ? a.size : Math.min(a.size, a.reach));
  const passes = (/** @type {Axis} */ a) => (stride ? ceilDiv(a.size, a.reach) : 1);
  const residents = residentsOf(c, tables);
  const slots = residents.resident * gpuOf(c, tables).sms;
  return {
    blocks, threads, computing,
    idle: guarded ? threads - computing : 0,
    outside: guarded ? 0 : threads - computing - elsewhere,
    elsewhere,
    missing: x.size * y.size - covered(x) * covered(y),
    most: passes(x) * passes(y),
    ...warpsOf(launch, tables.warp),
    ...residents,
    waves: slots ? Math.floor(blocks / slots) : 0,
    tail: slots ? blocks % slots : 0,
    slots,
  };
}

/** @typedef {ReturnType<typeof figures>} Figures */
