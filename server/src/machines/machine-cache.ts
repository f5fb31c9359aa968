/**
 * Machines that were read or written lately, so that a read finds its answer, and a command its node, without a query.
 *
 * Always, of what `current` gives:
 * - a change made through this server shows at once, to every request that begins after it was written: it is notified
 *   to this cache by the statement's own call, before anybody is answered;
 * - a change made through another server shows within milliseconds: the notification is sent before its maker is
 *   answered. Where it was lost, because that server died in the moment between, or because the connection went silent
 *   without closing, it shows within AGE_MAX_MS;
 * - while notifications do not arrive nothing is kept; what was read or written while a change of the same machine, or
 *   of any node, came in is used once and not kept;
 * - `lastActivityAt` alone is behind by up to AGE_MAX_MS for what was done through another server.
 *
 * `find` gives what is known whatever its age, for those whose next step tells whether it still holds: a write is fenced
 * by the revision, and a node that is asked to run a command in a machine that does not run there says so.
 *
 * Bounded by number; machines with a large environment are not kept. Nothing else may change what users see of a machine
 * without growing its revision and notifying it (see store.ts).
 */
import type { Context } from "../context.ts";
import type { Change } from "./change.ts";
import type { MachineName, MachineRecord } from "./record.ts";
import {
  findAnyMachine,
  findMachine,
  findMachines,
  type ListedMachine,
  listMachines,
  type ListQuery,
  writeChanges,
} from "./store.ts";

const MACHINES_MAX = 5_000;
/** Of one list, as many as are kept. */
const LISTED_MAX = 2_000;
const DESCRIPTION_CHARACTERS_MAX = 8_192;
/** How long an answer is given without asking the database, if no notification comes. */
const AGE_MAX_MS = 5_000;

interface Entry {
  readonly machine: MachineRecord;
  /** When the statement that gave it began. */
  readonly readAt: number;
}

/** What came in about a machine while statements about it were under way. */
interface Watch {
  statements: number;
  revision: number;
  activeAt: number;
}

interface ReadMark {
  readonly epoch: number;
  readonly at: number;
}

export class MachineCache {
  readonly #context: Context;
  readonly #entries = new Map<string, Entry>();
  readonly #watched = new Map<string, Watch>();
  readonly #unlisten: readonly (() => void)[];
  /** Counts the times that everything was forgotten. */
  #epoch = 0;

