/**
 * Who may reach a machine by its address: access by machine id or host label, in memory.
 *
 * Always:
 * - a change that this server made is visible to every request that begins after the change was acknowledged;
 * - a change that another server made is visible within milliseconds, by its notification, and within AGE_MAX_MS when the
 *   notification is late or lost: an entry is used for at most AGE_MAX_MS after its query began;
 * - a caller whose share link does not fit what is in memory is judged by a newer query (`findNewer`), so a new link
 *   works on every server within NEWER_AFTER_MS;
 * - while no notifications arrive, nothing is kept and every request waits for a query;
 * - requests for one name share a query only if it began at most AGE_MAX_MS before them, and no change was notified since;
 * - names without a machine are not kept, so that guessed names cannot fill the memory.
 */
import type { Clock } from "@flotilla/base/clock";
import type { Database } from "../db/database.ts";
import { NotifiedCache } from "../db/notified-cache.ts";
import { findAccess, type MachineAccess } from "./access-store.ts";

/** Each notification of a machine looks at all of them. */
const ENTRIES_MAX = 2_000;
/** Half of what is promised for a revocation on another server. A busy name costs two queries a second. */
const AGE_MAX_MS = 500;
/** Bounds the queries for wrong share links: one name costs no more than twenty a second. */
const NEWER_AFTER_MS = 50;

interface Entry {
  readonly access: MachineAccess;
  /** When its query began, by the monotonic clock. */
  readonly readAt: number;
}

interface Query {
  readonly startedAt: number;
  readonly found: Promise<MachineAccess | undefined>;
}

export class AccessTable {
  readonly #db: Database;
  readonly #clock: Pick<Clock, "monotonic">;
  readonly #known: NotifiedCache<Entry>;
  /** Queries under way that requests may share. */
  readonly #queries = new Map<string, Query>();
  readonly #unlisten: readonly (() => void)[];

  constructor({ db, clock }: { readonly db: Database; readonly clock: Pick<Clock, "monotonic"> }) {
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

  /** undefined: no machine has the name. Waits only where the database is asked; throws DatabaseUnavailable. */
  find(name: string): MachineAccess | Promise<MachineAccess | undefined> {
    return this.#find(name, AGE_MAX_MS);
  }

  /** As `find`, but no older than NEWER_AFTER_MS. */
  findNewer(name: string): MachineAccess | Promise<MachineAccess | undefined> {
    return this.#find(name, NEWER_AFTER_MS);
  }

  #find(name: string, ageMaxMs: number): MachineAccess | Promise<MachineAccess | undefined> {
    const now = this.#clock.monotonic();
    const known = this.#known.get(name);
    if (known !== undefined && now - known.readAt <= ageMaxMs) return known.access;
    const running = this.#queries.get(name);
    if (running !== undefined && now - running.startedAt <= ageMaxMs) return running.found;
    const query: Query = { startedAt: now, found: this.#read(name, now) };
    this.#queries.set(name, query);
    const forget = (): void => {
      if (this.#queries.get(name) === query) this.#queries.delete(name);
    };
    query.found.then(forget, forget);
    return query.found;
  }

  close(): void {
    this.#known.close();
    for (const unlisten of this.#unlisten) unlisten();
    this.#queries.clear();
  }

  async #read(name: string, readAt: number): Promise<MachineAccess | undefined> {
    const entry = await this.#known.read(name, async () => {
      const access = await findAccess(this.#db, name);
      return access === undefined ? undefined : { access, readAt };
    });
    return entry?.access;
  }
}
