/**
 * Shares the event loop between tenants by bounding how many requests each has at work.
 *
 * A request's work comes in many short pieces: its handler, each answer of the database or of a node. What another tenant
 * waits for in one round of the loop is all the pieces that are ready. So while the thread is busy and several tenants ask, each has its
 * share of SLOTS requests at work; further ones wait, and tenants take turns.
 *
 * Shares alone leave the thread as busy as before, and a call of another tenant waits in each of its rounds. So callers with waiting requests
 * give way: while other tenants ask, their requests begin at a pace at which the thread is busy for 35 % of the time. Streams and bodies follow
 * the same pace (turns.ts). Of several such callers, the tenant that has waited for the shortest time does not give way. The time in which it gave
 * way does not count: a tenant of which a hundred calls wait, after a moment in which none was answered, would otherwise give way to a flood of
 * twenty, and more of its calls would wait the longer it did.
 *
 * What a tenant uses of the loop does not count. One that makes many short calls may use more than one that floods the database,
 * and it would wait the more the longer others have made it wait.
 *
 * Always:
 * - While the thread is busy for less than 35 % of the time no request begins to wait here. One of the only tenant that asks, or of its visitors,
 *   never waits.
 * - A tenant that has fewer requests at work than its share does not wait, unless it gives way. Those who visit its machines have half as much in
 *   addition, and an address whose callers are not known yet has ADDRESS_SLOTS.
 * - A request counts for COUNTED_ROUNDS long rounds at most: after that it waits for something else, such as a command. Were it a
 *   fixed time, more requests would begin the longer rounds are, and make them longer.
 * - Requests of one tenant begin in the order in which they came.
 */
import type { Clock } from "@flotilla/base/clock";

/** From this part of the time on the thread is busy. More slows down others, less slows down the busiest tenant (docs/noisy-neighbour.md). */
const BUSY = 0.35;
/** How often that is measured. Each measurement counts as much as all before it. */
const MEASURED_MS = 20;
/** The pace changes by this factor with each measurement, so that the thread stays at BUSY. */
const PACE_STEP = 1.25;
const PACE_MS_MIN = 1;
/** 50 requests in a second. */
const PACE_MS_MAX = 20;
/** A request that has waited for longer gives way no more, so a tenant with more than 50 calls a second is slow, and not slower all the time. */
const GIVES_WAY_MS_MAX = 1_000;
/** For so long who does not give way remains so: in this time, what waits after a short stall begins. */
const SLICE_MS = 100;
/** A tenant that asked within this time asks still: the next call of a program that makes one after another comes soon after its last. */
const LATELY_MS = 10;
/** Divided between the tenants that ask. */
const SLOTS = 12;
const TENANT_SLOTS_MIN = 4;
const ADDRESS_SLOTS = 2;
const VISITORS_SHARE = 0.5;
/** A request makes a part of its way in each round, so the longer rounds are, the longer it is at work. */
const COUNTED_ROUNDS = 8;
const COUNTED_MS_MIN = 10;
const COUNTED_MS_MAX = 100;
/** A tenant that asked within this time counts as asking. */
const ASKING_MS = 1_000;

/** Who asks: requests of the same caller wait for each other. */
export interface Caller {
  readonly name: string;
  /** null: it is not known for whom they ask. */
  readonly tenantId: string | null;
  /** Those who visit the tenant's machines, with or without a key. */
  readonly areVisitors: boolean;
}

export const tenantCaller = (tenantId: string): Caller => ({ name: tenantId, tenantId, areVisitors: false });
export const visitorsOf = (tenantId: string): Caller => ({
  name: `visitors of ${tenantId}`,
  tenantId,
  areVisitors: true,
});
export const addressCaller = (address: string): Caller => ({
  name: `address ${address}`,
  tenantId: null,
  areVisitors: false,
});

/** A request at work. */
interface Entry {
  readonly holder: Holder;
  readonly since: number;
}

interface Holder extends Caller {
  atWork: number;
  readonly waiting: { readonly since: number; readonly begin: () => void }[];
  /** For how long requests of it have waited since none did, without the time in which it gave way; milliseconds. */
  waitedMs: number;
  askedAt: number;
  begunAt: number;
}

/** When a tenant asked. */
interface Asked {
  readonly tenantId: string | null;
  readonly at: number;
}

const NEVER: Asked = { tenantId: null, at: Number.NEGATIVE_INFINITY };

/** Which part of the time since the last call this thread was busy or waited for a processor: 0 to 1. */
export type ThreadUse = () => number;

/** Of the thread that calls it. */
export function threadUse(): ThreadUse {
  let last = performance.eventLoopUtilization();
  return () => {
    const now = performance.eventLoopUtilization();
    const { utilization } = performance.eventLoopUtilization(now, last);
    last = now;
    return utilization;
  };
}

