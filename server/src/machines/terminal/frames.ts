/**
 * The frames of a terminal's WebSocket: parses one message of its client, and fits a text into a close frame.
 * Pure.
 *
 * Always: every message has a meaning: what is not a command of the protocol is input. A resize is never
 * input, whatever its size.
 */

export type ClientMessage =
  | { readonly kind: "typed"; readonly bytes: Uint8Array }
  | { readonly kind: "resize"; readonly cols: number; readonly rows: number }
  /** A resize without a possible size, for example of a hidden window. */
  | { readonly kind: "nothing" };

/** What the client of a kept terminal may send besides. */
export type KeptMessage =
  | ClientMessage
  /** It has so much of the output. */
  | { readonly kind: "received"; readonly offset: number }
  /** It asks whether its connection is alive. */
  | { readonly kind: "ping" };

/** The largest number of columns and rows; the same as in the query of the request. */
const SIDE_MAX = 10_000;

/** Max bytes of the reason in a close frame, by the standard. */
const CLOSE_REASON_BYTES_MAX = 123;

/** The beginning of a text, as much as a close frame takes. */
export function closeReason(text: string): string {
  const { read } = new TextEncoder().encodeInto(text, new Uint8Array(CLOSE_REASON_BYTES_MAX));
  return text.slice(0, read);
}

export function readMessage(data: Buffer, isBinary: boolean): ClientMessage {
  if (isBinary || data[0] !== 0x7b) return { kind: "typed", bytes: data };
  const { type, cols, rows, data: text } = parseObject(data);
  if (type === "stdin" && typeof text === "string") return { kind: "typed", bytes: Buffer.from(text) };
  if (type === "resize") {
    if (!isSide(cols) || !isSide(rows)) return { kind: "nothing" };
    return { kind: "resize", cols: Math.min(cols, SIDE_MAX), rows: Math.min(rows, SIDE_MAX) };
  }
  return { kind: "typed", bytes: data };
}

/** A message of the client of a kept terminal. */
export function readKeptMessage(data: Buffer, isBinary: boolean): KeptMessage {
  if (isBinary || data[0] !== 0x7b) return { kind: "typed", bytes: data };
  const { type, offset } = parseObject(data);
  if (type === "ping") return { kind: "ping" };
  if (type !== "received") return readMessage(data, isBinary);
  if (!Number.isSafeInteger(offset) || (offset as number) < 0) return { kind: "nothing" };
  return { kind: "received", offset: offset as number };
}

const isSide = (value: unknown): value is number => Number.isInteger(value) && (value as number) > 0;

function parseObject(data: Buffer): Readonly<Record<string, unknown>> {
  try {
    return (JSON.parse(data.toString("utf8")) ?? {}) as Readonly<Record<string, unknown>>;
  } catch {
    return {};
  }
}
