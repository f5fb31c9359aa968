/**
 * Frames of a running exec between server and node: one byte of type, four of length (little endian), then
 * the payload.
 *
 * Server → node: start (JSON, ExecStart), then stdin, resize and signal as they come, then stdinEnd. Or
 * resume (JSON, ExecResume) instead of start, for a command whose node agent was lost; then the node first
 * answers resumed (JSON, ExecResumed), and the stdin that follows begins where that says. Node → server:
 * stdout and stderr as they come, then exactly one exit (JSON, ExecExit) or failure (JSON, LinkError). A body
 * that ends without one of them means that the node died.
 *
 * A connection to a port of the guest has the same frames: start is a ConnectionStart, the node answers
 * resumed also to that, and again as the guest has received more; there is no stderr. The server sends taken
 * as it has received more of the output: at most a window of it is under way, which the guest keeps.
 *
 * A kept terminal begins with start (ExecStart), or with resume (ExecResume) or watch (TerminalWatch) when it
 * runs already. The node answers resumed before any output, as the guest has received more input, and where
 * output is missing. The server sends taken as the client has received more, and end when the client has done
 * with the terminal. A request that breaks leaves the terminal for a minute (docs/terminals.md).
 *
 * Always: flow control is that of HTTP: a side that does not read stops the writes of the other.
 */

export const LINK_FRAMES = {
  start: 1,
  stdin: 2,
  stdinEnd: 3,
  resize: 4,
  signal: 5,
  resume: 6,
  /** JSON, Taken. Of a connection or a kept terminal. */
  taken: 7,
  /** JSON, TerminalWatch: reads a kept terminal. */
  watch: 8,
  /** Its client needs the kept terminal no more. */
  end: 9,
  stdout: 16,
  stderr: 17,
  exit: 18,
  failure: 19,
  resumed: 20,
} as const;

export type LinkFrameType = keyof typeof LINK_FRAMES;

/** A header of answers: the guest keeps commands that have a `resumeKey`. */
export const RESUMES_HEADER = "flotilla-resumes";

export const LINK_PAYLOAD_BYTES_MAX = 1024 * 1024;
const HEADER_BYTES = 5;

const TYPE_BY_CODE = new Map<number, LinkFrameType>(
  Object.entries(LINK_FRAMES).map(([name, code]) => [code, name as LinkFrameType]),
);

export interface LinkFrame {
  readonly type: LinkFrameType;
  readonly payload: Uint8Array;
}

/** One frame as bytes. Throws RangeError when the payload is larger than LINK_PAYLOAD_BYTES_MAX. */
export function encodeLinkFrame(type: LinkFrameType, payload: Uint8Array | string = ""): Buffer {
  const bytes = typeof payload === "string" ? Buffer.byteLength(payload) : payload.byteLength;
  if (bytes > LINK_PAYLOAD_BYTES_MAX) throw new RangeError(`link frame of ${bytes} bytes`);
  const frame = Buffer.allocUnsafe(HEADER_BYTES + bytes);
  frame.writeUInt8(LINK_FRAMES[type], 0);
  frame.writeUInt32LE(bytes, 1);
  if (typeof payload === "string") frame.write(payload, HEADER_BYTES);
  else frame.set(payload, HEADER_BYTES);
  return frame;
}

/**
 * The head of a frame whose payload follows as it is, for output that is not copied. Throws as
 * encodeLinkFrame does.
 */
export function encodeLinkFrameHead(type: LinkFrameType, payloadBytes: number): Buffer {
  if (payloadBytes > LINK_PAYLOAD_BYTES_MAX) throw new RangeError(`link frame of ${payloadBytes} bytes`);
  const head = Buffer.allocUnsafe(HEADER_BYTES);
  head.writeUInt8(LINK_FRAMES[type], 0);
  head.writeUInt32LE(payloadBytes, 1);
  return head;
}

const NOTHING = Buffer.alloc(0);

/** Their bytes mean the same in one frame or in several. */
const STREAMS: readonly LinkFrameType[] = ["stdin", "stdout", "stderr"];

/**
 * Turns chunks of any size into frames, whose payloads share the chunks' memory: who pushes a chunk does not
 * use it again. What belongs to a stream is handed out as it comes, part of a frame as a frame; other
 * messages when they are whole. Throws on an unknown type or a payload over the limit.
 */
export class LinkDecoder {
  #rest: Buffer = NOTHING;
  /** Begins with `#rest`, and has room for more. Empty: the rest is a part of what was pushed. */
  #room: Buffer = NOTHING;
  /** The stream whose frame is not complete, and how much is missing. */
  #stream: LinkFrameType = "stdin";
  #missingBytes = 0;

  push(chunk: Uint8Array): LinkFrame[] {
    const all = this.#rest.byteLength === 0 ? asBuffer(chunk) : this.#withRest(chunk);
    let bytes = all;
    const frames: LinkFrame[] = [];
    if (this.#missingBytes > 0) bytes = this.#takePart(bytes, frames);
    while (bytes.byteLength >= HEADER_BYTES) {
      const type = TYPE_BY_CODE.get(bytes.readUInt8(0));
      const length = bytes.readUInt32LE(1);
      if (type === undefined) throw new Error(`link frame of unknown type ${bytes.readUInt8(0)}`);
      if (length > LINK_PAYLOAD_BYTES_MAX) throw new Error(`link frame of ${length} bytes`);
      if (bytes.byteLength >= HEADER_BYTES + length) {
        frames.push({ type, payload: bytes.subarray(HEADER_BYTES, HEADER_BYTES + length) });
        bytes = bytes.subarray(HEADER_BYTES + length);
      } else if (STREAMS.includes(type)) {
        this.#stream = type;
        this.#missingBytes = length;
        bytes = this.#takePart(bytes.subarray(HEADER_BYTES), frames);
      } else break;
    }
    this.#rest = bytes;
    // Frames share its memory.
    if (bytes.byteLength !== all.byteLength) this.#room = NOTHING;
    return frames;
  }

  /** A message may come byte by byte: each is copied a few times, and the message not for each. */
  #withRest(chunk: Uint8Array): Buffer {
    const restBytes = this.#rest.byteLength;
    const bytes = restBytes + chunk.byteLength;
    if (this.#room.byteLength < bytes) {
      this.#room = Buffer.allocUnsafeSlow(Math.max(bytes, 2 * restBytes));
      this.#room.set(this.#rest);
    }
    this.#room.set(chunk, restBytes);
    return this.#room.subarray(0, bytes);
  }

  /** Whether a frame is incomplete: at the end of a stream, a sign that the other side died. */
  get hasRest(): boolean {
    return this.#rest.byteLength > 0 || this.#missingBytes > 0;
  }

  /** Answers what is left of the bytes. */
  #takePart(bytes: Buffer, frames: LinkFrame[]): Buffer {
    const payload = bytes.subarray(0, this.#missingBytes);
    this.#missingBytes -= payload.byteLength;
    if (payload.byteLength > 0) frames.push({ type: this.#stream, payload });
    return bytes.subarray(payload.byteLength);
  }
}

const asBuffer = ({ buffer, byteOffset, byteLength }: Uint8Array): Buffer =>
  Buffer.from(buffer, byteOffset, byteLength);
