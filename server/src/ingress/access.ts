/**
 * Access to machines by their addresses: access by machine id or host label, in memory.
 *
 * Always:
 * - a change that this server made is visible to every request that begins after the change was acknowledged;
 * - a change that another server made is visible within milliseconds, by its notification, and within
 *   AGE_MAX_MS when the notification is late or lost: an entry is used for at most AGE_MAX_MS after its query
 *   began;
 * - a caller whose share link does not fit what is in memory is judged by a query that began after it called
 *   (`findNewer`), so a link that any server has acknowledged works on every other;
 * - while no notifications arrive, nothing is kept and every request waits for a query;
 * - requests for one name share a query only if it began at most AGE_MAX_MS before them, and no change was
 *   notified since;
 * - names without a machine are not kept, so that guessed names cannot fill the memory.
 */
import type { Clock } from "@flotilla/base/clock";
import type { Database } from "../db/database.ts";
import { NotifiedCache } from "../db/notified-cache.ts";
import { findAccess, type MachineAccess } from "./access-store.ts";

/** Each notification of a machine looks at all of them. */
const ENTRIES_MAX = 2_000;
/** Half of what is promised for a revocation on another server. */
const AGE_MAX_MS = 500;
/**
 * From this age on a request causes the next query, so that those to a busy name do not wait for it. It costs
 * such a name three queries a second.
 */
const RENEW_MS = 350;
/**
 * Bounds the queries for wrong share links: one name costs no more than twenty a second. Its callers wait for
 * the next one.
 */
const NEWER_AFTER_MS = 50;

interface Entry {
  readonly access: MachineAccess;
  /** When its query began, by the monotonic clock. */
  readonly readAt: number;
}

type AccessClock = Pick<Clock, "monotonic" | "sleep">;

interface Query {
  readonly startedAt: number;
  readonly found: Promise<MachineAccess | undefined>;
}

export class AccessTable {
  readonly #db: Database;
  readonly #clock: AccessClock;
  readonly #known: NotifiedCache<Entry>;
  /** Queries under way that requests may share. */
  readonly #queries = new Map<string, Query>();
  /** Calls of `findNewer` that wait until their query may begin. */
  readonly #waiting = new Map<string, Promise<MachineAccess | undefined>>();
  readonly #unlisten: readonly (() => void)[];

  constructor({ db, clock }: { readonly db: Database; readonly clock: AccessClock }) {
    this.#db = db;
    this.#clock = clock;
    const ofMachine = ({ access }: Entry, payload: string): boolean => access.id === payload.split(":", 1)[0];
    this.#known = new NotifiedCache(db, {
      entriesMax: ENTRIES_MAX,
      changes: [
        { channel: "machines", concerns: ofMachine },
        { channel: "shares", concerns: ofMachine },
        // A change of a plan names the plan, not its tenants.
        { channel: "tenants" },
      ],
    });
    const forget = (): void => this.#queries.clear();
    this.#unlisten = (["machines", "shares", "tenants"] as const).map((channel) =>
      db.listen(channel, { onPayload: forget, onGap: forget }),
    );
  }

  /** From memory; undefined: `find` would ask the database. */
  known(name: string): MachineAccess | undefined {
    const known = this.#known.get(name);
    if (known === undefined) return undefined;
    const ageMs = this.#clock.monotonic() - known.readAt;
    if (ageMs > AGE_MAX_MS) return undefined;
    // A request that needs its result gets its error.
    if (ageMs >= RENEW_MS && !this.#queries.has(name)) this.#query(name).catch(() => undefined);
    return known.access;
  }

  /**
   * undefined: no machine has the name. Waits only where the database is asked; throws DatabaseUnavailable.
   */
  find(name: string): MachineAccess | Promise<MachineAccess | undefined> {
    const known = this.known(name);
    if (known !== undefined) return known;
    const now = this.#clock.monotonic();
    const running = this.#queries.get(name);
    if (running !== undefined && now - running.startedAt <= AGE_MAX_MS) return running.found;
    return this.#query(name);
  }

  /** As `find`, by a query that begins after the call, and up to NEWER_AFTER_MS after the one before it. */
  findNewer(name: string): Promise<MachineAccess | undefined> {
    const waiting = this.#waiting.get(name);
    if (waiting !== undefined) return waiting;
    const before = Math.max(
      this.#known.get(name)?.readAt ?? -Infinity,
      this.#queries.get(name)?.startedAt ?? -Infinity,
    );
    const waitMs = before + NEWER_AFTER_MS - this.#clock.monotonic();
    if (waitMs <= 0) return this.#query(name);
    const found = this.#clock.sleep(waitMs).then(() => {
      this.#waiting.delete(name);
      return this.#query(name);
    });
    this.#waiting.set(name, found);
    return found;
  }

  close(): void {
    this.#known.close();
    for (const unlisten of this.#unlisten) unlisten();
    this.#queries.clear();
  }

  #query(name: string): Promise<MachineAccess | undefined> {
    const startedAt = this.#clock.monotonic();
    const query: Query = { startedAt, found: this.#read(name, startedAt) };
    this.#queries.set(name, query);
    const forget = (): void => {
      if (this.#queries.get(name) === query) this.#queries.delete(name);
    };
    query.found.then(forget, forget);
    return query.found;
  }

  async #read(name: string, readAt: number): Promise<MachineAccess | undefined> {
    const entry = await this.#known.read(name, async () => {
      const access = await findAccess(this.#db, name);
      return access === undefined ? undefined : { access, readAt };
    });
    return entry?.access;
  }
}