export class AtWork {
  readonly #clock: Pick<Clock, "monotonic" | "timer">;
  readonly #threadUse: ThreadUse;
  readonly #holders = new Map<string, Holder>();
  /** Those with requests that wait, in the order of their turns. */
  readonly #turns = new Set<Holder>();
  /** Of several of them, the one that does not give way. */
  #first: Holder | null = null;
  #waitedUntil = 0;
  /** Those that count, in the order in which they began. */
  readonly #entries = new Set<Entry>();
  /** Of them, those of each tenant and its visitors. */
  readonly #ofTenant = new Counts();
  /** The holders of each tenant: itself and its visitors. */
  readonly #tenants = new Counts();
  /** The last request of a tenant or its visitors, and the last one of another tenant than that. */
  #lastAsked = NEVER;
  #askedBefore = NEVER;
  /** What a round has taken lately. */
  #roundMs = 0;
  #isMeasuring = false;
  /** Which part of the time the thread was busy lately. */
  #use = 0;
  #measuredAt = Number.NEGATIVE_INFINITY;
  /** Between two requests of the caller that gives way. */
  #paceMs = PACE_MS_MIN;
  #sweptAt = 0;
  #isChecking = false;

  constructor(clock: Pick<Clock, "monotonic" | "timer">, use: ThreadUse) {
    this.#clock = clock;
    this.#threadUse = use;
  }

