/**
 * Turns for heavy work, shared fairly among tenants.
 *
 * Always: at most `atOnce` pieces of work run, and at most `atOncePerOwner` of one owner; owners whose work waits take
 * turns, one piece each. So what one owner queues, however much, delays another owner's next piece by no more than the
 * work that runs. Who gives up leaves the queue at once.
 */

export interface TurnLimits {
  readonly atOnce: number;
  readonly atOncePerOwner: number;
}

export class FairTurns {
  readonly #limits: TurnLimits;
  /** In the order of their turns. */
  readonly #waiting = new Map<string, Set<() => void>>();
  readonly #running = new Map<string, number>();
  #count = 0;

  constructor(limits: TurnLimits) {
    this.#limits = limits;
  }

  /** Rejects with the signal's reason when it is aborted before the work's turn, else as the work does. */
  async run<T>(owner: string, signal: AbortSignal, work: () => Promise<T>): Promise<T> {
    await this.#turn(owner, signal);
    try {
      return await work();
    } finally {
      const left = (this.#running.get(owner) ?? 1) - 1;
      if (left > 0) this.#running.set(owner, left);
      else this.#running.delete(owner);
      this.#count -= 1;
      this.#goOn();
    }
  }

  #turn(owner: string, signal: AbortSignal): Promise<void> {
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
    this.#goOn();
    return promise;
  }

  #goOn(): void {
    while (this.#count < this.#limits.atOnce) {
      const next = [...this.#waiting].find(([owner]) => (this.#running.get(owner) ?? 0) < this.#limits.atOncePerOwner);
      if (next === undefined) return;
      const [owner, queue] = next;
      const [begin] = queue;
      // Behind all others.
      this.#waiting.delete(owner);
      if (begin !== undefined) queue.delete(begin);
      if (queue.size > 0) this.#waiting.set(owner, queue);
      this.#running.set(owner, (this.#running.get(owner) ?? 0) + 1);
      this.#count += 1;
      begin?.();
    }
  }
}
