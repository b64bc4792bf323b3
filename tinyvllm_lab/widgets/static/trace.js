// @ts-check
/**
 * Reading events: the stored run (.tvt, described in engine/storage.py) and the live message.
 *
 * Both are columns or rows of zigzag LEB128 numbers. Sums and products instead of bit operations:
 * a clock in microseconds has more than 32 bits.
 */

const MAGIC = [0x89, 0x54, 0x56, 0x54, 0x0d, 0x0a, 0x1a, 0x0a];
const VERSION = 1;
const PREFIX = 12;
export const WIDTH = 4;

/** @typedef {{kind: number | null, column: number, count: number, bytes: number, code: number}} Column */

/**
 * @param {Uint8Array} bytes
 * @param {number} count how many numbers they hold
 * @returns {Float64Array}
 */
export function readVarints(bytes, count) {
  const values = new Float64Array(count);
  let at = 0;
  for (let i = 0; i < count; i++) {
    let number = 0;
    let scale = 1;
    let byte;
    do {
      if (at >= bytes.length) throw new Error("the run is damaged: a number is cut off");
      byte = bytes[at++];
      number += (byte & 0x7f) * scale;
      scale *= 128;
    } while (byte >= 0x80);
    values[i] = number % 2 ? -(number + 1) / 2 : number / 2;
  }
  if (at !== bytes.length) throw new Error("the run is damaged: bytes are left over");
  return values;
}

/**
 * The events of a live message: [kind, a, b, c] one after the other.
 * @param {DataView} buffer
 * @param {number} events
 * @returns {Float64Array} four numbers an event
 */
export function decodeEvents(buffer, events) {
  const bytes = new Uint8Array(buffer.buffer, buffer.byteOffset, buffer.byteLength);
  return readVarints(bytes, events * WIDTH);
}

/**
 * @param {Float64Array} values differences to the prediction; changed in place
 * @param {number} code
 * @param {Float64Array} keys
 */
function restore(values, code, keys) {
  if (code === 1) {
    for (let i = 1; i < values.length; i++) values[i] += values[i - 1];
  } else if (code === 2) {
    const last = new Map();
    for (let i = 0; i < values.length; i++) {
      values[i] += last.get(keys[i]) ?? 0;
      last.set(keys[i], values[i]);
    }
  }
  return values;
}

/**
 * @param {Column[]} columns
 * @param {Uint8Array} data
 * @returns {Float64Array[]} the numbers of each column, still as differences
 */
function readColumns(columns, data) {
  let start = 0;
  return columns.map((about) => {
    const part = data.subarray(start, start + about.bytes);
    start += about.bytes;
    return readVarints(part, about.count);
  });
}

/**
 * @param {Column[]} columns
 * @param {Float64Array[]} values
 * @returns {Float64Array} four numbers an event
 */
function joinColumns(columns, values) {
  const kinds = values[0];
  const rows = new Float64Array(kinds.length * WIDTH);
  const places = new Map(); // kind -> its events' rows so far
  for (let i = 0; i < kinds.length; i++) {
    rows[i * WIDTH] = kinds[i];
    let list = places.get(kinds[i]);
    if (list === undefined) places.set(kinds[i], (list = []));
    list.push(i);
  }
  /** @type {Float64Array} */
  let keys = kinds;
  for (let k = 1; k < columns.length; k++) {
    const { kind, column, code } = columns[k];
    if (column === 0) keys = values[k];
    const numbers = restore(values[k], code, keys);
    const list = places.get(kind) ?? [];
    for (let i = 0; i < list.length; i++) rows[list[i] * WIDTH + 1 + column] = numbers[i];
  }
  return rows;
}

/** @param {Uint8Array} bytes one zlib stream */
export async function inflate(bytes) {
  const source = new Blob([/** @type {BlobPart} */ (bytes)]).stream();
  const plain = source.pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(plain).arrayBuffer());
}

/**
 * A stored run.
 * @param {DataView} buffer the bytes of a .tvt file
 * @returns {Promise<{header: Record<string, any>, rows: Float64Array}>}
 */
export async function decodeRun(buffer) {
  const bytes = new Uint8Array(buffer.buffer, buffer.byteOffset, buffer.byteLength);
  if (!MAGIC.every((byte, i) => bytes[i] === byte)) throw new Error("this is no stored run");
  const version = new DataView(bytes.buffer, bytes.byteOffset).getUint32(MAGIC.length, true);
  if (version !== VERSION) throw new Error(`the run has version ${version}, not ${VERSION}`);
  const body = await inflate(bytes.subarray(PREFIX));
  const size = new DataView(body.buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(body.subarray(4, 4 + size)));
  const values = readColumns(header.columns, body.subarray(4 + size));
  return { header, rows: joinColumns(header.columns, values) };
}