  constructor(context: Context) {
    this.#context = context;
    const onGap = () => this.#forgetAll();
    this.#unlisten = [
      context.db.listen("machines", { onPayload: (payload) => this.#onPayload(payload), onGap }),
      // A node that went away, came back or moved: rare enough to forget everything.
      context.db.listen("nodes", { onPayload: onGap, onGap }),
    ];
  }

  /** The tenant's machine as it is, if that is known. */
  current(name: MachineName): MachineRecord | undefined {
    const entry = this.#entries.get(name.id);
    if (entry === undefined || this.#context.clock.monotonic() - entry.readAt > AGE_MAX_MS) return undefined;
    return entry.machine.tenantId === name.tenantId ? entry.machine : undefined;
  }

  /** The tenant's machine as it was last seen, if it is known. */
  find(name: MachineName): MachineRecord | undefined {
    const machine = this.#entries.get(name.id)?.machine;
    return machine?.tenantId === name.tenantId ? machine : undefined;
  }

  /** The tenant's machine as the database has it; undefined when there is none, or it was deleted. */
  async read(name: MachineName): Promise<MachineRecord | undefined> {
    const machine = await this.#readOne(name.id, () => findMachine(this.#context.db, name));
    if (machine === undefined && this.find(name) !== undefined) this.forget(name.id);
    return machine;
  }

  /**
   * Any machine as the database has it, also one that was deleted in the last 30 days. A caller that is answered with it finds
   * it so from then on, though another write of it may not be announced yet.
   */
  readAny(id: string): Promise<MachineRecord | undefined> {
    return this.#readOne(id, () => findAnyMachine(this.#context.db, id));
  }

  async #readOne(id: string, find: () => Promise<MachineRecord | undefined>): Promise<MachineRecord | undefined> {
    const [machine] = await this.keep([id], async () => {
      const found = await find();
      return found === undefined ? [] : [found];
    });
    return machine;
  }

  /**
   * Machines of a tenant as the database has them: it is asked which there are and at which revision, and for those alone
   * that are not known so. One that is deleted in between is left out.
   */
  async list(query: ListQuery): Promise<readonly MachineRecord[]> {
    const at = this.#context.clock.monotonic();
    const listed = await listMachines(this.#context.db, query);
    const machines = new Map<string, MachineRecord>();
    const unknown: string[] = [];
    for (const one of listed) {
      const machine = this.#entries.get(one.id)?.machine;
      if (machine === undefined || !isSame(machine, one)) unknown.push(one.id);
      else {
        machines.set(one.id, machine);
        this.#entries.set(one.id, { machine, readAt: at });
      }
    }
    for (const machine of await this.#findAll(query.tenantId, unknown)) machines.set(machine.id, machine);
    return listed.flatMap(({ id }) => machines.get(id) ?? []);
  }

  /** A list that is longer than what is kept would only drive out what others ask for. */
  async #findAll(tenantId: string, ids: readonly string[]): Promise<readonly MachineRecord[]> {
    if (ids.length === 0) return [];
    const find = () => findMachines(this.#context.db, { tenantId, ids });
    return ids.length > LISTED_MAX ? await find() : await this.keep(ids, find);
  }

  /** Writes changes. Gives what was written, by id; what is not among it is stale, over its ceiling or gone. */
  async write(changes: readonly Change[]): Promise<ReadonlyMap<string, MachineRecord>> {
    const ids = changes.map(({ next }) => next.id);
    let written: ReadonlyMap<string, MachineRecord> = new Map();
    await this.keep(ids, async () => {
      written = await writeChanges(this.#context, changes);
      return [...written.values()];
    });
    return written;
  }

  /** Keeps the machines that a statement gives, unless it is known by then that they have changed. */
  async keep(
    ids: readonly string[],
    statement: () => Promise<readonly MachineRecord[]>,
  ): Promise<readonly MachineRecord[]> {
    const mark = { epoch: this.#epoch, at: this.#context.clock.monotonic() };
    for (const id of ids) this.#watch(id);
    try {
      const machines = await statement();
      for (const machine of machines) this.#put(machine, mark);
      return machines;
    } finally {
      for (const id of ids) this.#unwatch(id);
    }
  }

  /** Something was done in the machine, and it is written that it was. */
  touched(id: string, at: number): void {
    const entry = this.#entries.get(id);
    if (entry !== undefined && (entry.machine.lastActivityAt ?? 0) < at)
      this.#entries.set(id, { ...entry, machine: { ...entry.machine, lastActivityAt: at } });
    const watch = this.#watched.get(id);
    if (watch !== undefined) watch.activeAt = Math.max(watch.activeAt, at);
  }

  forget(id: string): void {
    this.#entries.delete(id);
  }

  close(): void {
    for (const unlisten of this.#unlisten) unlisten();
    this.#forgetAll();
  }

  #put(machine: MachineRecord, begun: ReadMark): void {
    const watch = this.#watched.get(machine.id);
    const known = this.#entries.get(machine.id);
    if (known !== undefined && known.machine.revision > machine.revision) return;
    this.#entries.delete(machine.id);
    const isOvertaken = begun.epoch !== this.#epoch || (watch !== undefined && watch.revision > machine.revision);
    if (isOvertaken || !this.#context.db.isListening() || machine.deletedAt !== null || !isSmall(machine)) return;
    const isBehind = watch !== undefined && watch.activeAt > (machine.lastActivityAt ?? 0);
    const kept = isBehind ? { ...machine, lastActivityAt: watch.activeAt } : machine;
    this.#entries.set(machine.id, { machine: kept, readAt: begun.at });
    const [oldest] = this.#entries.keys();
    if (this.#entries.size > MACHINES_MAX && oldest !== undefined) this.#entries.delete(oldest);
  }

  #watch(id: string): void {
    const watch = this.#watched.get(id);
    if (watch === undefined) this.#watched.set(id, { statements: 1, revision: 0, activeAt: 0 });
    else watch.statements += 1;
  }

  #unwatch(id: string): void {
    const watch = this.#watched.get(id);
    if (watch === undefined) return;
    watch.statements -= 1;
    if (watch.statements === 0) this.#watched.delete(id);
  }

  /** `id:revision` */
  #onPayload(payload: string): void {
    const [id = "", revisionText] = payload.split(":");
    const revision = Number(revisionText);
    const known = this.#entries.get(id);
    if (known !== undefined && known.machine.revision < revision) this.#entries.delete(id);
    const watch = this.#watched.get(id);
    if (watch !== undefined) watch.revision = Math.max(watch.revision, revision);
  }

  #forgetAll(): void {
    this.#epoch += 1;
    this.#entries.clear();
  }
}

const isSame = (machine: MachineRecord, listed: ListedMachine): boolean =>
  machine.revision === listed.revision &&
  machine.lastActivityAt === listed.lastActivityAt &&
  machine.nodeStatus === listed.nodeStatus &&
  machine.nodeAddress === listed.nodeAddress;

function isSmall(machine: MachineRecord): boolean {
  let characters = 0;
  for (const [name, value] of Object.entries(machine.env)) characters += name.length + value.length;
  for (const argument of machine.command ?? []) characters += argument.length;
  return characters <= DESCRIPTION_CHARACTERS_MAX;
}
