/**
 * Waits for conditions on a machine's state.
 *
 * Always:
 * - A condition is checked at the call and after every `changed`. There is no polling.
 * - A wait ends when its condition holds, at its timeout, or when its signal is aborted. Nothing of it is
 *   kept then.
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

  /** Never rejects. The caller checks again what is true now. */
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
