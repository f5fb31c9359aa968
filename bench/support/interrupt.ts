/**
 * What must be gone also when somebody stops a benchmark with Ctrl-C: each thing that is made registers how it is removed,
 * and a signal removes them all, the latest first, before the process ends.
 */
import { ownMessageOf } from "@flotilla/base/errors";

const cleanUps = new Set<() => Promise<void>>();
const EXIT_INTERRUPTED = 130;
let isEnding = false;

/** The returned function forgets it again: when it has been removed in the ordinary way. */
export function removeOnInterrupt(cleanUp: () => Promise<void>): () => void {
  cleanUps.add(cleanUp);
  return () => void cleanUps.delete(cleanUp);
}

/** From now on SIGINT and SIGTERM end the process that way. */
export function handleInterrupts(): void {
  for (const signal of ["SIGINT", "SIGTERM"] as const) process.on(signal, () => void end());
}

/** Once a signal has come, what was under way fails, and that is no news: this never resolves then. */
export async function unlessInterrupted(): Promise<void> {
  if (isEnding) await new Promise(() => {});
}

async function end(): Promise<void> {
  if (isEnding) return;
  isEnding = true;
  process.stderr.write("stopping: removing what this run has made\n");
  for (const cleanUp of [...cleanUps].reverse()) await cleanUp().catch((error: unknown) => complain(error));
  process.exit(EXIT_INTERRUPTED);
}

function complain(error: unknown): void {
  process.stderr.write(`${ownMessageOf(error)}\n`);
}
