/**
 * Machines that were read or written recently, so that a read has its answer, and a command its node, without
 * a query.
 *
 * Always, for `current`:
 * - A change through this server is visible to every request that begins after the write: this cache is
 *   notified before the caller gets its answer.
 * - A change through another server is visible within milliseconds: the notification is sent before the
 *   caller gets its answer. If the notification is lost, because that server died in between or the
 *   connection went silent without closing, the change is visible within AGE_MAX_MS.
 * - While notifications do not arrive nothing is cached. A row that was read or written while a change of the
 *   same machine, or of any node, arrived is used once and not cached.
 * - Only `lastActivityAt` may be up to AGE_MAX_MS old, for activity through another server.
 *
 * `find` returns a cached machine of any age, for callers whose next step verifies it: a write is fenced by
 * the revision, and a node refuses a command in a machine that does not run there.
 *
 * The number is bounded; machines with a large environment are not cached, and a list ends where those in it
 * become too large for memory. Every change that users can see must raise the revision and notify (store.ts).
 */
import type { Context } from "../context.ts";
import { ChangeWriter } from "./change-writer.ts";
import type { Change } from "./change.ts";
import { MachineReader } from "./machine-reader.ts";
import type { MachineName, MachineRecord } from "./record.ts";
import { type Durability, findMachines, type ListedMachine, listMachines, type ListQuery } from "./store.ts";

const MACHINES_MAX = 5_000;
/** The longest list that is cached. */
const LISTED_MAX = 2_000;
const DESCRIPTION_CHARACTERS_MAX = 8_192;
/** Max size of the machines in a list, together: it is held as rows, and then as JSON. */
const LIST_CHARACTERS_MAX = 32 * 1024 * 1024;
/** How many rows of a list are read with one statement: they may be a megabyte each. */
const READ_AT_A_TIME = 64;
/** How long a change is waited for before its machine is read again: a notification may be lost. */
const CHANGE_WAIT_MS = 30_000;
/** The same while no notifications arrive. */
const UNNOTIFIED_WAIT_MS = 1_000;
/** How long a cached machine is used without a query, if no notification arrives. */
const AGE_MAX_MS = 5_000;

interface Entry {
  readonly machine: MachineRecord;
  /** When the statement that returned it began. */
  readonly readAt: number;
}

