/**
 * Reads rows of machines for all requests and reports of this server: those that come together share a
 * statement (db/batcher.ts).
 *
 * Always: a read begins after its call, so it shows what was committed before.
 */
import type { Context } from "../context.ts";
import { Batcher } from "../db/batcher.ts";
import type { MachineRecord } from "./record.ts";
import { findAnyMachines } from "./store.ts";

/** A machine is read in half a millisecond, mostly the cost of a statement. */
const STATEMENTS_MAX = 2;
const MACHINES_MAX = 64;

export class MachineReader {
  readonly #batcher: Batcher<string, MachineRecord>;

  constructor({ clock, db }: Pick<Context, "clock" | "db">) {
    this.#batcher = new Batcher({
      ...{ clock, statementsMax: STATEMENTS_MAX, itemsMax: MACHINES_MAX, isRead: true },
      keyOf: (id) => id,
      work: async (ids) => {
        const machines = await findAnyMachines(db, [...new Set(ids)]);
        return new Map(machines.map((machine) => [machine.id, machine]));
      },
    });
  }

  /** Any machine, also one that was deleted in the last 30 days. */
  read(id: string): Promise<MachineRecord | undefined> {
    return this.#batcher.do(id);
  }
}
