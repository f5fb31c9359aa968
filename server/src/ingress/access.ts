/**
 * Access by addresses: who may reach the subject of a host name, in memory, by its id.
 *
 * Always:
 * - a change that this server made is visible to every request that begins after the change was acknowledged;
 * - a change that another server made is visible within milliseconds, by its notification, and within
 *   AGE_MAX_MS when the notification is late or lost: an entry is used for at most AGE_MAX_MS after its query
 *   began;
 * - a caller whose share link does not fit what is in memory is judged by a query that began after it called
 *   (`findNewer`), so a link that any server has acknowledged works on every other;
 * - while no notifications arrive, nothing is kept and every request waits for a query;
 * - requests for one subject share a query only if it began at most AGE_MAX_MS before them, and no change was
 *   notified since;
 * - ids of nothing are not kept, so that guessed ids cannot fill the memory.
 */
import type { Clock } from "@flotilla/base/clock";
import type { Database } from "../db/database.ts";
import { NotifiedCache } from "../db/notified-cache.ts";
import type { HostSubject } from "../hosts/kinds.ts";
import { type Access, findAccess } from "./access-store.ts";

/** Each notification of a machine looks at all of them. */
const ENTRIES_MAX = 2_000;
/** Half of what is promised for a revocation on another server. */
const AGE_MAX_MS = 500;
/**
 * From this age on a request causes the next query, so that those to a busy subject do not wait for it. It
 * costs such a subject three queries a second.
 */
const RENEW_MS = 350;
/**
 * Bounds the queries for wrong share links: one subject costs no more than twenty a second. Its callers wait
 * for the next one.
 */
const NEWER_AFTER_MS = 50;

interface Entry {
  readonly access: Access;
  /** When its query began, by the monotonic clock. */
  readonly readAt: number;
}

type AccessClock = Pick<Clock, "monotonic" | "sleep">;

interface Query {
  readonly startedAt: number;
  readonly found: Promise<Access | undefined>;
}

export class AccessTable {
  readonly #db: Database;
  readonly #clock: AccessClock;
  readonly #known: NotifiedCache<Entry>;
  /** Queries under way that requests may share. */
  readonly #queries = new Map<string, Query>();
  /** Calls of `findNewer` that wait until their query may begin. */
  readonly #waiting = new Map<string, Promise<Access | undefined>>();
  readonly #unlisten: readonly (() => void)[];

  constructor({ db, clock }: { readonly db: Database; readonly clock: AccessClock }) {
    this.#db = db;
    this.#clock = clock;
    const ofSubject = ({ access }: Entry, payload: string): boolean => access.id === payload.split(":", 1)[0];
    this.#known = new NotifiedCache(db, {
      entriesMax: ENTRIES_MAX,
      changes: [
        { channel: "machines", concerns: ofSubject },
        { channel: "shares", concerns: ofSubject },
        { channel: "routes", concerns: ofSubject },
        // A change of a plan names the plan, not its tenants.
        { channel: "tenants" },
      ],
    });
    const forget = (): void => this.#queries.clear();
    this.#unlisten = (["machines", "shares", "routes", "tenants"] as const).map((channel) =>
      db.listen(channel, { onPayload: forget, onGap: forget }),
    );
  }

  /** From memory; undefined: `find` would ask the database. */
  known(subject: HostSubject): Access | undefined {
    const known = this.#known.get(subject.id);
    if (known === undefined) return undefined;
    const ageMs = this.#clock.monotonic() - known.readAt;
    if (ageMs > AGE_MAX_MS) return undefined;
    // A request that needs its result gets its error.
    if (ageMs >= RENEW_MS && !this.#queries.has(subject.id)) this.#query(subject).catch(() => undefined);
    return known.access;
  }

  /**
   * undefined: the subject is gone. Waits only where the database is asked; throws DatabaseUnavailable.
   */
  find(subject: HostSubject): Access | Promise<Access | undefined> {
    const known = this.known(subject);
    if (known !== undefined) return known;
    const now = this.#clock.monotonic();
    const running = this.#queries.get(subject.id);
    if (running !== undefined && now - running.startedAt <= AGE_MAX_MS) return running.found;
    return this.#query(subject);
  }

  /** As `find`, by a query that begins after the call, and up to NEWER_AFTER_MS after the one before it. */
  findNewer(subject: HostSubject): Promise<Access | undefined> {
    const waiting = this.#waiting.get(subject.id);
    if (waiting !== undefined) return waiting;
    const before = Math.max(
      this.#known.get(subject.id)?.readAt ?? -Infinity,
      this.#queries.get(subject.id)?.startedAt ?? -Infinity,
    );
    const waitMs = before + NEWER_AFTER_MS - this.#clock.monotonic();
    if (waitMs <= 0) return this.#query(subject);
    const found = this.#clock.sleep(waitMs).then(() => {
      this.#waiting.delete(subject.id);
      return this.#query(subject);
    });
    this.#waiting.set(subject.id, found);
    return found;
  }

  close(): void {
    this.#known.close();
    for (const unlisten of this.#unlisten) unlisten();
    this.#queries.clear();
  }

  #query(subject: HostSubject): Promise<Access | undefined> {
    const startedAt = this.#clock.monotonic();
    const query: Query = { startedAt, found: this.#read(subject, startedAt) };
    this.#queries.set(subject.id, query);
    const forget = (): void => {
      if (this.#queries.get(subject.id) === query) this.#queries.delete(subject.id);
    };
    query.found.then(forget, forget);
    return query.found;
  }

  async #read(subject: HostSubject, readAt: number): Promise<Access | undefined> {
    const entry = await this.#known.read(subject.id, async () => {
      const access = await findAccess(this.#db, subject);
      return access === undefined ? undefined : { access, readAt };
    });
    return entry?.access;
  }
}
