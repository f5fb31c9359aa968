/**
 * A queue that limits concurrent work and shares it fairly among tenants.
 *
 * Always:
 * - at most `concurrencyMax` pieces of work run, and at most `concurrencyPerOwnerMax` of one owner;
 * - owners with waiting work are served round-robin, one piece each, so a long queue of one owner delays
 *   another owner's next piece only by the work that is running;
 * - a caller that cancels leaves the queue at once.
 */

export interface FairQueueLimits {
  readonly concurrencyMax: number;
  readonly concurrencyPerOwnerMax: number;
}

export class FairQueue {
  readonly #limits: FairQueueLimits;
  /** In round-robin order. */
  readonly #waiting = new Map<string, Set<() => void>>();
  readonly #running = new Map<string, number>();
  #count = 0;

  constructor(limits: FairQueueLimits) {
    this.#limits = limits;
  }

  /**
   * Runs `work` in its turn. Rejects with the signal's reason if that aborts while it waits, otherwise as the
   * work does.
   */
  async run<T>(owner: string, signal: AbortSignal, work: () => Promise<T>): Promise<T> {
    await this.#waitForTurn(owner, signal);
    try {
      return await work();
    } finally {
      const left = (this.#running.get(owner) ?? 1) - 1;
      if (left > 0) this.#running.set(owner, left);
      else this.#running.delete(owner);
      this.#count -= 1;
      this.#startWaiting();
    }
  }

  #waitForTurn(owner: string, signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const queue = this.#waiting.get(owner) ?? new Set();
    const leave = (): void => {
      queue.delete(begin);
      if (queue.size === 0 && this.#waiting.get(owner) === queue) this.#waiting.delete(owner);
      reject(signal.reason);
    };
    const begin = (): void => {
      signal.removeEventListener("abort", leave);
      resolve();
    };
    signal.addEventListener("abort", leave, { once: true });
    queue.add(begin);
    this.#waiting.set(owner, queue);
    this.#startWaiting();
    return promise;
  }

  #startWaiting(): void {
    while (this.#count < this.#limits.concurrencyMax) {
      const next = [...this.#waiting].find(
        ([owner]) => (this.#running.get(owner) ?? 0) < this.#limits.concurrencyPerOwnerMax,
      );
      if (next === undefined) return;
      const [owner, queue] = next;
      const [begin] = queue;
      // To the end of the round-robin order.
      this.#waiting.delete(owner);
      if (begin !== undefined) queue.delete(begin);
      if (queue.size > 0) this.#waiting.set(owner, queue);
      this.#running.set(owner, (this.#running.get(owner) ?? 0) + 1);
      this.#count += 1;
      begin?.();
    }
  }
}
