/**
 * What `--machines` and `--spend-limit` allow, checked before anything that makes or starts machines.
 *
 * Always:
 * - Machines are those that exist and that the caller's key made, in whatever way, with the instances that
 *   its apps are asked to have (held.ts). So the count is right after a restart and with several assistants
 *   on a key. Makers of one key wait for each other.
 * - The spending is what the tenant costs since this process first saw it: other use of the tenant counts
 *   too. When it is reached, the machines that the key made are stopped, and its apps have no instances.
 * - What cannot be checked is refused.
 *
 * A killed process leaves machines that run. With a spend limit, those that it makes stop by themselves when
 * no command arrives for IDLE_SECONDS; instances of apps run on.
 */
import { type Clock, every } from "@flotilla/base/clock";
import { renderMicros } from "@flotilla/base/money";
import { type AppInfo, FlotillaError } from "@flotilla/sdk";
import { type Access, may } from "./access.ts";
import { heldBy, type Holding } from "./held.ts";

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

const READ_MS = 10_000;
const STOP_MS = 60_000;

/** What a month has cost. */
interface Reading {
  /** When the month began, in RFC 3339. */
  readonly month: string;
  readonly micros: number;
}

interface Spending {
  /** What the months before this one have cost since the beginning. */
  readonly before: number;
  readonly month: string;
  /** What this month had cost at the beginning; 0 in a later month. */
  readonly from: number;
  readonly last: number;
}

export class Ceilings {
  readonly #options: CeilingOptions;
  readonly #clock: Clock;
  readonly #turns = new Map<string, Promise<unknown>>();
  /** By tenant. */
  readonly #spending = new Map<string, Spending & { readonly readAt: number }>();
  readonly #watched = new Map<string, Access>();
  #isChecking = false;

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

  /** Stops the machines of those who have reached the limit. Does nothing while it does so already. */
  async check(): Promise<void> {
    if (this.#isChecking) return;
    this.#isChecking = true;
    for (const access of this.#watched.values()) {
      try {
        if (await this.#isReached(access)) await stopAll(access);
      } catch (error) {
        // Its key has ended. Anything else is tried again at the next check.
        if (error instanceof FlotillaError && error.status === 401) this.#watched.delete(access.caller.subject);
      }
    }
    this.#isChecking = false;
  }

  /** Throws CeilingReached when nothing may be started. */
  async starting(access: Access): Promise<void> {
    if (!(await this.#isReached(access))) return;
    throw new CeilingReached(
      `the spend limit of this server, ${renderMicros(this.#options.spendMicros ?? 0)}, is reached: nothing is started`,
    );
  }

  /**
   * Makes so many machines, or instances of an app instead of those that it has, unless they are too many.
   * `undo` takes back what is too many because another process made some at the same time.
   */
  async making<Made>(
    access: Access,
    { count, app }: { readonly count: number; readonly app?: string },
    make: () => Promise<Made>,
    undo: (made: Made) => Promise<unknown>,
  ): Promise<Made> {
    await this.starting(access);
    const { machines } = this.#options;
    const { subject } = access.caller;
    if (machines === undefined) return make();
    return this.#inTurn(subject, async () => {
      const others = heldBy(subject, await holdingOf(access), app);
      const full = (): CeilingReached =>
        new CeilingReached(
          `this server's key may have ${machines} machines at the same time, with instances of apps; ` +
            `${others === 1 ? "there is" : "there are"} ${others}${app === undefined ? "" : " besides"}: delete one first`,
        );
      if (others + count > machines) throw full();
      const made = await make();
      if (heldBy(subject, await holdingOf(access)) <= machines) return made;
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
    const readAt = this.#clock.monotonic();
    if (known !== undefined && readAt - known.readAt < FRESH_MS) return spentOf(known);
    const { periodCost, periodUsage } = await flotilla.getAccount({ timeoutMs: READ_MS });
    const reading = { month: periodUsage.from, micros: periodCost.totalMicros };
    // Another call may have read in the meantime.
    const spending = spendingAfter(this.#spending.get(caller.tenantId), reading);
    this.#spending.set(caller.tenantId, { ...spending, readAt });
    return spentOf(spending);
  }
}

/** Adds a reading. The first one is the beginning, and one of an earlier month came late. Pure. */
export function spendingAfter(known: Spending | undefined, { month, micros }: Reading): Spending {
  if (known === undefined) return { before: 0, month, from: micros, last: micros };
  if (month < known.month) return known;
  // Less than before is a correction, such as the end of a run that became known late.
  if (month === known.month) return { ...known, last: micros };
  return { before: spentOf(known), month, from: 0, last: micros };
}

/** What was spent since the beginning. Pure. */
export const spentOf = ({ before, from, last }: Spending): number => before + Math.max(0, last - from);

async function holdingOf(access: Access): Promise<Holding> {
  const machines = await access.flotilla.listMachines({ timeoutMs: READ_MS });
  return { machines, apps: await appsOf(access) };
}

/** Their instances are in no list of machines. A key that may not read apps has no tool that makes them. */
async function appsOf(access: Access): Promise<readonly AppInfo[]> {
  return may(access, "app:read") ? await access.flotilla.listApps({ timeoutMs: READ_MS }) : [];
}

async function stopAll(access: Access): Promise<void> {
  const { flotilla, caller } = access;
  const isOwn = ({ createdBy }: { readonly createdBy: string | null }): boolean => createdBy === caller.subject;
  // An app would start its instances again.
  for (const { name } of (await appsOf(access)).filter((app) => isOwn(app) && app.replicas > 0))
    await flotilla.scaleApp(name, { count: 0 }, { timeoutMs: STOP_MS }).catch(() => undefined);
  const machines = await flotilla.listMachines({ timeoutMs: READ_MS });
  for (const { id } of machines.filter((machine) => isOwn(machine) && machine.state === "started"))
    await flotilla.stopMachine(id, { timeoutMs: STOP_MS }).catch(() => undefined);
}
