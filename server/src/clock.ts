/**
 * The real clock: the only file of the server that reads the time or sleeps.
 *
 * Always: everything else gets time through `Context.clock`, so that a test can drive it.
 */
import { setTimeout as wait } from "node:timers/promises";
import type { Clock } from "./context.ts";

export const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  async sleep(ms, signal) {
    try {
      await wait(ms, undefined, signal === undefined ? {} : { signal });
    } catch {
      // Only an abort rejects, and an aborted sleep just ends early.
    }
  },
};
