/**
 * Passes a node's answer on to the stream that its reader has, in the turns of its tenant.
 *
 * Always: at most one piece waits for its turn, whatever the reader asks for; the source is paused until
 * then, and while the reader has enough.
 */
import type { Readable } from "node:stream";
import type { Turn } from "../fairness/turns.ts";

/**
 * Errors of the source are the caller's. Returns what the stream does when its reader wants more (`_read`).
 */
export function pushInTurns(source: Readable, stream: Readable, turn: Turn): () => void {
  let waiting: Promise<void> | null = null;
  const resume = (): void => {
    if (waiting === null) source.resume();
  };
  source.on("data", (chunk: Buffer) => {
    const hasRoom = turn(() => {
      // From here on the reader may ask for the next piece, also while this one is pushed.
      waiting = null;
      return stream.push(chunk);
    });
    if (hasRoom === true) return;
    source.pause();
    if (hasRoom !== false) waiting = hasRoom.then((isMore) => void (isMore && resume()));
  });
  // It may have ended with the piece that waits for its turn.
  source.on("end", () => (waiting === null ? stream.push(null) : void waiting.then(() => stream.push(null))));
  return resume;
}