  /** Lets the request begin, now or later; the function it gives ends it, and may be called more than once. */
  begin(caller: Caller): (() => void) | Promise<() => void> {
    const now = this.#clock.monotonic();
    this.#sweep(now);
    let holder = this.#holders.get(caller.name);
    if (holder === undefined) {
      holder = { ...caller, atWork: 0, waiting: [], waitedMs: 0, askedAt: now, begunAt: Number.NEGATIVE_INFINITY };
      this.#holders.set(caller.name, holder);
      this.#tenants.add(caller.tenantId, 1);
    }
    holder.askedAt = now;
    this.#noteAsked({ tenantId: caller.tenantId, at: now });
    if (this.#holders.size > 1) this.#measureRound(now);
    const beginsNow = holder.waiting.length === 0 && (!this.#isBusy(now) || this.#hasRoom(holder, now));
    if (beginsNow) return this.#enter(holder, now);
    return this.#wait(holder);
  }

  /**
   * Milliseconds between two pieces of the tenant's streams, because another tenant, or who visits its machines, asks. 0: none does.
   */
  paceOf(tenantId: string): number {
    const now = this.#clock.monotonic();
    if (!this.#othersAsk(tenantId, now)) return 0;
    this.#measureUse(now);
    return this.#paceMs;
  }

  #noteAsked(asked: Asked): void {
    if (asked.tenantId === null) return;
    if (asked.tenantId !== this.#lastAsked.tenantId) this.#askedBefore = this.#lastAsked;
    this.#lastAsked = asked;
  }

  /** Whether another tenant has a request at work, or had its last one a moment ago. */
  #othersAsk(tenantId: string | null, now: number): boolean {
    const { at } = this.#lastAsked.tenantId === tenantId ? this.#askedBefore : this.#lastAsked;
    if (now - at < LATELY_MS) return true;
    this.#leaveLate(now);
    return this.#ofTenant.size > (tenantId !== null && this.#ofTenant.has(tenantId) ? 1 : 0);
  }

  #wait(holder: Holder): Promise<() => void> {
    return new Promise((resolve) => {
      const since = this.#clock.monotonic();
      holder.waiting.push({ since, begin: () => resolve(this.#enter(holder, this.#clock.monotonic())) });
      this.#turns.add(holder);
      this.#scheduleCheck();
    });
  }

  #enter(holder: Holder, since: number): () => void {
    const entry = { holder, since };
    holder.atWork += 1;
    holder.begunAt = since;
    this.#ofTenant.add(holder.tenantId, 1);
    this.#entries.add(entry);
    return () => {
      if (this.#leave(entry)) this.#next();
    };
  }

  #leave(entry: Entry): boolean {
    const isCounted = this.#entries.delete(entry);
    if (!isCounted) return false;
    entry.holder.atWork -= 1;
    this.#ofTenant.add(entry.holder.tenantId, -1);
    return true;
  }

  #hasRoom(holder: Holder, now: number): boolean {
    const tenantsAlone = holder.tenantId === null ? 0 : 1;
    if (this.#tenants.size === tenantsAlone) return true;
    const share = this.#shareOf(holder);
    if (holder.atWork < share) return true;
    this.#leaveLate(now);
    return holder.atWork < share;
  }

  #shareOf({ tenantId, areVisitors }: Holder): number {
    if (tenantId === null) return ADDRESS_SLOTS;
    const ofTenant = Math.max(TENANT_SLOTS_MIN, SLOTS / this.#tenants.size);
    return areVisitors ? ofTenant * VISITORS_SHARE : ofTenant;
  }

  #countedMs(): number {
    return Math.min(COUNTED_MS_MAX, Math.max(COUNTED_MS_MIN, this.#roundMs * COUNTED_ROUNDS));
  }

  /** Requests that take long no longer count. */
  #leaveLate(now: number): void {
    for (const entry of this.#entries) {
      if (now - entry.since < this.#countedMs()) return;
      this.#leave(entry);
    }
  }

  /** Begins what waits and has room: one request of each caller in turn. */
  #next(): void {
    const now = this.#clock.monotonic();
    this.#countWaiting(now);
    for (let skipped = 0; skipped < this.#turns.size; ) {
      const [holder] = this.#turns;
      if (holder === undefined) return;
      this.#turns.delete(holder);
      const hasRoom = this.#hasRoom(holder, now) && !this.#givesWay(holder, now);
      if (hasRoom) holder.waiting.shift()?.begin();
      if (holder.waiting.length > 0) this.#turns.add(holder);
      else holder.waitedMs = 0;
      skipped = hasRoom ? 0 : skipped + 1;
    }
  }

  /** Counts how long requests have waited, and finds who does not give way. */
  #countWaiting(now: number): void {
    if (this.#first !== null && this.#turns.has(this.#first)) this.#first.waitedMs += now - this.#waitedUntil;
    this.#waitedUntil = now;
    let first: Holder | null = null;
    for (const holder of this.#turns) if (first === null || byPatience(holder, first) < 0) first = holder;
    this.#first = this.#turns.size > 1 ? first : null;
  }

  /** Whether its next request has to begin later, because of the pace. */
  #givesWay(holder: Holder, now: number): boolean {
    const waitedMs = now - (holder.waiting[0]?.since ?? now);
    if (holder === this.#first || waitedMs > GIVES_WAY_MS_MAX) return false;
    this.#measureUse(now);
    return now - holder.begunAt < this.#paceMs && this.#othersAsk(holder.tenantId, now);
  }

  #isBusy(now: number): boolean {
    this.#measureUse(now);
    return this.#use >= BUSY;
  }

  #measureUse(now: number): void {
    if (now - this.#measuredAt < MEASURED_MS) return;
    this.#measuredAt = now;
    this.#use = (this.#use + this.#threadUse()) / 2;
    const slower = this.#use >= BUSY ? PACE_STEP : 1 / PACE_STEP;
    this.#paceMs = Math.min(PACE_MS_MAX, Math.max(PACE_MS_MIN, this.#paceMs * slower));
  }

  /** When all that is at work waits for something else, no end begins the next. */
  #scheduleCheck(): void {
    if (this.#isChecking) return;
    this.#isChecking = true;
    this.#clock.timer(COUNTED_MS_MIN / 2, () => {
      this.#isChecking = false;
      this.#next();
      if (this.#turns.size > 0) this.#scheduleCheck();
    });
  }

  /** From now to the end of this round, which is what the callbacks that are ready take. */
  #measureRound(now: number): void {
    if (this.#isMeasuring) return;
    this.#isMeasuring = true;
    setImmediate(() => {
      this.#isMeasuring = false;
      const tookMs = this.#clock.monotonic() - now;
      this.#roundMs = tookMs > this.#roundMs ? tookMs : this.#roundMs * 0.9 + tookMs * 0.1;
    });
  }

  #sweep(now: number): void {
    if (now - this.#sweptAt < ASKING_MS) return;
    this.#sweptAt = now;
    this.#leaveLate(now);
    for (const [name, { tenantId, atWork, waiting, askedAt }] of this.#holders) {
      if (atWork > 0 || waiting.length > 0 || now - askedAt < ASKING_MS) continue;
      this.#holders.delete(name);
      this.#tenants.add(tenantId, -1);
    }
  }
}

/** Callers whose key is not known yet come last. Of the others those that have waited for less, and then those with fewer requests, come first. */
function byPatience(a: Holder, b: Holder): number {
  const unknown = Number(a.tenantId === null) - Number(b.tenantId === null);
  const slicesOf = ({ waitedMs }: Holder): number => Math.floor(waitedMs / SLICE_MS);
  return unknown || slicesOf(a) - slicesOf(b) || a.waiting.length - b.waiting.length;
}

/** How many there are of each tenant that has any. */
class Counts {
  readonly #counts = new Map<string, number>();

  get size(): number {
    return this.#counts.size;
  }

  has(tenantId: string): boolean {
    return this.#counts.has(tenantId);
  }

  /** null: no tenant is known. */
  add(tenantId: string | null, change: number): void {
    if (tenantId === null) return;
    const count = (this.#counts.get(tenantId) ?? 0) + change;
    if (count === 0) this.#counts.delete(tenantId);
    else this.#counts.set(tenantId, count);
  }
}
