/**
 * Those who wait until something is true of a machine.
 *
 * Always: a condition is looked at when it is asked for and after every `changed`, never by polling; whoever waits is
 * answered when it holds, when its time is up or when its signal is aborted, and is forgotten then.
 */
import type { Clock } from "@flotilla/base/clock";

export class Watchers {
  readonly #clock: Clock;
  readonly #checks = new Set<() => void>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  changed(): void {
    for (const check of this.#checks) check();
  }

  /** Never rejects; whoever asked looks again at what is true now. */
  async until(condition: () => boolean, waitMs: number, signal?: AbortSignal): Promise<void> {
    if (waitMs <= 0 || condition() || signal?.aborted) return;
    await new Promise<void>((resolve) => {
      const finish = (): void => {
        timer.cancel();
        signal?.removeEventListener("abort", finish);
        this.#checks.delete(check);
        resolve();
      };
      const check = (): void => {
        if (condition()) finish();
      };
      const timer = this.#clock.timer(waitMs, finish);
      signal?.addEventListener("abort", finish, { once: true });
      this.#checks.add(check);
    });
  }
}
