/**
 * What `--machines` and `--spend-limit` allow, checked before anything that makes or starts machines.
 *
 * Always:
 * - Machines are those that exist and that the caller's key made, in whatever way, so the count is right
 *   after a restart and with several assistants on a key. Makers of one key wait for each other.
 * - The spending is what the tenant costs since this process first saw it: other use of the tenant counts
 *   too. When it is reached, the machines that the key made are stopped.
 * - What cannot be checked is refused.
 *
 * A killed process leaves machines that run. With a spend limit, those that it makes stop by themselves when
 * no command arrives for IDLE_SECONDS.
 */
import { type Clock, every } from "@flotilla/base/clock";
import { renderMicros } from "@flotilla/base/money";
import { FlotillaError, type MachineInfo } from "@flotilla/sdk";
import type { Access } from "./access.ts";

export interface CeilingOptions {
  readonly machines?: number | undefined;
  readonly spendMicros?: number | undefined;
}

/** A ceiling of this program, not of the plan. */
export class CeilingReached extends Error {}

/** Machines made under a spend limit stop after this time without a command. */
export const IDLE_SECONDS = 600;
const CHECK_MS = 15_000;
/** What was read is used for this long. */
const FRESH_MS = 5_000;
const KEYS_MAX = 1_000;

interface Spending {
  /** What the months before this one have cost since the beginning. */
  before: number;
  /** What this month had cost at the beginning; 0 in a later month. */
  from: number;
  last: number;
  readAt: number;
}

export class Ceilings {
  readonly #options: CeilingOptions;
  readonly #clock: Clock;
  readonly #turns = new Map<string, Promise<unknown>>();
  readonly #spending = new Map<string, Spending>();
  readonly #watched = new Map<string, Access>();

  constructor(options: CeilingOptions, clock: Clock) {
    this.#options = options;
    this.#clock = clock;
  }

  get limitsSpending(): boolean {
    return this.#options.spendMicros !== undefined;
  }

  /** From now on what its tenant costs counts, and its machines are stopped when that is too much. */
  async watch(access: Access): Promise<void> {
    if (!this.limitsSpending || this.#watched.has(access.caller.subject)) return;
    await this.#spent(access);
    if (this.#watched.size >= KEYS_MAX) throw new CeilingReached("too many keys use this server at the same time");
    this.#watched.set(access.caller.subject, access);
  }

  /** Checks the spending from time to time until the returned function is called. */
  start(): () => void {
    if (!this.limitsSpending) return () => {};
    return every(this.#clock, CHECK_MS, () => void this.check());
  }

  /** Stops the machines of those who have reached the limit. */
  async check(): Promise<void> {
    for (const access of this.#watched.values()) {
      try {
        if (await this.#isReached(access)) await stopAll(access);
      } catch (error) {
        // Its key has ended. Anything else is tried again at the next check.
        if (error instanceof FlotillaError && error.status === 401) this.#watched.delete(access.caller.subject);
      }
    }
  }

  /** Throws CeilingReached when nothing may be started. */
  async starting(access: Access): Promise<void> {
    if (!(await this.#isReached(access))) return;
    throw new CeilingReached(
      `the spend limit of this server, ${renderMicros(this.#options.spendMicros ?? 0)}, is reached: nothing is started`,
    );
  }

  /**
   * Makes so many machines, unless they are too many. `undo` takes back one that is too many, because another
   * process made one at the same time.
   */
  async making<Made>(
    access: Access,
    { count, besides }: { readonly count: number; readonly besides?: (machine: MachineInfo) => boolean },
    make: () => Promise<Made>,
    undo?: (made: Made) => Promise<unknown>,
  ): Promise<Made> {
    await this.starting(access);
    const { machines } = this.#options;
    if (machines === undefined) return make();
    return this.#inTurn(access.caller.subject, async () => {
      const others = (await machinesOf(access)).filter((machine) => besides?.(machine) !== true);
      const full = (): CeilingReached =>
        new CeilingReached(
          `this server's key may have made ${machines} machines at the same time, and there are ${others.length}: delete one first`,
        );
      if (others.length + count > machines) throw full();
      const made = await make();
      if (undo === undefined || (await machinesOf(access)).length <= machines) return made;
      await undo(made);
      throw full();
    });
  }

  async #inTurn<T>(key: string, work: () => Promise<T>): Promise<T> {
    const mine = (this.#turns.get(key) ?? Promise.resolve()).then(work);
    const settled = mine.catch(() => undefined);
    this.#turns.set(key, settled);
    try {
      return await mine;
    } finally {
      if (this.#turns.get(key) === settled) this.#turns.delete(key);
    }
  }

  async #isReached(access: Access): Promise<boolean> {
    const { spendMicros } = this.#options;
    return spendMicros !== undefined && (await this.#spent(access)) >= spendMicros;
  }

  async #spent({ flotilla, caller }: Access): Promise<number> {
    const known = this.#spending.get(caller.tenantId);
    const at = this.#clock.monotonic();
    if (known !== undefined && at - known.readAt < FRESH_MS) return known.before + known.last - known.from;
    const { totalMicros } = (await flotilla.getAccount()).periodCost;
    const spending = spendingAfter(known, totalMicros, at);
    this.#spending.set(caller.tenantId, spending);
    return spending.before + spending.last - spending.from;
  }
}

/** Adds a reading of the month's cost. One that is less than before is of a new month. Pure. */
export function spendingAfter(known: Spending | undefined, monthMicros: number, readAt: number): Spending {
  if (known === undefined) return { before: 0, from: monthMicros, last: monthMicros, readAt };
  if (monthMicros >= known.last) return { ...known, last: monthMicros, readAt };
  return { before: known.before + known.last - known.from, from: 0, last: monthMicros, readAt };
}

async function machinesOf({ flotilla, caller }: Access): Promise<readonly MachineInfo[]> {
  return (await flotilla.listMachines()).filter((machine) => machine.createdBy === caller.subject);
}

async function stopAll(access: Access): Promise<void> {
  const running = (await machinesOf(access)).filter((machine) => machine.state === "started");
  for (const machine of running) await access.flotilla.stopMachine(machine.id).catch(() => undefined);
}
