/**
 * Checks a machine that runs again and again, and counts the results (counter.ts).
 *
 * Always:
 * - There is at most one check at a time, and none while its owner gives it no target: the machine does not
 *   run, or no answer can be expected of it. A check that is under way then has no result.
 * - The first check is made at once. Until one succeeds the pause is a small part of the time that has
 *   passed, and then the interval, a little more or less: checks of many machines spread.
 * - A change of the health is reported at once. A failure that does not count is not reported, so a machine
 *   that takes long to start causes few reports.
 *
 * Nothing of it is on the disk. The next agent begins with nothing, and the server keeps what it knows of a
 * boot (server/src/machines/observe.ts).
 */
import type { Clock } from "@flotilla/base/clock";
import type { MachineHealth, MachineHealthCheck } from "@flotilla/contract/link/link";
import { runCheck } from "./check.ts";
import type { CheckTarget } from "./check-run.ts";
import { type CountedHealth, counted, NOTHING_CHECKED } from "./counter.ts";

/** How much shorter or longer a pause may be, as a share of the interval. */
const JITTER = 0.1;
/** Until the first success: bounds of the pause, and the share of the time that has passed. */
const QUICK = { share: 0.05, minMs: { http: 20, tcp: 20, exec: 100 } } as const;

/** A boot, and what is checked of it. */
export interface WatchedBoot extends CheckTarget {
  readonly bootId: string;
  readonly check: MachineHealthCheck;
}

export interface HealthWatchOptions {
  readonly clock: Clock;
  /** From 0 to 1. */
  readonly random: () => number;
  readonly onChange: () => void;
}

interface Watching {
  readonly boot: WatchedBoot;
  readonly ending: AbortController;
}

export class HealthWatch {
  readonly #options: HealthWatchOptions;
  #bootId: string | null = null;
  #counted: CountedHealth = NOTHING_CHECKED;
  #hasSucceeded = false;
  /** Since the boot is checked, and since a failure has counted. */
  #passedMs = 0;
  #uncountedMs = 0;
  #watching: Watching | null = null;

  constructor(options: HealthWatchOptions) {
    this.#options = options;
  }

  /** What is known of a boot. */
  healthOf(bootId: string): MachineHealth {
    return (bootId === this.#bootId ? this.#counted : NOTHING_CHECKED).health;
  }

  /** What is to be checked from now on; null: nothing. Does nothing when that is as before. */
  watch(boot: WatchedBoot | null): void {
    const before = this.#watching?.boot ?? null;
    if (before?.guest === boot?.guest && before?.bootId === boot?.bootId) return;
    this.#watching?.ending.abort();
    this.#watching = null;
    if (boot === null) return;
    if (boot.bootId !== this.#bootId) this.#begin(boot.bootId);
    const watching = { boot, ending: new AbortController() };
    this.#watching = watching;
    void this.#checkAgainAndAgain(watching);
  }

  #begin(bootId: string): void {
    this.#bootId = bootId;
    this.#counted = NOTHING_CHECKED;
    this.#hasSucceeded = false;
    this.#passedMs = 0;
    this.#uncountedMs = 0;
  }

  /** Never rejects. */
  async #checkAgainAndAgain({ boot, ending: { signal } }: Watching): Promise<void> {
    const { clock } = this.#options;
    while (!signal.aborted) {
      const startedAt = clock.monotonic();
      const result = await runCheck(boot.check, boot, clock, signal);
      // The machine was stopped, paused or moved in the middle.
      if (signal.aborted) return;
      this.#pass(clock.monotonic() - startedAt);
      this.#count(boot.check, result);
      const pauseMs = this.#pauseMs(boot.check);
      await clock.sleep(pauseMs, signal);
      this.#pass(pauseMs);
    }
  }

  #pass(ms: number): void {
    this.#passedMs += ms;
    this.#uncountedMs += ms;
  }

  #count({ intervalMs, retries }: MachineHealthCheck, result: Parameters<typeof counted>[1]): void {
    const { health: before } = this.#counted;
    const isEarly = this.#uncountedMs < intervalMs * (1 - JITTER);
    const now = this.#options.clock.now();
    const { health, failures, meaning } = counted(this.#counted, result, { isEarly, retries, now });
    this.#counted = { health, failures };
    this.#hasSucceeded ||= result.isHealthy;
    if (meaning === "counted" || meaning === "unhealthy") this.#uncountedMs = 0;
    if (health.status !== before.status || health.reason !== before.reason) this.#options.onChange();
  }

  #pauseMs({ type, intervalMs }: MachineHealthCheck): number {
    if (!this.#hasSucceeded) return Math.min(intervalMs, Math.max(QUICK.minMs[type], this.#passedMs * QUICK.share));
    return intervalMs * (1 + JITTER * (2 * this.#options.random() - 1));
  }
}
