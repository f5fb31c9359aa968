/**
 * Shares this process's one thread fairly between tenants, for streams: output of commands, content of files, pages of
 * machines. Everything else runs in between.
 *
 * Always:
 * - In one round of the event loop such work takes at most ROUND_MS and the rest of one piece.
 * - While a round has time left, work runs immediately. Remaining work waits for the next round and is served round-robin by
 *   tenant, one piece each.
 * - At most one piece waits for each stream: a stream reads no more until then.
 */
import type { Clock } from "@flotilla/base/clock";
import { errorOf } from "@flotilla/base/errors";

/** How long other work waits at most, apart from the longest piece. */
const ROUND_MS = 1;

export class Turns {
  readonly #clock: Pick<Clock, "monotonic">;
  /** By tenant, in round-robin order. */
  readonly #waiting = new Map<string, (() => void)[]>();
  #usedMs = 0;
  #isRoundOpen = false;

  constructor(clock: Pick<Clock, "monotonic">) {
    this.#clock = clock;
  }

  /**
   * Does the work now and returns its result, or in a later round and returns a promise. `beforeMs`: time that the piece has
   * used already, for example for reading it.
   */
  run<T>(tenantId: string, work: () => T, beforeMs = 0): T | Promise<T> {
    if (beforeMs > 0) {
      this.#usedMs += beforeMs;
      this.#openRound();
    }
    if (this.#usedMs - beforeMs < ROUND_MS && !this.#waiting.has(tenantId)) return this.#do(work);
    return new Promise((resolve, reject) => {
      const mine = this.#waiting.get(tenantId) ?? [];
      this.#waiting.set(tenantId, mine);
      mine.push(() => {
        try {
          resolve(this.#do(work));
        } catch (error) {
          reject(errorOf(error));
        }
      });
      this.#openRound();
    });
  }

  #do<T>(work: () => T): T {
    const startedAt = this.#clock.monotonic();
    try {
      return work();
    } finally {
      this.#usedMs += this.#clock.monotonic() - startedAt;
      this.#openRound();
    }
  }

  /** The next round begins after the connections of this one were polled. */
  #openRound(): void {
    if (this.#isRoundOpen) return;
    this.#isRoundOpen = true;
    setImmediate(() => this.#round());
  }

  #round(): void {
    this.#isRoundOpen = false;
    this.#usedMs = 0;
    while (this.#usedMs < ROUND_MS) {
      const [first] = this.#waiting;
      if (first === undefined) return;
      const [tenantId, queue] = first;
      // Moves the tenant to the end.
      this.#waiting.delete(tenantId);
      const work = queue.shift();
      if (queue.length > 0) this.#waiting.set(tenantId, queue);
      work?.();
    }
    if (this.#waiting.size > 0) this.#openRound();
  }
}
