/**
 * Writes changes of machines for all requests, reports and loops of this server: those that come while
 * statements are under way share the next one, and its commit.
 *
 * Always:
 * - At most STATEMENTS_MAX statements are under way that others may wait for, each with at most CHANGES_MAX
 *   changes, unless one caller has more. While there are fewer, a change is written at the end of the turn of
 *   the event loop, with those of that turn.
 * - A statement has a machine once. Changes of one machine are written in the order in which they came.
 * - A statement has one start of a tenant whose budget is checked: what a start holds of it is written at the
 *   end of its statement.
 * - A caller fails only for what is its own: what fails is written again, each caller's changes alone, except
 *   when the database is unavailable or full. A statement that waits LOCK_WAIT_MS for a lock fails so: only
 *   the caller that needs the lock waits longer.
 *
 * A crash loses what is not written; no caller was answered.
 */
import { endOfTurn } from "@flotilla/base/clock";
import type { Context } from "../context.ts";
import { DatabaseFull, DatabaseUnavailable } from "../db/database.ts";
import { forAll } from "../db/holder.ts";
import type { Change } from "./change.ts";
import type { MachineRecord } from "./record.ts";
import { type Durability, writeChanges } from "./store.ts";

/** More would only wait for each other's flush, and leave less to share. */
const STATEMENTS_MAX = 2;
const CHANGES_MAX = 64;
/** Locks are held for a commit. */
const LOCK_WAIT_MS = 1_000;

type Written = ReadonlyMap<string, MachineRecord>;

/** What one caller writes together. */
interface Waiting {
  readonly changes: readonly Change[];
  readonly durability: Durability;
  readonly done: PromiseWithResolvers<Written>;
}

export class ChangeWriter {
  readonly #context: Context;
  #waiting: Waiting[] = [];
  #statements = 0;
  #isGathering = false;
  /** The machines of the statements under way. */
  readonly #machines = new Set<string>();

  constructor(context: Context) {
    this.#context = context;
  }

  /** The written machines by id; the others are stale, over their ceiling or deleted. */
  write(changes: readonly Change[], durability: Durability = "disk"): Promise<Written> {
    const done = Promise.withResolvers<Written>();
    this.#waiting.push({ changes, durability, done });
    this.#gather();
    return done.promise;
  }

  #gather(): void {
    if (this.#isGathering || this.#statements >= STATEMENTS_MAX) return;
    this.#isGathering = true;
    void endOfTurn().then(() => {
      this.#isGathering = false;
      this.#begin();
    });
  }

  #begin(): void {
    while (this.#statements < STATEMENTS_MAX) {
      const batch = this.#take();
      if (batch.length === 0) return;
      this.#statements += 1;
      void forAll(() => this.#writeBatch(batch)).then((failed) => {
        this.#statements -= 1;
        this.#free(batch.filter((one) => !failed.includes(one)));
        for (const one of failed) void this.#writeAlone(one);
        this.#gather();
      });
    }
  }

  /** Takes the changes that fit into one statement with the first that can be written now. */
  #take(): readonly Waiting[] {
    const batch: Waiting[] = [];
    const later: Waiting[] = [];
    const taken = new Set(this.#machines);
    const holding = new Set<string>();
    let count = 0;
    for (const one of this.#waiting) {
      const [first] = batch;
      const budgets = budgetsOf(one);
      const fits =
        first === undefined ||
        (canShare(first, one) && count + one.changes.length <= CHANGES_MAX && !budgets.some((id) => holding.has(id)));
      const isFree = one.changes.every(({ next }) => !taken.has(next.id));
      // Also of those that stay: a later change of the same machine does not overtake them.
      for (const { next } of one.changes) taken.add(next.id);
      if (!fits || !isFree) {
        later.push(one);
        continue;
      }
      batch.push(one);
      count += one.changes.length;
      for (const tenantId of budgets) holding.add(tenantId);
    }
    this.#waiting = later;
    for (const id of idsOf(batch)) this.#machines.add(id);
    return batch;
  }

  /** Returns those that must be written alone. */
  async #writeBatch(batch: readonly Waiting[]): Promise<readonly Waiting[]> {
    const changes = batch.flatMap((one) => one.changes);
    const durability = batch[0]?.durability ?? "disk";
    try {
      const written = await writeChanges(this.#context, changes, { durability, lockWaitMs: LOCK_WAIT_MS });
      for (const { changes: own, done } of batch) done.resolve(partOf(written, own));
      return [];
    } catch (error) {
      if (!(error instanceof DatabaseUnavailable || error instanceof DatabaseFull)) return batch;
      for (const { done } of batch) done.reject(error);
      return [];
    }
  }

  /** Beside the statements under way: others do not wait for its locks. */
  async #writeAlone(one: Waiting): Promise<void> {
    const { changes, durability, done } = one;
    try {
      done.resolve(await writeChanges(this.#context, changes, { durability }));
    } catch (error) {
      done.reject(error);
    }
    this.#free([one]);
    this.#gather();
  }

  #free(written: readonly Waiting[]): void {
    for (const id of idsOf(written)) this.#machines.delete(id);
  }
}

const idsOf = (batch: readonly Waiting[]): readonly string[] =>
  batch.flatMap(({ changes }) => changes.map(({ next }) => next.id));

/**
 * A start of a machine that is being moved locks two nodes, so it is written alone: no two statements lock in
 * different orders.
 */
const canShare = (first: Waiting, other: Waiting): boolean =>
  first.durability === other.durability && !startsInMove(first) && !startsInMove(other);

/** The tenants whose budgets are checked. */
const budgetsOf = ({ changes }: Waiting): readonly string[] =>
  changes.flatMap(({ start }) => (start?.isBudgeted === true ? [start.tenantId] : []));

const startsInMove = ({ changes }: Waiting): boolean =>
  changes.some(({ next, start }) => start !== undefined && next.moveId !== null);

function partOf(written: Written, changes: readonly Change[]): Written {
  const part = new Map<string, MachineRecord>();
  for (const { next } of changes) {
    const machine = written.get(next.id);
    if (machine !== undefined) part.set(next.id, machine);
  }
  return part;
}
