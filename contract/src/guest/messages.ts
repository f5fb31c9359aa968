/**
 * The payloads of guest frames: lists of fields (tag u8, length u32, value), encoded by the sender and
 * decoded by the receiver.
 *
 * Always:
 * - a text is UTF-8 and ends with its only zero byte, so that C can use it in place;
 * - an integer is a u32 or a u64, as GUEST-PROTOCOL.md says for the field;
 * - an unknown field is skipped, because a newer sender may add fields;
 * - a field that has the wrong size, is missing, or is repeated where only one is allowed makes the message
 *   invalid.
 */
import { GuestProtocolError } from "./frame.ts";

/** Every field of every message. */
export const GUEST_FIELDS = {
  request: 1,
  message: 2,
  pid: 3,
  exitCode: 4,
  stream: 5,
  bytes: 6,
  cols: 7,
  rows: 8,
  signal: 9,
  argument: 10,
  environment: 11,
  cwd: 12,
  user: 13,
  hasStdin: 14,
  isBackground: 15,
  graceMs: 16,
  needsPid: 17,
  hostname: 20,
  machineId: 21,
  now: 22,
  entropy: 23,
  workdir: 24,
  rootDevice: 25,
  nameserver: 26,
  address: 27,
  gateway: 28,
  protocol: 30,
  agentVersion: 31,
  isConfigured: 32,
  uptimeMs: 33,
  rootBytes: 34,
  operation: 40,
  path: 41,
  offset: 42,
  length: 43,
  isFromEnd: 44,
  output: 45,
  bulkDevice: 46,
  bulkOffset: 47,
  bulkBytes: 48,
  resumeKey: 50,
  keepsCommands: 51,
  keptCommands: 52,
  stdoutOffset: 53,
  stderrOffset: 54,
  stdinOffset: 55,
  port: 56,
  connectionsMax: 57,
  keepsConnections: 58,
  keptConnections: 59,
  timerKhz: 60,
  program: 61,
  kills: 62,
  isClone: 63,
} as const;
export type GuestField = keyof typeof GUEST_FIELDS;

/** `stream` in a credit. */
export const GUEST_STREAMS = { stdout: 1, stderr: 2 } as const;

/** `operation` of a file request. */
export const GUEST_FILE_OPERATIONS = { read: 1, write: 2, stat: 3, list: 4, remove: 5 } as const;

/**
 * First bytes of hello and its answer, before the nonce. The host searches for them while it discards data
 * meant for an earlier host.
 */
export const HELLO_MAGIC = Buffer.from("FLOTILLA");
export const HELLO_NONCE_BYTES = 16;
/** The guest cuts its error texts to this size; the host refuses longer ones. */
export const GUEST_MESSAGE_BYTES_MAX = 1024;
/** Max size of a killed program's name and its zero byte: the guest cuts it, the host refuses more. */
export const KILLED_PROGRAM_BYTES_MAX = 64;

const FIELD_HEADER_BYTES = 5;

/** Encodes fields one after the other. */
export class FieldWriter {
  readonly #parts: Buffer[] = [];

  u32(field: GuestField, value: number): this {
    const part = Buffer.allocUnsafe(FIELD_HEADER_BYTES + 4);
    part.writeUInt8(GUEST_FIELDS[field], 0);
    part.writeUInt32LE(4, 1);
    part.writeUInt32LE(value, FIELD_HEADER_BYTES);
    this.#parts.push(part);
    return this;
  }

  u64(field: GuestField, value: number): this {
    const part = Buffer.allocUnsafe(FIELD_HEADER_BYTES + 8);
    part.writeUInt8(GUEST_FIELDS[field], 0);
    part.writeUInt32LE(8, 1);
    part.writeBigUInt64LE(BigInt(Math.round(value)), FIELD_HEADER_BYTES);
    this.#parts.push(part);
    return this;
  }

