/**
 * The end of a log, bounded.
 */
import { piecesOf } from "./read-part.ts";

/** The last part of a log that is shown. */
const LOG_CHARACTERS_MAX = 48 * 1024;

/** Reads the answer to its end and keeps its last part. */
export async function readLog(answer: Response): Promise<string> {
  const decoder = new TextDecoder();
  let kept = "";
  let left = 0;
  for await (const piece of piecesOf(answer)) {
    kept += decoder.decode(piece, { stream: true });
    const excess = kept.length - LOG_CHARACTERS_MAX;
    if (excess <= 0) continue;
    kept = kept.slice(excess);
    left += excess;
  }
  return left === 0 ? kept : `[${left} characters before this are left out: ask for fewer lines]\n${kept}`;
}
