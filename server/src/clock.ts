/**
 * The real clock: the only file of the server that reads the time or sleeps.
 *
 * Always: everything else gets time through `Context.clock`, so that a test can drive it.
 */
import { setTimeout as wait } from "node:timers/promises";
import type { Clock } from "./context.ts";

/** Node's timers overflow to 1 ms above this. */
const TIMER_MS_MAX = 2 ** 31 - 1;

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
  timer(ms, callback) {
    const timeout = setTimeout(callback, Math.min(ms, TIMER_MS_MAX)).unref();
    return { cancel: () => clearTimeout(timeout) };
  },
};
