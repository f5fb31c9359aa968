/**
 * The host names that one machine may reach: which addresses they have now, and that the machine's set has these.
 *
 * Always: an address is in the set before the machine is told it, and stays while the name has it; when the name has
 * it no more, it leaves the set HOLD_MS after the last time it was seen, and connections that exist go on. A name is
 * asked for at most every INTERVAL_MS_MIN, however often the machine asks. While nobody answers, what was known is
 * kept until it leaves the set.
 */
import type { Clock } from "@flotilla/base/clock";
import { messageOf } from "@flotilla/base/errors";
import type { Log } from "@flotilla/base/log";
import type { Upstream } from "./upstream.ts";

export interface NamePeriods {
  readonly intervalMsMin: number;
  readonly intervalMsMax: number;
  /** Beyond the time until the name is asked for again. */
  readonly holdMs: number;
}

export const NAME_PERIODS: NamePeriods = { intervalMsMin: 15_000, intervalMsMax: 300_000, holdMs: 60_000 };
/** Names below a `*.` that a machine has asked for; the others it lists itself. */
const NAMES_MAX = 512;
/** Of one name; a guest's own name server could list the world. */
const ADDRESSES_MAX = 64;
const RETRY_MS = 5_000;
const LOOK_MS = 1_000;

interface Known {
  /** null: nobody has answered yet. */
  addresses: readonly string[] | null;
  /** Monotonic milliseconds. */
  askAgainAt: number;
  asking: Promise<void> | null;
}

export interface FollowedNamesOptions {
  readonly hosts: readonly string[];
  readonly upstream: Pick<Upstream, "resolve">;
  /** Puts addresses into the machine's set, for that long. */
  readonly admit: (addresses: readonly string[], holdMs: number) => Promise<void>;
  readonly clock: Clock;
  readonly log: Log;
  readonly periods: NamePeriods;
}

export class FollowedNames {
  readonly #options: FollowedNamesOptions;
  readonly #known = new Map<string, Known>();
  readonly #stop = new AbortController();

  constructor(options: FollowedNamesOptions) {
    this.#options = options;
    for (const host of options.hosts) if (!host.startsWith("*.")) this.#enter(host);
  }

  /** Asks for every name again when its time has come, until `close`. */
  async run(): Promise<void> {
    const { clock } = this.#options;
    while (!this.#stop.signal.aborted) {
      const now = clock.monotonic();
      const due = [...this.#known].filter(([, { askAgainAt }]) => askAgainAt <= now);
      await Promise.all(due.map(([name, known]) => this.#ask(name, known)));
      const next = Math.min(...[...this.#known.values()].map(({ askAgainAt }) => askAgainAt), Number.POSITIVE_INFINITY);
      await clock.sleep(Math.max(LOOK_MS, next - clock.monotonic()), this.#stop.signal);
    }
  }

  close(): void {
    this.#stop.abort();
  }

  /** The addresses of an allowed name, all of which the machine may reach now; null when nobody knows. */
  async lookup(name: string): Promise<readonly string[] | null> {
    const known = this.#known.get(name) ?? this.#enter(name);
    if (known === undefined) return null;
    if (known.askAgainAt <= this.#options.clock.monotonic()) await this.#ask(name, known);
    return known.addresses;
  }

  /** How long an answer may be kept. */
  ttlSeconds(name: string): number {
    const { askAgainAt = 0 } = this.#known.get(name) ?? {};
    return Math.max(1, Math.floor((askAgainAt - this.#options.clock.monotonic()) / 1000));
  }

  #enter(name: string): Known | undefined {
    if (this.#known.size >= NAMES_MAX) return undefined;
    const known: Known = { addresses: null, askAgainAt: Number.NEGATIVE_INFINITY, asking: null };
    this.#known.set(name, known);
    return known;
  }

  #ask(name: string, known: Known): Promise<void> {
    known.asking ??= this.#askNow(name, known).finally(() => {
      known.asking = null;
    });
    return known.asking;
  }

  /** Never rejects. */
  async #askNow(name: string, known: Known): Promise<void> {
    const { upstream, admit, clock, log, periods } = this.#options;
    try {
      const { addresses, ttlSeconds } = await upstream.resolve(name);
      const given = addresses.slice(0, ADDRESSES_MAX);
      const intervalMs = Math.min(Math.max(ttlSeconds * 1000, periods.intervalMsMin), periods.intervalMsMax);
      if (given.length > 0) await admit(given, intervalMs + periods.holdMs);
      known.addresses = given;
      known.askAgainAt = clock.monotonic() + intervalMs;
    } catch (error) {
      if (!this.#stop.signal.aborted) log.debug({ name, reason: messageOf(error) }, "an allowed host was not resolved");
      known.askAgainAt = clock.monotonic() + Math.min(RETRY_MS, periods.intervalMsMin);
    }
  }
}
