/**
 * Shares the database's connections between tenants.
 *
 * PostgreSQL divides its processors between the statements that run, so a tenant that has many slows down
 * everybody's, and one that has all connections makes everybody wait. While several holders ask, one has
 * HOLDER_MAX statements or transactions under way; its further ones wait here. A holder is a tenant or an
 * address (holder.ts).
 *
 * Always:
 * - A holder that asks alone has all connections but two shares of them.
 * - FIRSTS_SHARE of the connections is left for holders that have nothing under way, so one that asked alone,
 *   and whose statements wait in the database, keeps none of them out.
 * - The server's own work (loops, reports of nodes, what several callers wait for) does not wait here, and
 *   RESERVED_SHARE of the connections is left for it.
 * - Holders begin round-robin, and those of one holder in the order in which they came.
 * - What a transaction does within it does not wait again.
 * - No wait is longer than WAIT_MS_MAX; then it fails, as a wait for a connection of the pool does.
 */
import type { Clock } from "@flotilla/base/clock";
import { LinkedList } from "@flotilla/base/linked-list";
import { DatabaseUnavailable } from "./database.ts";
import { currentHolder, forAll } from "./holder.ts";

/**
 * One waits for the disk while another uses a processor. With four, a small host's processors are all busy
 * for one tenant.
 */
const HOLDER_MAX = 2;
const FIRSTS_SHARE = 1 / 5;
const RESERVED_SHARE = 1 / 8;
/** A holder that asked within this time counts as asking. */
const ASKING_MS = 1_000;
const WAIT_MS_MAX = 5_000;
const LATE = `no connection of the caller's share was free within ${WAIT_MS_MAX / 1000} s`;

interface Waiting {
  readonly begin: () => void;
}

interface Holder {
  readonly name: string;
  running: number;
  readonly waiting: LinkedList<Waiting>;
  askedAt: number;
}

export class ConnectionShare {
  readonly #clock: Pick<Clock, "monotonic" | "timer">;
  /** Max statements of all holders. */
  readonly #allMax: number;
  /** The same when a holder has nothing under way. */
  readonly #firstMax: number;
  readonly #holders = new Map<string, Holder>();
  /** Holders with work that waits, in the order of their turns. */
  readonly #turns = new Set<Holder>();
  #running = 0;
  #sweptAt = 0;

  constructor(clock: Pick<Clock, "monotonic" | "timer">, connectionsMax: number) {
    this.#clock = clock;
    this.#firstMax = connectionsMax - Math.floor(connectionsMax * RESERVED_SHARE);
    this.#allMax = this.#firstMax - Math.floor(connectionsMax * FIRSTS_SHARE);
  }

  /**
   * Does the work, which uses one connection, for the current holder. Rejects with DatabaseUnavailable when
   * it waited too long.
   */
  run<T>(work: () => Promise<T>): Promise<T> {
    const name = currentHolder();
    return name === null ? work() : this.#runFor(this.#holder(name), work);
  }

  async #runFor<T>(holder: Holder, work: () => Promise<T>): Promise<T> {
    if (holder.waiting.size === 0 && this.#hasRoom(holder)) this.#take(holder);
    else await this.#wait(holder);
    try {
      return await forAll(work);
    } finally {
      holder.running -= 1;
      this.#running -= 1;
      this.#next();
    }
  }

  #holder(name: string): Holder {
    const now = this.#clock.monotonic();
    if (now - this.#sweptAt >= ASKING_MS) this.#sweep(now);
    let holder = this.#holders.get(name);
    if (holder === undefined) {
      holder = { name, running: 0, waiting: new LinkedList(), askedAt: now };
      this.#holders.set(name, holder);
    }
    holder.askedAt = now;
    return holder;
  }

  #hasRoom({ running }: Holder): boolean {
    if (running === 0) return this.#running < this.#firstMax;
    if (this.#running >= this.#allMax) return false;
    return this.#holders.size === 1 || running < HOLDER_MAX;
  }

  #take(holder: Holder): void {
    holder.running += 1;
    this.#running += 1;
  }

  #wait(holder: Holder): Promise<void> {
    return new Promise((resolve, reject) => {
      const leave = (): void => {
        place.remove();
        if (holder.waiting.size === 0) this.#turns.delete(holder);
      };
      const late = this.#clock.timer(WAIT_MS_MAX, () => {
        leave();
        reject(new DatabaseUnavailable(new Error(LATE)));
      });
      const begin = (): void => {
        late.cancel();
        leave();
        this.#take(holder);
        resolve();
      };
      const place = holder.waiting.append({ begin });
      this.#turns.add(holder);
    });
  }

  /** Begins what waits and has room: one of each holder in turn. */
  #next(): void {
    if (this.#turns.size === 0) return;
    this.#sweep(this.#clock.monotonic());
    for (let skipped = 0; skipped < this.#turns.size; ) {
      const [holder] = this.#turns;
      if (holder === undefined) return;
      // Moves the holder to the end.
      this.#turns.delete(holder);
      this.#turns.add(holder);
      const { first } = holder.waiting;
      const begins = first !== null && this.#hasRoom(holder);
      if (begins) first.value.begin();
      skipped = begins ? 0 : skipped + 1;
    }
  }

  /** Removes holders that ask no more. */
  #sweep(now: number): void {
    this.#sweptAt = now;
    for (const { name, running, waiting, askedAt } of this.#holders.values())
      if (running === 0 && waiting.size === 0 && now - askedAt >= ASKING_MS) this.#holders.delete(name);
  }
}
