/**
 * Shares this process's one thread fairly between tenants, for streams: output of commands, content of files,
 * pages of machines, long lists. Everything else runs in between.
 *
 * Always:
 * - In one round such work takes at most ROUND_MS and the rest of one piece. A round is one of the event
 *   loop.
 * - While a round has time left, work runs immediately. Remaining work waits for the next round and is served
 *   round-robin by tenant: several pieces that take OWN_MS together, or a longer one. A tenant that has used
 *   less than OWN_MS of a round does not wait for others until the round has taken FIRST_MS.
 * - At most one piece waits for each stream: a stream reads no more until then.
 */
import type { Clock } from "@flotilla/base/clock";
import { errorOf } from "@flotilla/base/errors";

/** How long other work waits at most, apart from the longest piece. */
const ROUND_MS = 1;
/** Part of each round that is a tenant's own. The end of a short command is a piece as well. */
const OWN_MS = 0.25;
/** How long a round may take with what is each tenant's own. */
const FIRST_MS = 4;

/** Does a piece of one tenant's work now, or in a later round; whether there is room for more. */
export type Turn = (work: () => boolean) => boolean | Promise<boolean>;

export class Turns {
  readonly #clock: Pick<Clock, "monotonic">;
  /** By tenant, in round-robin order. */
  readonly #waiting = new Map<string, (() => void)[]>();
  /** Milliseconds that were used for each tenant in this round. */
  readonly #usedBy = new Map<string, number>();
  #usedMs = 0;
  #isRoundOpen = false;

  constructor(clock: Pick<Clock, "monotonic">) {
    this.#clock = clock;
  }

  /** Does the work now and returns its result, or in a later round and returns a promise. */
  run<T>(tenantId: string, work: () => T): T | Promise<T> {
    const most = this.#usedByTenant(tenantId) < OWN_MS ? FIRST_MS : ROUND_MS;
    const hasTime = this.#usedMs < most;
    if (hasTime && !this.#waiting.has(tenantId)) return this.#do(tenantId, work);
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
    const startedAt = this.#clock.monotonic();
    try {
      return work();
    } finally {
      this.#count(tenantId, this.#clock.monotonic() - startedAt);
    }
  }

  #count(tenantId: string, ms: number): void {
    this.#usedMs += ms;
    this.#usedBy.set(tenantId, this.#usedByTenant(tenantId) + ms);
    this.#openRound();
  }

  #usedByTenant(tenantId: string): number {
    return this.#usedBy.get(tenantId) ?? 0;
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
    this.#usedBy.clear();
    while (this.#usedMs < ROUND_MS) {
      const [first] = this.#waiting;
      if (first === undefined) return;
      this.#serve(first[0]);
    }
    if (this.#waiting.size > 0) this.#openRound();
  }

  /** Does pieces of the tenant, at least one, and moves it to the end. */
  #serve(tenantId: string): void {
    const mostMs = this.#usedByTenant(tenantId) + OWN_MS;
    do {
      const queue = this.#waiting.get(tenantId);
      if (queue === undefined) return;
      this.#waiting.delete(tenantId);
      const work = queue.shift();
      if (queue.length > 0) this.#waiting.set(tenantId, queue);
      work?.();
    } while (this.#usedByTenant(tenantId) < mostMs);
  }
}
