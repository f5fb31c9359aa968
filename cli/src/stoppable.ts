/**
 * Work that ends in order when the program is asked to stop (Ctrl-C, SIGTERM), so that it leaves nothing half
 * done.
 */
import type { Call } from "./call.ts";

/** As a shell has it for a program that SIGINT ended. */
export const EXIT_INTERRUPTED = 130;

/** Works until the program is asked to stop, which aborts `stopping`. Returns the exit code. */
export async function stoppable(
  { world }: Call,
  stopping: AbortController,
  work: () => Promise<void>,
): Promise<number> {
  const forget = world.onStopSignal(() => stopping.abort());
  try {
    await work();
    return 0;
  } catch (error) {
    if (stopping.signal.aborted) return EXIT_INTERRUPTED;
    throw error;
  } finally {
    forget();
  }
}
