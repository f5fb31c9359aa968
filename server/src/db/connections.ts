/**
 * The connections of a pool, opened one after the other. Each is a process of PostgreSQL, which costs more
 * than most statements, so what begins at the same moment, as the loops of a server that starts do, shares a
 * few.
 *
 * Always:
 * - While one is being opened, callers wait for it, or for one that is free sooner, in their order. One that
 *   takes longer than OPENING_MS keeps no others from being opened.
 * - When all are open, callers wait in the pool.
 */
import type { Clock, Timer } from "@flotilla/base/clock";
import { LinkedList } from "@flotilla/base/linked-list";
import type pg from "pg";

const OPENING_MS = 100;

interface Waiting {
  readonly resolve: (client: Promise<pg.PoolClient>) => void;
}

export class Connections {
  readonly #pool: pg.Pool;
  readonly #max: number;
  readonly #clock: Pick<Clock, "timer">;
  readonly #waiting = new LinkedList<Waiting>();
  /** Ends the wait for the one that is being opened; null: none is. */
  #opening: Timer | null = null;

  constructor(pool: pg.Pool, max: number, clock: Pick<Clock, "timer">) {
    this.#pool = pool;
    this.#max = max;
    this.#clock = clock;
  }

  /** Rejects when none could be opened, or none was free in time. */
  take(): Promise<pg.PoolClient> {
    if (this.#waiting.size === 0 && !this.#mustWait) return this.#connect();
    return new Promise((resolve) => {
      this.#waiting.append({ resolve });
    });
  }

  /** `broken`: why it cannot be used again. */
  giveBack(client: pg.PoolClient, broken?: Error): void {
    client.release(broken);
    this.#next();
  }

  get #opensOne(): boolean {
    const { idleCount, waitingCount, totalCount } = this.#pool;
    return idleCount <= waitingCount && totalCount < this.#max;
  }

  get #mustWait(): boolean {
    return this.#opening !== null && this.#opensOne;
  }

  async #connect(): Promise<pg.PoolClient> {
    if (!this.#opensOne) return await this.#pool.connect();
    const opening = this.#clock.timer(OPENING_MS, () => this.#end(opening));
    this.#opening = opening;
    try {
      return await this.#pool.connect();
    } finally {
      opening.cancel();
      this.#end(opening);
    }
  }

  #end(opening: Timer): void {
    if (this.#opening === opening) this.#opening = null;
    this.#next();
  }

  #next(): void {
    for (let { first } = this.#waiting; first !== null && !this.#mustWait; { first } = this.#waiting) {
      first.remove();
      first.value.resolve(this.#connect());
    }
  }
}
