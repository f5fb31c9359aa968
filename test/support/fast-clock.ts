/**
 * A clock for tests of deadlines.
 */
import { type Clock, systemClock } from "@flotilla/base/clock";

/** Time that passes `factor` times as fast: for deadlines of minutes. */
export const fastClock = (factor: number): Clock => ({
  now: () => systemClock.now(),
  monotonic: () => systemClock.monotonic() * factor,
  boottime: () => systemClock.boottime() * factor,
  sleep: (ms, signal) => systemClock.sleep(ms / factor, signal),
  timer: (ms, callback) => systemClock.timer(ms / factor, callback),
});
