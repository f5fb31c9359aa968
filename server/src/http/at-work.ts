/**
 * Shares the event loop between tenants by bounding how many requests the busiest of them have at work.
 *
 * A request's work comes in many short pieces: its handler, each answer of the database or of a node. What another tenant
 * waits for in one round of the loop is all the pieces that are ready. So while rounds are long and several tenants ask, a
 * tenant that uses much of the loop has at most HOLDER_MAX requests at work, and all such tenants ALL_MAX; their further
 * requests wait, and tenants take turns.
 *
 * What a tenant uses is estimated: each round that is measured is divided by the requests that are at work in it. Which piece
 * of JavaScript runs for whom is not known, and finding out would cost more than the pieces. Only the work that is done in turns
 * (link/turns.ts) is: output, files, pages and bodies. It counts for its tenant, not for those who call meanwhile.
 *
 * Always:
 * - While one tenant asks alone, or rounds are short, no request waits here.
 * - A tenant that uses less than BUSY_SHARE of what the busiest uses does not wait.
 * - A request counts for COUNTED_ROUNDS long rounds at most: after that it waits for something else, such as a command. Were it a
 *   fixed time, more requests would begin the longer rounds are, and make them longer.
 * - Requests of one tenant begin in the order in which they came.
 */
import type { Clock } from "@flotilla/base/clock";

/** A round of the event loop that takes longer is long. */
const LONG_ROUND_MS = 1;
const HOLDER_MAX = 4;
const ALL_MAX = 16;
/** A request makes a part of its way in each round, so the longer rounds are, the longer it is at work. */
const COUNTED_ROUNDS = 8;
const COUNTED_MS_MIN = 10;
const COUNTED_MS_MAX = 100;
/** A tenant that asked within this time counts as asking. */
const ASKING_MS = 1_000;
/** A tenant waits if it uses more than this share of what the busiest uses. */
const BUSY_SHARE = 0.75;
/** What was used loses this share of its weight with each measured round. */
const FORGETTING = 1 / 64;

/** A request at work. */
interface Entry {
  readonly holder: Holder;
  readonly since: number;
}

/** An address that visits machines is one as well. */
export type HolderKind = "tenant" | "address";

interface Holder {
  readonly name: string;
  readonly kind: HolderKind;
  atWork: number;
  /** In the round that is being measured. */
  begun: number;
  /** Milliseconds of the loop, lately. */
  usedMs: number;
  /** Known milliseconds of the round that is being measured. */
  knownMs: number;
  readonly waiting: (() => void)[];
  askedAt: number;
}

export class AtWork {
  readonly #clock: Pick<Clock, "monotonic" | "timer">;
  readonly #holders = new Map<string, Holder>();
  /** Those with requests that wait, in the order of their turns. */
  readonly #turns = new Set<Holder>();
  /** Those that count, in the order in which they began. */
  readonly #entries = new Set<Entry>();
  #ofTenants = 0;
  /** What a round has taken lately. */
  #roundMs = 0;
  /** What the busiest tenant has used lately. */
  #mostMs = 0;
  #isMeasuring = false;
  /** Of the round that is being measured, also for tenants that have not asked lately. */
  #knownMs = 0;
  #sweptAt = 0;
  #isChecking = false;

  constructor(clock: Pick<Clock, "monotonic" | "timer">) {
    this.#clock = clock;
  }