  /** Throws RangeError when the text contains a zero byte. */
  text(field: GuestField, value: string): this {
    if (value.includes("\0")) throw new RangeError(`a zero byte in the ${field} of a guest message`);
    const length = Buffer.byteLength(value) + 1;
    const part = Buffer.allocUnsafe(FIELD_HEADER_BYTES + length);
    part.writeUInt8(GUEST_FIELDS[field], 0);
    part.writeUInt32LE(length, 1);
    part.write(value, FIELD_HEADER_BYTES);
    part[FIELD_HEADER_BYTES + length - 1] = 0;
    this.#parts.push(part);
    return this;
  }

  texts(field: GuestField, values: Iterable<string>): this {
    for (const value of values) this.text(field, value);
    return this;
  }

  bytes(field: GuestField, value: Uint8Array): this {
    const part = Buffer.allocUnsafe(FIELD_HEADER_BYTES);
    part.writeUInt8(GUEST_FIELDS[field], 0);
    part.writeUInt32LE(value.byteLength, 1);
    this.#parts.push(part, Buffer.from(value));
    return this;
  }

  end(): Buffer {
    return this.#parts.length === 1 && this.#parts[0] !== undefined ? this.#parts[0] : Buffer.concat(this.#parts);
  }
}

/** Decodes a message's fields. Throws GuestProtocolError on a malformed list. */
export class FieldReader {
  readonly #values = new Map<number, Buffer>();

  constructor(payload: Buffer) {
    let at = 0;
    while (at < payload.byteLength) {
      if (payload.byteLength - at < FIELD_HEADER_BYTES) throw new GuestProtocolError("field cut off in its header");
      const tag = payload.readUInt8(at);
      const length = payload.readUInt32LE(at + 1);
      at += FIELD_HEADER_BYTES;
      if (tag === 0) throw new GuestProtocolError("field without a tag");
      if (length > payload.byteLength - at) throw new GuestProtocolError(`field ${tag} of ${length} bytes is cut off`);
      if (this.#values.has(tag)) throw new GuestProtocolError(`field ${tag} appears twice`);
      this.#values.set(tag, payload.subarray(at, at + length));
      at += length;
    }
  }

  /** Whether the message has the field: an optional one may be absent. */
  has(field: GuestField): boolean {
    return this.#values.has(GUEST_FIELDS[field]);
  }

  u32(field: GuestField): number {
    return this.#sized(field, 4).readUInt32LE(0);
  }

  u64(field: GuestField): number {
    return Number(this.#sized(field, 8).readBigUInt64LE(0));
  }

  text(field: GuestField): string {
    const value = this.#value(field);
    if (value.byteLength === 0 || value.indexOf(0) !== value.byteLength - 1)
      throw new GuestProtocolError(`${field} is not a text`);
    if (value.byteLength > GUEST_MESSAGE_BYTES_MAX) throw new GuestProtocolError(`${field} is too long`);
    return value.toString("utf8", 0, value.byteLength - 1);
  }

  /** May share memory with the message. Throws GuestProtocolError if empty or larger than `bytesMax`. */
  bytes(field: GuestField, bytesMax: number): Buffer {
    const value = this.#value(field);
    if (value.byteLength === 0 || value.byteLength > bytesMax) {
      throw new GuestProtocolError(`${field} of ${value.byteLength} bytes`);
    }
    return value;
  }

  /** A value of any length. May share memory with the message. */
  raw(field: GuestField): Buffer {
    return this.#value(field);
  }

  #sized(field: GuestField, bytes: number): Buffer {
    const value = this.#value(field);
    if (value.byteLength !== bytes) throw new GuestProtocolError(`${field} of ${value.byteLength} bytes`);
    return value;
  }

  #value(field: GuestField): Buffer {
    const value = this.#values.get(GUEST_FIELDS[field]);
    if (value === undefined) throw new GuestProtocolError(`a message without ${field}`);
    return value;
  }
}
