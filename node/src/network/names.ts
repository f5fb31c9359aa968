/**
 * Tracks the host names that one machine may reach: resolves them and keeps their addresses in the machine's
 * set.
 *
 * Always:
 * - an address is in the set before the machine learns it, and stays while the name resolves to it;
 * - an address that the name no longer resolves to leaves the set `holdMs` after it was last seen;
 *   established connections continue;
 * - a name is resolved at most every `intervalMsMin`, however often the machine queries it;
 * - while no name server answers, the known addresses are kept until they leave the set;
 * - at most NAMES_MAX names are tracked. A new one below a `*.` takes the place of the one that the machine
 *   has not queried for the longest time, if that is UNUSED_MS. So a machine that queries any number of names
 *   has few of them resolved.
 */
import type { Clock } from "@flotilla/base/clock";
import { messageOf } from "@flotilla/base/errors";
import type { Log } from "@flotilla/base/log";
import type { Upstream } from "./upstream.ts";

export interface NamePeriods {
  readonly intervalMsMin: number;
  readonly intervalMsMax: number;
  /** How long an address stays in the set after the next resolution is due. */
  readonly holdMs: number;
}

export const NAME_PERIODS: NamePeriods = { intervalMsMin: 15_000, intervalMsMax: 300_000, holdMs: 60_000 };
const NAMES_MAX = 512;
const UNUSED_MS = 5 * 60_000;
/** Max addresses of one name; a guest's own name server could return any number. */
const ADDRESSES_MAX = 64;
const RETRY_MS = 5_000;
const POLL_MS_MIN = 1_000;

interface TrackedName {
  /** null: not resolved yet. */
  addresses: readonly string[] | null;
  /** Monotonic milliseconds. */
  refreshAt: number;
  refreshing: Promise<void> | null;
  /** By the machine, as the others; null: it lists the name, so that it is never forgotten. */
  queriedAt: number | null;
}

export interface TrackedNamesOptions {
  readonly hosts: readonly string[];
  readonly upstream: Pick<Upstream, "resolve">;
  /** Adds addresses to the machine's set for `holdMs`. */
  readonly allow: (addresses: readonly string[], holdMs: number) => Promise<void>;
  readonly clock: Clock;
  readonly log: Log;
  readonly periods: NamePeriods;
}

export class TrackedNames {
  readonly #options: TrackedNamesOptions;
  readonly #known = new Map<string, TrackedName>();
  readonly #stop = new AbortController();

  constructor(options: TrackedNamesOptions) {
    this.#options = options;
    for (const host of options.hosts) if (!host.startsWith("*.")) this.#track(host, null);
  }

  /** Resolves each name again when it is due, until `close`. */
  async run(): Promise<void> {
    const { clock } = this.#options;
    while (!this.#stop.signal.aborted) {
      const now = clock.monotonic();
      const due = [...this.#known].filter(([, { refreshAt }]) => refreshAt <= now);
      await Promise.all(due.map(([name, known]) => this.#refresh(name, known)));
      const next = Math.min(...[...this.#known.values()].map(({ refreshAt }) => refreshAt), Number.POSITIVE_INFINITY);
      await clock.sleep(Math.max(POLL_MS_MIN, next - clock.monotonic()), this.#stop.signal);
    }
  }

  close(): void {
    this.#stop.abort();
  }

  /** The addresses of an allowed name, all of which the machine may reach now; null if they are unknown. */
  async lookup(name: string): Promise<readonly string[] | null> {
    const now = this.#options.clock.monotonic();
    const known = this.#known.get(name) ?? this.#track(name, now);
    if (known === undefined) return null;
    if (known.queriedAt !== null) known.queriedAt = now;
    if (known.refreshAt <= now) await this.#refresh(name, known);
    return known.addresses;
  }

  /** How long the machine may cache an answer. */
  ttlSeconds(name: string): number {
    const { refreshAt = 0 } = this.#known.get(name) ?? {};
    return Math.max(1, Math.floor((refreshAt - this.#options.clock.monotonic()) / 1000));
  }

  #track(name: string, queriedAt: number | null): TrackedName | undefined {
    if (queriedAt !== null && !this.#makeRoom(queriedAt)) return undefined;
    const known: TrackedName = { addresses: null, refreshAt: Number.NEGATIVE_INFINITY, refreshing: null, queriedAt };
    this.#known.set(name, known);
    return known;
  }

  /**
   * Whether another name can be tracked now. Its addresses leave the set as those of a name that has lost
   * them.
   */
  #makeRoom(now: number): boolean {
    if (this.#known.size < NAMES_MAX) return true;
    let oldest: { readonly name: string; readonly queriedAt: number } | null = null;
    for (const [name, { queriedAt }] of this.#known)
      if (queriedAt !== null && queriedAt < (oldest?.queriedAt ?? now)) oldest = { name, queriedAt };
    if (oldest === null || now - oldest.queriedAt < UNUSED_MS) return false;
    return this.#known.delete(oldest.name);
  }

  #refresh(name: string, known: TrackedName): Promise<void> {
    known.refreshing ??= this.#resolve(name, known).finally(() => {
      known.refreshing = null;
    });
    return known.refreshing;
  }

  /** Never rejects. */
  async #resolve(name: string, known: TrackedName): Promise<void> {
    const { upstream, allow, clock, log, periods } = this.#options;
    try {
      const { addresses, ttlSeconds } = await upstream.resolve(name);
      const used = addresses.slice(0, ADDRESSES_MAX);
      const intervalMs = Math.min(Math.max(ttlSeconds * 1000, periods.intervalMsMin), periods.intervalMsMax);
      if (used.length > 0) await allow(used, intervalMs + periods.holdMs);
      known.addresses = used;
      known.refreshAt = clock.monotonic() + intervalMs;
    } catch (error) {
      if (!this.#stop.signal.aborted)
        log.debug({ name, reason: messageOf(error) }, "an allowed host could not be resolved");
      known.refreshAt = clock.monotonic() + Math.min(RETRY_MS, periods.intervalMsMin);
    }
  }
}