/** Notifications about a machine during statements about it. */
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
  readonly #reader: MachineReader;
  readonly #writer: ChangeWriter;
  readonly #entries = new Map<string, Entry>();
  readonly #watched = new Map<string, Watch>();
  /** Callers that wait for the next change of a machine. */
  readonly #waiting = new Map<string, Set<() => void>>();
  readonly #unlisten: readonly (() => void)[];
  /** Counts how often machines of a node, or all, were removed. */
  #epoch = 0;

  constructor(context: Context) {
    this.#context = context;
    this.#reader = new MachineReader(context);
    this.#writer = new ChangeWriter(context);
    const onGap = () => this.#forgetAll();
    this.#unlisten = [
      context.db.listen("machines", { onPayload: (payload) => this.#onPayload(payload), onGap }),
      // A node became unreachable, returned or moved.
      context.db.listen("nodes", { onPayload: (nodeId) => this.#forgetNode(nodeId), onGap }),
    ];
  }

  /** The tenant's machine, if the cached record is current. */
  current(name: MachineName): MachineRecord | undefined {
    const entry = this.#entries.get(name.id);
    if (entry === undefined || this.#context.clock.monotonic() - entry.readAt > AGE_MAX_MS) return undefined;
    return entry.machine.tenantId === name.tenantId ? entry.machine : undefined;
  }

  /** The tenant's machine as cached, of any age. */
  find(name: MachineName): MachineRecord | undefined {
    const machine = this.#entries.get(name.id)?.machine;
    return machine?.tenantId === name.tenantId ? machine : undefined;
  }

  /** The tenant's machine as the database has it; undefined when there is none, or it was deleted. */
  async read(name: MachineName): Promise<MachineRecord | undefined> {
    const found = await this.#readOne(name.id);
    const machine = found?.tenantId === name.tenantId && found.deletedAt === null ? found : undefined;
    if (machine === undefined && this.find(name) !== undefined) this.forget(name.id);
    return machine;
  }

  /**
   * Any machine as the database has it, also one that was deleted in the last 30 days. Later reads show this
   * record or a newer one, even if another write is not announced yet.
   */
  readAny(id: string): Promise<MachineRecord | undefined> {
    return this.#readOne(id);
  }

  async #readOne(id: string): Promise<MachineRecord | undefined> {
    const [machine] = await this.keep([id], async () => {
      const found = await this.#reader.read(id);
      return found === undefined ? [] : [found];
    });
    return machine;
  }

  /**
   * Machines of a tenant as the database has them: queries ids and revisions, then the rows that are not
   * cached at that revision. A machine that is deleted in between is left out. `isCut`: the list ends before
   * its limit, because more would be too large.
   */
  async list(query: ListQuery): Promise<{ readonly machines: readonly MachineRecord[]; readonly isCut: boolean }> {
    const at = this.#context.clock.monotonic();
    const listed = await listMachines(this.#context.db, query);
    const known = new Map<string, MachineRecord>();
    const unknown: string[] = [];
    for (const one of listed) {
      const machine = this.#entries.get(one.id)?.machine;
      if (machine === undefined || !isSame(machine, one)) unknown.push(one.id);
      else {
        known.set(one.id, machine);
        this.#entries.set(one.id, { machine, readAt: at });
      }
    }
    const left = await this.#findAll(query.tenantId, unknown, known);
    return upToSize(listed, known, left);
  }

  /**
   * Adds the machines to `known`, in their order, until they are too large together. Returns those that were
   * not read. A list longer than LISTED_MAX is not cached: it would evict the machines of others.
   */
  async #findAll(
    tenantId: string,
    ids: readonly string[],
    known: Map<string, MachineRecord>,
  ): Promise<ReadonlySet<string>> {
    let characters = 0;
    for (let from = 0; from < ids.length; from += READ_AT_A_TIME) {
      if (characters >= LIST_CHARACTERS_MAX) return new Set(ids.slice(from));
      const some = ids.slice(from, from + READ_AT_A_TIME);
      const find = () => findMachines(this.#context.db, { tenantId, ids: some });
      for (const machine of ids.length > LISTED_MAX ? await find() : await this.keep(some, find)) {
        known.set(machine.id, machine);
        characters += sizeOf(machine);
      }
    }
    return new Set();
  }

  /**
   * Writes changes. Returns the written machines by id; the others are stale, over their ceiling or deleted.
   */
  async write(changes: readonly Change[], durability?: Durability): Promise<ReadonlyMap<string, MachineRecord>> {
    const ids = changes.map(({ next }) => next.id);
    let written: ReadonlyMap<string, MachineRecord> = new Map();
    await this.keep(ids, async () => {
      written = await this.#writer.write(changes, durability);
      return [...written.values()];
    });
    return written;
  }

  /** Caches the machines that a statement returns, unless they have changed in the meantime. */
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

  /** Activity in the machine was written. */
  touched(id: string, at: number): void {
    const entry = this.#entries.get(id);
    if (entry !== undefined && (entry.machine.lastActivityAt ?? 0) < at)
      this.#entries.set(id, { ...entry, machine: { ...entry.machine, lastActivityAt: at } });
    const watch = this.#watched.get(id);
    if (watch !== undefined) watch.activeAt = Math.max(watch.activeAt, at);
  }

  /**
   * Resolves when the machine has been changed by any server since this call, or may have been. Call it
   * before reading what is awaited. The signal ends the wait, also `atMostMs`.
   */
  async changed(id: string, signal: AbortSignal, atMostMs = CHANGE_WAIT_MS): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    const waiting = this.#waiting.get(id) ?? new Set();
    this.#waiting.set(id, waiting.add(resolve));
    const { clock, db } = this.#context;
    const waitMs = db.isListening() ? CHANGE_WAIT_MS : UNNOTIFIED_WAIT_MS;
    const timer = clock.timer(Math.max(0, Math.min(waitMs, atMostMs)), resolve);
    const onAbort = (): void => resolve();
    signal.addEventListener("abort", onAbort);
    if (signal.aborted) resolve();
    try {
      await promise;
    } finally {
      timer.cancel();
      signal.removeEventListener("abort", onAbort);
      waiting.delete(resolve);
      if (waiting.size === 0 && this.#waiting.get(id) === waiting) this.#waiting.delete(id);
    }
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
    for (const resolve of this.#waiting.get(id) ?? []) resolve();
  }

  /** Thousands of nodes may return together: machines of others stay cached. What is being read is not. */
  #forgetNode(nodeId: string): void {
    this.#epoch += 1;
    for (const [id, { machine }] of this.#entries) if (machine.nodeId === nodeId) this.#entries.delete(id);
    this.#wakeAll();
  }

  #forgetAll(): void {
    this.#epoch += 1;
    this.#entries.clear();
    this.#wakeAll();
  }

  #wakeAll(): void {
    for (const waiting of this.#waiting.values()) for (const resolve of waiting) resolve();
  }
}

const isSame = (machine: MachineRecord, listed: ListedMachine): boolean =>
  machine.revision === listed.revision &&
  machine.lastActivityAt === listed.lastActivityAt &&
  machine.nodeStatus === listed.nodeStatus &&
  machine.nodeAddress === listed.nodeAddress;

const isSmall = (machine: MachineRecord): boolean => sizeOf(machine) <= DESCRIPTION_CHARACTERS_MAX;

/** The size in characters of what a caller may have made large. */
function sizeOf(machine: MachineRecord): number {
  let characters = machine.secretEnv?.byteLength ?? 0;
  for (const [name, value] of Object.entries(machine.env)) characters += name.length + value.length;
  for (const argument of machine.command ?? []) characters += argument.length;
  return characters;
}

/** The listed machines before the first that was not read, or that makes them too large together. */
function upToSize(
  listed: readonly ListedMachine[],
  known: ReadonlyMap<string, MachineRecord>,
  left: ReadonlySet<string>,
): { readonly machines: readonly MachineRecord[]; readonly isCut: boolean } {
  const machines: MachineRecord[] = [];
  let characters = 0;
  for (const { id } of listed) {
    if (left.has(id) || characters >= LIST_CHARACTERS_MAX) return { machines, isCut: true };
    const machine = known.get(id);
    if (machine === undefined) continue;
    machines.push(machine);
    characters += sizeOf(machine);
  }
  return { machines, isCut: false };
}