  /** Lets the request begin, now or later; the function it gives ends it, and may be called more than once. */
  begin(name: string, kind: HolderKind = "tenant"): (() => void) | Promise<() => void> {
    const now = this.#clock.monotonic();
    this.#sweep(now);
    let holder = this.#holders.get(name);
    if (holder === undefined) {
      holder = { name, kind, atWork: 0, begun: 0, usedMs: 0, knownMs: 0, waiting: [], askedAt: now };
      this.#holders.set(name, holder);
    }
    holder.askedAt = now;
    if (this.#holders.size > 1) this.#measureRound(now);
    if (holder.waiting.length === 0 && this.#hasRoom(holder, now)) return this.#enter(holder, now);
    return this.#wait(holder);
  }

  /** Whether a tenant other than this one has a request at work. Visitors of machines do not count: they may be its own. */
  hasOthers(tenantId: string): boolean {
    this.#leaveLate(this.#clock.monotonic());
    return this.#ofTenants > (this.#holders.get(tenantId)?.atWork ?? 0);
  }

  /** So much of the loop was used for the tenant, apart from its calls. */
  used(tenantId: string, ms: number): void {
    if (!this.#isMeasuring) return;
    this.#knownMs += ms;
    const holder = this.#holders.get(tenantId);
    if (holder !== undefined) holder.knownMs += ms;
  }

  #wait(holder: Holder): Promise<() => void> {
    return new Promise((resolve) => {
      holder.waiting.push(() => resolve(this.#enter(holder, this.#clock.monotonic())));
      this.#turns.add(holder);
      this.#scheduleCheck();
    });
  }

  #enter(holder: Holder, since: number): () => void {
    const entry = { holder, since };
    holder.atWork += 1;
    holder.begun += 1;
    if (holder.kind === "tenant") this.#ofTenants += 1;
    this.#entries.add(entry);
    return () => {
      if (this.#leave(entry)) this.#next();
    };
  }

  #leave(entry: Entry): boolean {
    const isCounted = this.#entries.delete(entry);
    if (!isCounted) return false;
    entry.holder.atWork -= 1;
    if (entry.holder.kind === "tenant") this.#ofTenants -= 1;
    return true;
  }

  #hasRoom(holder: Holder, now: number): boolean {
    if (this.#holders.size === 1 || this.#roundMs < LONG_ROUND_MS) return true;
    if (holder.usedMs <= this.#mostMs * BUSY_SHARE) return true;
    this.#leaveLate(now);
    return holder.atWork < HOLDER_MAX && this.#entries.size < ALL_MAX;
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

  /** Begins what waits and has room: one request of each tenant in turn. */
  #next(): void {
    const now = this.#clock.monotonic();
    for (let skipped = 0; skipped < this.#turns.size; ) {
      const [holder] = this.#turns;
      if (holder === undefined) return;
      this.#turns.delete(holder);
      const hasRoom = this.#hasRoom(holder, now);
      if (hasRoom) holder.waiting.shift()?.();
      if (holder.waiting.length > 0) this.#turns.add(holder);
      skipped = hasRoom ? 0 : skipped + 1;
    }
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
    this.#knownMs = 0;
    setImmediate(() => {
      this.#isMeasuring = false;
      const tookMs = this.#clock.monotonic() - now;
      this.#roundMs = tookMs > this.#roundMs ? tookMs : this.#roundMs * 0.9 + tookMs * 0.1;
      this.#divide(tookMs);
    });
  }

  /** A request that began in the round counts in it even if it has been answered since. */
  #divide(roundMs: number): void {
    this.#leaveLate(this.#clock.monotonic());
    const holders = [...this.#holders.values()];
    const parts = holders.reduce((sum, { atWork, begun }) => sum + Math.max(atWork, begun), 0);
    // A part of a body's cost is estimated.
    const unknownMs = Math.max(0, roundMs - this.#knownMs);
    this.#mostMs = 0;
    for (const holder of holders) {
      const used = parts === 0 ? 0 : (unknownMs * Math.max(holder.atWork, holder.begun)) / parts;
      holder.usedMs = holder.usedMs * (1 - FORGETTING) + holder.knownMs + used;
      holder.knownMs = 0;
      holder.begun = 0;
      this.#mostMs = Math.max(this.#mostMs, holder.usedMs);
    }
  }

  #sweep(now: number): void {
    if (now - this.#sweptAt < ASKING_MS) return;
    this.#sweptAt = now;
    this.#leaveLate(now);
    for (const { name, atWork, waiting, askedAt } of this.#holders.values())
      if (atWork === 0 && waiting.length === 0 && now - askedAt >= ASKING_MS) this.#holders.delete(name);
  }
}
