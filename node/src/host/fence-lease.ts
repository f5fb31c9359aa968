/**
 * Until when fenced VMs of this node may run: FENCE_MS after the last heartbeat that a server acknowledged
 * was sent.
 *
 * Always:
 * - Instants are of `Clock.boottime`, absolute, so no delay in this process makes the lease longer.
 * - It only grows. In a new agent it has ended, until a server acknowledges its first heartbeat; the VMs of
 *   the agent before keep the timers that they have.
 *
 * In memory only: the timers are the kernel's.
 */
import type { Clock } from "@flotilla/base/clock";

/** An end that is later by less is not announced: heartbeats may follow each other within milliseconds. */
const STEP_MS = 1_000;
/** Less than what is left while one heartbeat after the other is acknowledged. */
const LEFT_MS_MIN = 10_000;

export class FenceLease {
  readonly #clock: Clock;
  readonly #watchers = new Set<() => void>();
  #announced = 0;
  #until = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** In milliseconds of `Clock.boottime`; 0: it has not begun. */
  get until(): number {
    return this.#until;
  }

  /** Whether enough time is left to start a fenced VM, or to give it its fence. */
  get hasRoom(): boolean {
    return this.#until - this.#clock.boottime() >= LEFT_MS_MIN;
  }

  /** A heartbeat was acknowledged. */
  renew(until: number): void {
    if (until <= this.#until) return;
    this.#until = until;
    if (until - this.#announced < STEP_MS) return;
    this.#announced = until;
    for (const watcher of this.#watchers) watcher();
  }

  /** Calls back after renewals, until the function that is returned is called. */
  watch(watcher: () => void): () => void {
    this.#watchers.add(watcher);
    return () => this.#watchers.delete(watcher);
  }

  /** Resolves when `hasRoom` is true. Rejects with the signal's reason. */
  async untilRoom(signal: AbortSignal): Promise<void> {
    while (!this.hasRoom) {
      signal.throwIfAborted();
      const renewed = Promise.withResolvers<void>();
      const end = this.watch(renewed.resolve);
      signal.addEventListener("abort", () => renewed.resolve(), { once: true });
      await renewed.promise;
      end();
    }
  }
}
