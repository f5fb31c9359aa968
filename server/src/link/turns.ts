/**
 * Turns of this process's one thread, for work that comes in pieces without end: output of commands, content of files, pages
 * of machines. Tenants share it fairly, and everything else comes in between.
 *
 * Always: in one round of the event loop such work takes TURN_MS and the piece that goes beyond it; what is left waits for the
 * next round, and tenants whose work waits take turns, one piece each. While a round has time left, work
 * is done at once. A stream reads nothing more until it had its turn: one piece waits for each, no more.
 */
import type { Clock } from "@flotilla/base/clock";
import { errorOf } from "@flotilla/base/errors";

/** What others wait for at most, besides the piece that is longest. */
const ROUND_MS = 1;

export class Turns {
  readonly #clock: Pick<Clock, "monotonic">;
  /** By tenant, in the order of their turns. */
  readonly #waiting = new Map<string, (() => void)[]>();
  #usedMs = 0;
  #isRoundOpen = false;

  constructor(clock: Pick<Clock, "monotonic">) {
    this.#clock = clock;
  }

  /**
   * Does the work now, or in a later round: then what it gives is promised. `beforeMs`: what the piece has taken of the
   * round before, such as reading it.
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

  /** The next one begins when this round's connections have been looked at. */
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
      // Behind all others.
      this.#waiting.delete(tenantId);
      const work = queue.shift();
      if (queue.length > 0) this.#waiting.set(tenantId, queue);
      work?.();
    }
    if (this.#waiting.size > 0) this.#openRound();
  }
}
