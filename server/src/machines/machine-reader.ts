/**
 * Reads rows of machines for all requests of this server: those that come while statements are under way share the next one.
 *
 * Always:
 * - At most STATEMENTS_MAX statements are under way that others may wait for, each with at most MACHINES_MAX machines. While there are
 *   fewer, a machine is read at once.
 * - A read begins after its call, so it shows what was committed before.
 * - What fails is read again, each machine alone, except when the database is unavailable.
 */
import type { Context } from "../context.ts";
import { DatabaseUnavailable } from "../db/database.ts";
import { forAll } from "../db/holder.ts";
import type { MachineRecord } from "./record.ts";
import { findAnyMachines } from "./store.ts";

/** A machine is read in half a millisecond, mostly the cost of a statement. */
const STATEMENTS_MAX = 2;
const MACHINES_MAX = 64;

interface Waiting {
  readonly id: string;
  readonly done: PromiseWithResolvers<MachineRecord | undefined>;
}

export class MachineReader {
  readonly #context: Context;
  #waiting: Waiting[] = [];
  #statements = 0;

  constructor(context: Context) {
    this.#context = context;
  }

  /** Any machine, also one that was deleted in the last 30 days. */
  read(id: string): Promise<MachineRecord | undefined> {
    const done = Promise.withResolvers<MachineRecord | undefined>();
    this.#waiting.push({ id, done });
    this.#begin();
    return done.promise;
  }

  #begin(): void {
    while (this.#statements < STATEMENTS_MAX && this.#waiting.length > 0) {
      const together = this.#waiting.splice(0, MACHINES_MAX);
      this.#statements += 1;
      void forAll(() => this.#readTogether(together)).finally(() => {
        this.#statements -= 1;
        this.#begin();
      });
    }
  }

  async #readTogether(together: readonly Waiting[]): Promise<void> {
    try {
      const machines = await findAnyMachines(this.#context.db, [...new Set(together.map(({ id }) => id))]);
      const byId = new Map(machines.map((machine) => [machine.id, machine]));
      for (const { id, done } of together) done.resolve(byId.get(id));
    } catch (error) {
      const isCommon = together.length === 1 || error instanceof DatabaseUnavailable;
      if (isCommon) for (const { done } of together) done.reject(error);
      else for (const one of together) void this.#readTogether([one]);
    }
  }
}
