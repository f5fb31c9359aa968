/**
 * The start of a guest channel on the host: its hello, and the search for the answer behind data meant for an
 * earlier host.
 *
 * Always: reads no more than DISCARDED_BYTES_MAX, and keeps no more than the bytes of a nonce between chunks.
 * The nonce is random per connection, so no earlier data can look like the answer.
 */
import {
  CHANNELS_MAX,
  CONNECTIONS_MAX,
  FRAME_HEADER_BYTES,
  type Frame,
  GUEST_FRAMES,
  GUEST_PROTOCOL,
  GuestProtocolError,
  RESUME_KEY_BYTES,
} from "@flotilla/contract/guest/frame";
import { FieldReader, FieldWriter, HELLO_MAGIC, HELLO_NONCE_BYTES } from "@flotilla/contract/guest/messages";
import type { GuestHello } from "./guest.ts";

/** More than guest, VMM and socket can buffer together. */
const DISCARDED_BYTES_MAX = 64 * 1024 * 1024;

export interface HelloAnswer extends GuestHello {
  readonly keepsCommands: boolean;
  /** The commands of an earlier host that can be resumed: their channels by their keys. */
  readonly kept: Map<string, number>;
  /** How many connections the guest opens. */
  readonly connectionsMax: number;
  /** Its connections of an earlier host, as `kept`. */
  readonly keptConnections: Map<string, number>;
}

export class HelloSearch {
  /** The start of our hello, and of its answer. */
  readonly hello: Buffer;
  #isFound = false;
  #held = Buffer.alloc(0);
  #discardedBytes = 0;

  constructor(randomBytes: (size: number) => Buffer) {
    this.hello = Buffer.concat([HELLO_MAGIC, randomBytes(HELLO_NONCE_BYTES)]);
  }

  /** The payload of our hello. */
  payload({ keepsCommands, isClone }: { readonly keepsCommands: boolean; readonly isClone: boolean }): Buffer {
    const keeps = keepsCommands ? 1 : 0;
    const fields = new FieldWriter().u32("keepsCommands", keeps).u32("keepsConnections", keeps);
    if (isClone) fields.u32("isClone", 1);
    return Buffer.concat([this.hello, fields.end()]);
  }

  /** Returns the data from the first byte of the answer's frame on; undefined until it has arrived. */
  push(chunk: Buffer): Buffer | undefined {
    if (this.#isFound) return chunk;
    const bytes = this.#held.byteLength === 0 ? chunk : Buffer.concat([this.#held, chunk]);
    const at = bytes.indexOf(this.hello);
    if (at >= FRAME_HEADER_BYTES) {
      this.#isFound = true;
      this.#held = Buffer.alloc(0);
      return bytes.subarray(at - FRAME_HEADER_BYTES);
    }
    const kept = Math.min(bytes.byteLength, FRAME_HEADER_BYTES + this.hello.byteLength - 1);
    this.#discardedBytes += bytes.byteLength - kept;
    if (this.#discardedBytes > DISCARDED_BYTES_MAX) {
      throw new GuestProtocolError(`no answer to the hello within ${DISCARDED_BYTES_MAX} bytes`);
    }
    this.#held = Buffer.from(bytes.subarray(bytes.byteLength - kept));
    return undefined;
  }

  /** Parses the answer. Throws GuestProtocolError when it is invalid or has another protocol version. */
  read(frame: Frame): HelloAnswer {
    const length = this.hello.byteLength;
    if (frame.type !== GUEST_FRAMES.helloAnswer || !frame.payload.subarray(0, length).equals(this.hello)) {
      throw new GuestProtocolError(`a frame of type ${frame.type} instead of the answer to the hello`);
    }
    const fields = new FieldReader(frame.payload.subarray(length));
    const protocol = fields.u32("protocol");
    if (protocol !== GUEST_PROTOCOL) {
      throw new GuestProtocolError(`the guest has protocol version ${protocol}, not ${GUEST_PROTOCOL}`);
    }
    const keepsCommands = fields.has("keepsCommands") && fields.u32("keepsCommands") !== 0;
    const connectionsMax = fields.has("connectionsMax") ? Math.min(fields.u32("connectionsMax"), CONNECTIONS_MAX) : 0;
    const kept = keptIn(fields, "keptCommands", { first: 1, count: CHANNELS_MAX });
    const ofConnections = { first: CHANNELS_MAX + 1, count: CONNECTIONS_MAX };
    const keptConnections = keptIn(fields, "keptConnections", ofConnections);
    const timerKhz = fields.has("timerKhz") ? fields.u64("timerKhz") : null;
    const isConfigured = fields.u32("isConfigured") !== 0;
    return { isConfigured, timerKhz, keepsCommands, kept, connectionsMax, keptConnections };
  }
}

const KEPT_BYTES = 4 + RESUME_KEY_BYTES;

/** The channels that a list may name. */
interface Channels {
  readonly first: number;
  readonly count: number;
}

function keptIn(
  fields: FieldReader,
  field: "keptCommands" | "keptConnections",
  channels: Channels,
): Map<string, number> {
  const kept = new Map<string, number>();
  const list = fields.has(field) ? fields.raw(field) : Buffer.alloc(0);
  const count = list.byteLength / KEPT_BYTES;
  if (!Number.isInteger(count) || count > channels.count) throw new GuestProtocolError("an invalid list of commands");
  for (let at = 0; at < list.byteLength; at += KEPT_BYTES) {
    const channel = list.readUInt32LE(at);
    if (channel < channels.first || channel >= channels.first + channels.count)
      throw new GuestProtocolError(`a command on channel ${channel}`);
    kept.set(list.toString("hex", at + 4, at + KEPT_BYTES), channel);
  }
  if (kept.size !== count || new Set(kept.values()).size !== count)
    throw new GuestProtocolError("a command or a channel appears twice");
  return kept;
}
