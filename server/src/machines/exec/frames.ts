/**
 * One event of a stream, or one binary frame, as bytes. Pure.
 *
 * Output is mostly UTF-8 already, and base64 has no line breaks: both are written directly into the buffer
 * that is sent, because a conversion to a string and back takes longer.
 */
import { isUtf8 } from "node:buffer";
import { EXEC_FRAME_HEAD_BYTES, EXEC_FRAMES, type ExecFrameKind } from "@flotilla/contract/exec-frames";

/**
 * Framing of Server-Sent Events. `lines`: a `\r` is data. `standard`: it ends a line. `b64`: the data is
 * base64.
 */
export type EventFraming = "lines" | "standard" | "b64";

const NEWLINE = 0x0a;
const BREAK = Buffer.from("\ndata: ");
const SHORT_LINE_BYTES = 16;

/** One event; every line break of the data begins another `data:` line. */
export const eventFrame = (event: string, data: string, framing: EventFraming = "lines"): string =>
  `event: ${event}\ndata: ${data.replaceAll(framing === "standard" ? /\r\n|[\r\n]/g : "\n", "\ndata: ")}\n\n`;

/** The head of a binary frame, whose payload follows. */
export function execFrameHead(kind: ExecFrameKind, payloadBytes: number): Buffer {
  const head = Buffer.alloc(EXEC_FRAME_HEAD_BYTES);
  head[0] = EXEC_FRAMES[kind];
  head.writeUInt32BE(payloadBytes, 4);
  return head;
}

/** A whole binary frame. */
export function execFrame(kind: ExecFrameKind, payload: string | Buffer = ""): Buffer {
  const bytes = typeof payload === "string" ? Buffer.from(payload) : payload;
  return Buffer.concat([execFrameHead(kind, bytes.byteLength), bytes]);
}

/** The same event with bytes in base64. */
export function base64Frame(event: string, bytes: Buffer): Buffer {
  const head = `event: ${event}\ndata: `;
  const text = bytes.toString("base64");
  const frame = Buffer.allocUnsafe(head.length + text.length + 2);
  frame.write(head, "latin1");
  frame.write(text, head.length, "latin1");
  frame.write("\n\n", head.length + text.length, "latin1");
  return frame;
}

/** The event of framing `lines` for text that is given as bytes; null when they are not UTF-8. */
export function linesFrame(event: string, bytes: Buffer): Buffer | null {
  if (!isUtf8(bytes)) return null;
  const head = `event: ${event}\ndata: `;
  const frame = Buffer.allocUnsafe(head.length + bytes.length + countOf(NEWLINE, bytes) * (BREAK.length - 1) + 2);
  let to = frame.write(head, "latin1");
  for (let at = 0; at < bytes.length; ) {
    const near = Math.min(at + SHORT_LINE_BYTES, bytes.length);
    for (; at < near && bytes[at] !== NEWLINE; at += 1, to += 1) frame[to] = bytes[at] as number;
    if (at === bytes.length) break;
    if (at === near) {
      // The library's search and copy is faster for a longer line, despite the cost of the call.
      const found = bytes.indexOf(NEWLINE, at);
      const end = found < 0 ? bytes.length : found;
      to += bytes.copy(frame, to, at, end);
      at = end;
      if (found < 0) break;
    }
    for (let index = 0; index < BREAK.length; index += 1, to += 1) frame[to] = BREAK[index] as number;
    at += 1;
  }
  frame.write("\n\n", to, "latin1");
  return frame;
}

function countOf(byte: number, bytes: Buffer): number {
  let count = 0;
  for (let at = 0; at < bytes.length; ) {
    const near = Math.min(at + SHORT_LINE_BYTES, bytes.length);
    while (at < near && bytes[at] !== byte) at += 1;
    if (at === near && at < bytes.length) {
      const found = bytes.indexOf(byte, at);
      at = found < 0 ? bytes.length : found;
    }
    if (at < bytes.length) count += 1;
    at += 1;
  }
  return count;
}

/** How many bytes at the end belong to an incomplete character. */
export function incompleteAtEnd(bytes: Buffer): number {
  for (let back = 1; back <= Math.min(3, bytes.length); back += 1) {
    const byte = bytes[bytes.length - back] ?? 0;
    if (byte < 0x80) return 0;
    if (byte < 0xc0) continue;
    const length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2;
    return length > back ? back : 0;
  }
  return 0;
}
