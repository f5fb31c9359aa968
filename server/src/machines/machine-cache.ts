/**
 * Machines that were read or written lately, so that a command finds its node without a query.
 *
 * Always:
 * - nothing that must be right rests on it: a write made from a cached machine is fenced by its revision, and a node
 *   that is asked to run a command in a machine that does not run there says so;
 * - a change on another server drops the entry within milliseconds (channel `machines`, payload `id:revision`), and
 *   while notifications do not arrive nothing is kept;
 * - bounded by number, and machines with a large environment are not kept.
 */
import type { Database } from "../db/database.ts";
import type { MachineRecord } from "./record.ts";

const MACHINES_MAX = 5_000;
const DESCRIPTION_CHARACTERS_MAX = 8_192;

export class MachineCache {
  readonly #db: Database;
  readonly #machines = new Map<string, MachineRecord>();
  /** Reads under way, and the newest revision that was notified meanwhile. */
  readonly #reading = new Map<string, number>();
  readonly #unlisten: readonly (() => void)[];

  constructor(db: Database) {
    this.#db = db;
    const clear = () => this.#machines.clear();
    this.#unlisten = [
      db.listen("machines", { onPayload: (payload) => this.#onPayload(payload), onGap: clear }),
      // A node that went away, came back or moved: rare enough to forget everything.
      db.listen("nodes", { onPayload: clear, onGap: clear }),
    ];
  }

  /** The tenant's machine as it was last seen, if it is known and not deleted. */
  find(tenantId: string, id: string): MachineRecord | undefined {
    const machine = this.#machines.get(id);
    return machine?.tenantId === tenantId && machine.deletedAt === null ? machine : undefined;
  }

  put(machine: MachineRecord): void {
    if (!this.#db.isListening() || machine.deletedAt !== null || !isSmall(machine)) {
      this.#machines.delete(machine.id);
      return;
    }
    const known = this.#machines.get(machine.id);
    if (known !== undefined && known.revision > machine.revision) return;
    this.#machines.delete(machine.id);
    this.#machines.set(machine.id, machine);
    const [oldest] = this.#machines.keys();
    if (this.#machines.size > MACHINES_MAX && oldest !== undefined) this.#machines.delete(oldest);
  }

  /** Reads a machine and keeps it, unless it was changed while it was read. */
  async read(id: string, find: () => Promise<MachineRecord | undefined>): Promise<MachineRecord | undefined> {
    if (!this.#reading.has(id)) this.#reading.set(id, 0);
    try {
      const machine = await find();
      if (machine === undefined) this.#machines.delete(id);
      else if (machine.revision >= (this.#reading.get(id) ?? 0)) this.put(machine);
      return machine;
    } finally {
      this.#reading.delete(id);
    }
  }

  forget(id: string): void {
    this.#machines.delete(id);
  }

  close(): void {
    for (const unlisten of this.#unlisten) unlisten();
    this.#machines.clear();
  }

  #onPayload(payload: string): void {
    const [id = "", revisionText] = payload.split(":");
    const revision = Number(revisionText);
    if ((this.#machines.get(id)?.revision ?? revision) < revision) this.#machines.delete(id);
    const waiting = this.#reading.get(id);
    if (waiting !== undefined) this.#reading.set(id, Math.max(waiting, revision));
  }
}

function isSmall(machine: MachineRecord): boolean {
  let characters = 0;
  for (const [name, value] of Object.entries(machine.env)) characters += name.length + value.length;
  for (const argument of machine.command ?? []) characters += argument.length;
  return characters <= DESCRIPTION_CHARACTERS_MAX;
}
