/**
 * Frames between host and guest: encoding and decoding. GUEST-PROTOCOL.md describes them; guest/frame.c is
 * their end in the guest. Both are tested with contract/vectors.
 *
 *     magic 0xF1 · type u8 · flags u8 · 0 u8 · channel u32 · length u32 · payload · end 0xED        (little endian)
 *
 * Always:
 * - Zero bytes between frames are ignored, so a new connection can send as many as it takes to complete a
 *   frame that an earlier one left unfinished.
 * - A frame is valid only with its end byte. A frame completed by zeros has none, so half a message is never
 *   accepted.
 * - A decoder buffers at most one payload, of at most FRAME_PAYLOAD_BYTES_MAX, and throws on the first
 *   invalid byte; it cannot be used afterwards.
 */

/** Version of GUEST-PROTOCOL.md. The host requires it in the guest's answer to its hello. */
export const GUEST_PROTOCOL = 1;
export const FRAME_MAGIC = 0xf1;
export const FRAME_END = 0xed;
export const FRAME_HEADER_BYTES = 12;
/** Header and end byte. */
export const FRAME_EXTRA_BYTES = FRAME_HEADER_BYTES + 1;
export const FRAME_PAYLOAD_BYTES_MAX = 64 * 1024;
/** Enough zeros to complete any frame. */
export const FRAME_PADDING_BYTES = FRAME_PAYLOAD_BYTES_MAX + 2 * FRAME_EXTRA_BYTES;

/**
 * The message continues in the next frame, of the same type and channel. Only `configure`, `exec` and
 * `workload` may be split.
 */
export const FRAME_FLAG_MORE = 1;
/** Limit of a message assembled from its frames: ENV_BYTES_MAX of environment and as much of arguments. */
export const MESSAGE_BYTES_MAX = 1280 * 1024;

/** Each channel from 1 on belongs to one command; 0 is the machine itself. */
export const CHANNELS_MAX = 256;
/** The channels after those of commands each belong to one connection to a port of the guest. */
export const CONNECTIONS_MAX = 512;

/** Bytes that a stream may send before the first credit. */
export const OUTPUT_WINDOW_BYTES = 256 * 1024;
export const STDIN_WINDOW_BYTES = 64 * 1024;
/**
 * Max bytes that a connection sends unacknowledged. The guest keeps them for the next host until the other
 * end has them, so none is lost on the way. A connection may receive STDIN_WINDOW_BYTES.
 */
export const CONNECTION_WINDOW_BYTES = 128 * 1024;
/**
 * A frame of stdout or stderr costs its payload plus this, because the host allocates an object for each:
 * otherwise frames of one byte would cost a hundred times the memory of the window.
 */
export const OUTPUT_FRAME_COST_BYTES = 256;

/** Output of the workload that may be sent unacknowledged. */
export const WORKLOAD_WINDOW_BYTES = 256 * 1024;

/** The last bytes of each output of a resumable command, which the guest keeps for the next host. */
export const KEPT_OUTPUT_BYTES = 512 * 1024;
export const RESUME_KEY_BYTES = 16;
/** How long a resumable command waits to be resumed, after the hello of a host that keeps commands. */
export const RESUME_MS = 30_000;

/** Host to guest. */
export const HOST_FRAMES = {
  hello: 0x01,
  configure: 0x02,
  syncFileSystems: 0x04,
  shutDown: 0x05,
  warmUp: 0x06,
  workload: 0x07,
  workloadTaken: 0x08,
  killedRead: 0x09,
  ping: 0x0a,
  freeze: 0x0b,
  thaw: 0x0c,
  exec: 0x10,
  stdin: 0x11,
  stdinEnd: 0x12,
  credit: 0x13,
  resize: 0x14,
  signal: 0x15,
  kill: 0x16,
  file: 0x17,
  resume: 0x18,
  release: 0x19,
  connect: 0x1a,
} as const;
export type HostFrameType = keyof typeof HOST_FRAMES;

/** Guest to host. */
export const GUEST_FRAMES = {
  helloAnswer: 0x81,
  done: 0x82,
  failed: 0x83,
  workloadOutput: 0x84,
  workloadEnded: 0x85,
  killed: 0x86,
  started: 0x90,
  stdout: 0x91,
  stderr: 0x92,
  stdinCredit: 0x93,
  exit: 0x94,
  resumed: 0x95,
} as const;
export type GuestFrameType = keyof typeof GUEST_FRAMES;

/** Invalid bytes in place of a frame, or an invalid message in a frame. */
export class GuestProtocolError extends Error {
  override readonly name = "GuestProtocolError";
}

export interface FrameHeader {
  readonly type: number;
  readonly channel: number;
  readonly flags?: number;
}

/** Encodes a frame. Throws RangeError when the payload is too large. */
export function encodeFrame(header: FrameHeader, payload: Uint8Array): Buffer {
  if (payload.byteLength > FRAME_PAYLOAD_BYTES_MAX) throw new RangeError(`guest frame of ${payload.byteLength} bytes`);
  const frame = Buffer.allocUnsafe(FRAME_EXTRA_BYTES + payload.byteLength);
  writeHeader(frame, header, payload.byteLength);
  frame.set(payload, FRAME_HEADER_BYTES);
  frame[FRAME_HEADER_BYTES + payload.byteLength] = FRAME_END;
  return frame;
}

