/**
 * A semaphore with a bound for each caller: how many requests of one may be at work while others ask.
 *
 * A request's work comes in many short pieces: its handler, each answer of the database or of a node. What
 * another tenant waits for in one round of the event loop is all the pieces that are ready, so few requests
 * of each may have some.
 *
 * Always:
 * - The only tenant that asks never waits, nor do the visitors of its machines.
 * - A tenant that has fewer requests at work than its share does not wait. Its visitors have half as much in
 *   addition, and an address whose callers are not known yet has ADDRESS_SLOTS.
 * - Requests of one caller begin in the order in which they came; callers whose requests wait take turns.
 * - A request counts for COUNTED_MS at most: after that it mostly waits for something else, such as a
 *   command.
 */
import type { Clock } from "@flotilla/base/clock";
import { type Link, LinkedList } from "@flotilla/base/linked-list";

/** Divided between the tenants that ask. */
const SLOTS = 12;
const TENANT_SLOTS_MIN = 4;
const ADDRESS_SLOTS = 2;
const VISITORS_SHARE = 0.5;
const COUNTED_MS = 10;
/** How often waiting requests are looked at, besides whenever another one ends. */
const CHECK_MS = 5;
/** A tenant that asked within this time counts as asking. */
const ASKING_MS = 1_000;

/** A party whose requests wait for each other. */
export interface Caller {
  readonly name: string;
  /** null: it is not known whose requests they are. */
  readonly tenantId: string | null;
}

export const tenantCaller = (tenantId: string): Caller => ({ name: tenantId, tenantId });
/** The visitors of the tenant's machines, with or without a key. */
export const visitorsOf = (tenantId: string): Caller => ({ name: `visitors of ${tenantId}`, tenantId });
export const addressCaller = (address: string): Caller => ({ name: `address ${address}`, tenantId: null });

interface Holder extends Caller {
  atWork: number;
  /** Functions that begin its waiting requests. */
  readonly waiting: (() => void)[];
  askedAt: number;
}

/** A request at work that counts. */
interface Entry {
  readonly holder: Holder;
  readonly since: number;
}

export class FairSemaphore {
  readonly #clock: Pick<Clock, "monotonic" | "timer">;
  readonly #holders = new Map<string, Holder>();
  /** How many holders each tenant has: itself, and its visitors. */
  readonly #tenants = new Map<string, number>();
  /** Holders with waiting requests, in the order of their turns. */
  readonly #turns = new Set<Holder>();
  /** In the order in which they began. */
  readonly #entries = new LinkedList<Entry>();
  #sweptAt = 0;
  #isChecking = false;

  constructor(clock: Pick<Clock, "monotonic" | "timer">) {
    this.#clock = clock;
  }

  /**
   * Lets the request begin, now or later. The function that is returned ends it, and may be called more than
   * once.
   */
  begin(caller: Caller): (() => void) | Promise<() => void> {
    const now = this.#clock.monotonic();
    this.#sweep(now);
    const holder = this.#holders.get(caller.name) ?? this.#add(caller);
    holder.askedAt = now;
    if (holder.waiting.length === 0 && this.#hasRoom(holder, now)) return this.#enter(holder);
    return new Promise((resolve) => {
      holder.waiting.push(() => resolve(this.#enter(holder)));
      this.#turns.add(holder);
      this.#scheduleCheck();
    });
  }

  #add(caller: Caller): Holder {
    const holder = { ...caller, atWork: 0, waiting: [], askedAt: 0 };
    this.#holders.set(caller.name, holder);
    this.#count(caller.tenantId, 1);
    return holder;
  }

  #count(tenantId: string | null, change: number): void {
    if (tenantId === null) return;
    const count = (this.#tenants.get(tenantId) ?? 0) + change;
    if (count === 0) this.#tenants.delete(tenantId);
    else this.#tenants.set(tenantId, count);
  }

  #enter(holder: Holder): () => void {
    holder.atWork += 1;
    const place = this.#entries.append({ holder, since: this.#clock.monotonic() });
    return () => {
      if (this.#leave(place)) this.#next();
    };
  }

  #leave(place: Link<Entry>): boolean {
    const isCounted = place.remove();
    if (isCounted) place.value.holder.atWork -= 1;
    return isCounted;
  }

  #hasRoom(holder: Holder, now: number): boolean {
    const isAlone = this.#tenants.size === (holder.tenantId === null ? 0 : 1);
    if (isAlone || holder.atWork < this.#shareOf(holder)) return true;
    this.#leaveLate(now);
    return holder.atWork < this.#shareOf(holder);
  }

  #shareOf({ name, tenantId }: Holder): number {
    if (tenantId === null) return ADDRESS_SLOTS;
    const share = Math.max(TENANT_SLOTS_MIN, SLOTS / this.#tenants.size);
    return name === tenantId ? share : share * VISITORS_SHARE;
  }

  /** Requests that take long no longer count. */
  #leaveLate(now: number): void {
    for (let first = this.#entries.first; first !== null; first = this.#entries.first) {
      if (now - first.value.since < COUNTED_MS) return;
      this.#leave(first);
    }
  }

  /** Begins waiting requests for which there is room: one of each caller in turn. */
  #next(): void {
    const now = this.#clock.monotonic();
    this.#sweep(now);
    for (let skipped = 0; skipped < this.#turns.size; ) {
      const [holder] = this.#turns;
      if (holder === undefined) return;
      this.#turns.delete(holder);
      const begin = this.#hasRoom(holder, now) ? holder.waiting.shift() : undefined;
      begin?.();
      if (holder.waiting.length > 0) this.#turns.add(holder);
      skipped = begin === undefined ? skipped + 1 : 0;
    }
  }

  /** When every request at work waits for something else, no end begins the next. */
  #scheduleCheck(): void {
    if (this.#isChecking) return;
    this.#isChecking = true;
    this.#clock.timer(CHECK_MS, () => {
      this.#isChecking = false;
      this.#next();
      if (this.#turns.size > 0) this.#scheduleCheck();
    });
  }

  /** Removes callers that ask no more. */
  #sweep(now: number): void {
    if (now - this.#sweptAt < ASKING_MS) return;
    this.#sweptAt = now;
    this.#leaveLate(now);
    for (const [name, { tenantId, atWork, waiting, askedAt }] of this.#holders) {
      if (atWork > 0 || waiting.length > 0 || now - askedAt < ASKING_MS) continue;
      this.#holders.delete(name);
      this.#count(tenantId, -1);
    }
  }
}
