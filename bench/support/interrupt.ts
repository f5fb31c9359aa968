/**
 * Clean-up when a user stops a benchmark with Ctrl-C: each thing that is made registers its removal, and a
 * signal removes them all, the latest first, before the process ends.
 */
import { ownMessageOf } from "@flotilla/base/errors";

const cleanUps = new Set<() => Promise<void>>();
const EXIT_INTERRUPTED = 130;
let isEnding = false;

/** The returned function unregisters it, when it has been removed normally. */
export function removeOnInterrupt(cleanUp: () => Promise<void>): () => void {
  cleanUps.add(cleanUp);
  return () => void cleanUps.delete(cleanUp);
}

/** From now on SIGINT and SIGTERM clean up and end the process. */
export function handleInterrupts(): void {
  for (const signal of ["SIGINT", "SIGTERM"] as const) process.on(signal, () => void end());
}

/** After a signal, running work fails, which is expected: this never resolves then. */
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
