/**
 * Shares this process's one thread fairly between tenants, for streams: output of commands, content of files, pages of
 * machines. Everything else runs in between.
 *
 * Always:
 * - In one round such work takes at most ROUND_MS and the rest of one piece. A round is one of the event loop.
 * - Streams give way to calls: while another tenant has a call at work, a round lasts GIVE_WAY_MS. This leaves the processors to
 *   the call, also those that the node agent and the stream's reader use. A tenant alone is not slowed down.
 * - While a round has time left, work runs immediately. Remaining work waits for the next round and is served round-robin by
 *   tenant, one piece each. A tenant's first piece does not wait for the others' until the round has taken FIRST_MS.
 * - At most one piece waits for each stream: a stream reads no more until then.
 */
import type { Clock } from "@flotilla/base/clock";
import { errorOf } from "@flotilla/base/errors";

/** How long other work waits at most, apart from the longest piece. */
const ROUND_MS = 1;
/** Streams keep a fifth of the thread. */
const GIVE_WAY_MS = 5;
/** The end of a short command is a piece as well. */
const FIRST_MS = 2;

/** Does a piece of one tenant's work now, or in a later round; whether there is room for more. */
export type Turn = (work: () => boolean) => boolean | Promise<boolean>;
/** Whether another tenant has a call at work. */
export type HasOthers = (tenantId: string) => boolean;
/** Is notified of each piece: milliseconds of the thread that were used for the tenant. */
export type OnUsed = (tenantId: string, ms: number) => void;

export class Turns {
  readonly #clock: Pick<Clock, "monotonic" | "timer">;
  /** By tenant, in round-robin order. */
  readonly #waiting = new Map<string, (() => void)[]>();
  /** Tenants whose work was done in this round. */
  readonly #served = new Set<string>();
  #hasOthers: HasOthers = () => false;
  #onUsed: OnUsed = () => undefined;
  #usedMs = 0;
  #beganAt = 0;
  #isRoundOpen = false;

  constructor(clock: Pick<Clock, "monotonic" | "timer">) {
    this.#clock = clock;
  }

  /** From now on streams give way to the calls of other tenants, and what they use is reported. */
  giveWay(hasOthers: HasOthers, onUsed: OnUsed = () => undefined): void {
    this.#hasOthers = hasOthers;
    this.#onUsed = onUsed;
  }

  /**
   * Does the work now and returns its result, or in a later round and returns a promise. `beforeMs`: time that the piece has
   * used already, for example for reading it.
   */
  run<T>(tenantId: string, work: () => T, beforeMs = 0): T | Promise<T> {
    if (beforeMs > 0) {
      this.#usedMs += beforeMs;
      this.#onUsed(tenantId, beforeMs);
      this.#openRound();
    }
    const most = this.#served.has(tenantId) ? ROUND_MS : FIRST_MS;
    if (this.#usedMs - beforeMs < most && !this.#waiting.has(tenantId)) return this.#do(tenantId, work);
    return new Promise((resolve, reject) => {
      const mine = this.#waiting.get(tenantId) ?? [];
      this.#waiting.set(tenantId, mine);
      mine.push(() => {
        try {
          resolve(this.#do(tenantId, work));
        } catch (error) {
          reject(errorOf(error));
        }
      });
      this.#openRound();
    });
  }

  #do<T>(tenantId: string, work: () => T): T {
    this.#served.add(tenantId);
    const startedAt = this.#clock.monotonic();
    try {
      return work();
    } finally {
      const tookMs = this.#clock.monotonic() - startedAt;
      this.#usedMs += tookMs;
      this.#onUsed(tenantId, tookMs);
      this.#openRound();
    }
  }

  /** The next round begins after the connections of this one were polled, or later. */
  #openRound(): void {
    if (this.#isRoundOpen) return;
    this.#isRoundOpen = true;
    this.#beganAt = this.#clock.monotonic();
    setImmediate(() => this.#endRound());
  }

  #endRound(): void {
    const leftMs = this.#beganAt + GIVE_WAY_MS - this.#clock.monotonic();
    if (leftMs > 0 && this.#givesWay()) this.#clock.timer(leftMs, () => this.#round());
    else this.#round();
  }

  #givesWay(): boolean {
    return [...this.#served, ...this.#waiting.keys()].some((tenantId) => this.#hasOthers(tenantId));
  }

  #round(): void {
    this.#isRoundOpen = false;
    this.#usedMs = 0;
    this.#served.clear();
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