/** Encodes a message as one frame, or as several if it is long. Throws RangeError over MESSAGE_BYTES_MAX. */
export function encodeMessage(header: FrameHeader, message: Uint8Array): Buffer {
  if (message.byteLength <= FRAME_PAYLOAD_BYTES_MAX) return encodeFrame(header, message);
  if (message.byteLength > MESSAGE_BYTES_MAX) {
    throw new RangeError(`guest message of ${message.byteLength} bytes is over the limit of ${MESSAGE_BYTES_MAX}`);
  }
  const frames: Buffer[] = [];
  for (let at = 0; at < message.byteLength; at += FRAME_PAYLOAD_BYTES_MAX) {
    const end = Math.min(at + FRAME_PAYLOAD_BYTES_MAX, message.byteLength);
    const flags = end < message.byteLength ? FRAME_FLAG_MORE : 0;
    frames.push(encodeFrame({ ...header, flags }, message.subarray(at, end)));
  }
  return Buffer.concat(frames);
}

function writeHeader(frame: Buffer, header: FrameHeader, length: number): void {
  frame[0] = FRAME_MAGIC;
  frame[1] = header.type;
  frame[2] = header.flags ?? 0;
  frame[3] = 0;
  frame.writeUInt32LE(header.channel, 4);
  frame.writeUInt32LE(length, 8);
}

export interface Frame {
  readonly type: number;
  readonly flags: number;
  readonly channel: number;
  /** May share memory with the chunk; copy what is kept. */
  readonly payload: Buffer;
}

/** Decodes chunks of any size into frames. Throws GuestProtocolError on invalid bytes. */
export class FrameDecoder {
  /** The unfinished frame, with `#heldBytes` bytes so far. Grows once, when the header gives the length. */
  #held = Buffer.alloc(FRAME_HEADER_BYTES);
  #heldBytes = 0;
  readonly #paddingMax: number;
  #padding = 0;

  /** `paddingMax`: limit of zero bytes between frames over the decoder's life. */
  constructor(paddingMax = Number.POSITIVE_INFINITY) {
    this.#paddingMax = paddingMax;
  }

  push(chunk: Buffer, onFrame: (frame: Frame) => void): void {
    let at = 0;
    while (at < chunk.byteLength) {
      if (this.#heldBytes > 0) {
        at += this.#complete(chunk.subarray(at), onFrame);
        continue;
      }
      if (chunk[at] === 0) {
        at += 1;
        this.#padding += 1;
        if (this.#padding > this.#paddingMax) throw new GuestProtocolError(`${this.#padding} zeros between frames`);
        continue;
      }
      const size = frameSize(chunk, at, chunk.byteLength);
      if (size === undefined || at + size > chunk.byteLength) {
        this.#hold(chunk.subarray(at), size);
        return;
      }
      onFrame(frameOf(chunk, at, size));
      at += size;
    }
  }

  /** Whether a frame is incomplete. */
  get hasRest(): boolean {
    return this.#heldBytes > 0;
  }

  #hold(bytes: Buffer, size: number | undefined): void {
    const held = Buffer.allocUnsafe(size ?? FRAME_HEADER_BYTES);
    bytes.copy(held);
    this.#held = held;
    this.#heldBytes = bytes.byteLength;
  }

  /** Appends to the unfinished frame; returns how many bytes were used. */
  #complete(chunk: Buffer, onFrame: (frame: Frame) => void): number {
    const used = chunk.copy(this.#held, this.#heldBytes);
    this.#heldBytes += used;
    const size = frameSize(this.#held, 0, this.#heldBytes);
    if (size === undefined) return used;
    if (this.#held.byteLength < size) {
      this.#hold(this.#held.subarray(0, this.#heldBytes), size);
      return used;
    }
    if (this.#heldBytes < size) return used;
    this.#heldBytes = 0;
    onFrame(frameOf(this.#held, 0, size));
    return used;
  }
}

/** Size of the frame that starts at `at`; undefined until its header is complete. */
function frameSize(bytes: Buffer, at: number, end: number): number | undefined {
  if (bytes[at] !== FRAME_MAGIC) throw new GuestProtocolError(`byte ${bytes[at]} where a frame should begin`);
  if (end - at < FRAME_HEADER_BYTES) return undefined;
  const length = bytes.readUInt32LE(at + 8);
  if (length > FRAME_PAYLOAD_BYTES_MAX) throw new GuestProtocolError(`frame of ${length} bytes`);
  if (bytes[at + 1] === 0) throw new GuestProtocolError("frame of type 0");
  if (bytes[at + 3] !== 0 || (bytes[at + 2] ?? 0) > FRAME_FLAG_MORE) {
    throw new GuestProtocolError(`frame with unknown flags ${bytes[at + 2]}, ${bytes[at + 3]}`);
  }
  return length + FRAME_EXTRA_BYTES;
}

function frameOf(bytes: Buffer, at: number, size: number): Frame {
  if (bytes[at + size - 1] !== FRAME_END) throw new GuestProtocolError("frame without its end byte");
  return {
    type: bytes.readUInt8(at + 1),
    flags: bytes.readUInt8(at + 2),
    channel: bytes.readUInt32LE(at + 4),
    payload: bytes.subarray(at + FRAME_HEADER_BYTES, at + size - 1),
  };
}
