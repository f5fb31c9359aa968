/**
 * A part of a file of a machine, bounded.
 */
import { type Flotilla, FlotillaError } from "@flotilla/sdk";

export interface Part {
  readonly bytes: Uint8Array<ArrayBuffer>;
  /** null: the bytes are not UTF-8. */
  readonly text: string | null;
  /** How long the file is; null: the server does not say, and there is more. */
  readonly total: number | null;
}

interface Wanted {
  readonly id: string;
  readonly path: string;
  readonly offset: number;
  readonly limit: number;
  readonly signal: AbortSignal;
}

/** Reads at most `limit` bytes. A part after the end is empty. */
export async function readPart(flotilla: Flotilla, { id, path, offset, limit, signal }: Wanted): Promise<Part> {
  const headers = { range: `bytes=${offset}-${offset + limit - 1}` };
  let answer: Response;
  try {
    answer = await flotilla.readFileAt(id, path, { headers, signal });
  } catch (error) {
    if (!(error instanceof FlotillaError && error.code === "range_not_satisfiable")) throw error;
    return { bytes: new Uint8Array(0), text: "", total: 0 };
  }
  const bytes = await firstOf(answer, limit);
  return { bytes, text: textOf(bytes), total: totalOf(answer, bytes.byteLength, limit) };
}

async function firstOf(answer: Response, limit: number): Promise<Uint8Array<ArrayBuffer>> {
  const pieces: Uint8Array[] = [];
  let held = 0;
  for await (const piece of piecesOf(answer)) {
    pieces.push(piece);
    held += piece.byteLength;
    if (held >= limit) break;
  }
  return new Uint8Array(Buffer.concat(pieces)).subarray(0, limit);
}

function totalOf(answer: Response, read: number, limit: number): number | null {
  const [, stated] = /\/(\d+)$/.exec(answer.headers.get("content-range") ?? "") ?? [];
  if (stated !== undefined) return Number(stated);
  return read < limit ? read : null;
}

/** A character may be cut off at either end. */
function textOf(bytes: Uint8Array): string | null {
  const decoded = new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes);
  if (decoded.includes("\0")) return null;
  const inner = decoded.replace(/^\ufffd{1,3}|\ufffd{1,3}$/g, "");
  return inner.includes("\ufffd") ? null : decoded;
}

/** The type of a body says nothing of its pieces. */
export const piecesOf = (answer: Response): AsyncIterable<Uint8Array> =>
  answer.body ?? new ReadableStream({ start: (controller) => controller.close() });
