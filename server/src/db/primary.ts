/**
 * Watches the hosts of the database and says which one is the primary: the host that is not a standby, with
 * the newest timeline. A promotion begins a new timeline, so an old primary that still runs is recognized.
 *
 * Always:
 * - Every connection is made to the primary with `config`. When the primary changes, or does not answer any
 *   more, all are destroyed at once: their statements fail with DatabaseUnavailable.
 * - While there is no primary `ready` rejects at once, so requests fail and do not queue.
 * - A host with an older timeline than one that this process has seen is not used, even when no other host
 *   answers.
 * - Every host is asked every ASK_MS on one connection. A host is silent when it leaves a question unanswered
 *   for SILENCE_MS. A connection that was lost says nothing: the attempt to connect again decides.
 *
 * For up to ASK_MS after a promotion statements may still reach the old primary. Synchronous replication is
 * what keeps it from committing them.
 *
 * In memory only.
 */
import { Socket } from "node:net";
import { type Clock, endOfTurn } from "@flotilla/base/clock";
import { ownMessageOf } from "@flotilla/base/errors";
import type { Log } from "@flotilla/base/log";
import pg from "pg";
import { DatabaseUnavailable } from "./database.ts";
import type { DatabaseHost } from "./hosts.ts";

const ASK_MS = 1_000;
const ASK_AGAIN_MS = 100;
const SILENCE_MS = 5_000;

/** One host needs no timeline, and not every PostgreSQL-compatible service has these functions. */
const QUESTION = "SELECT pg_is_in_recovery() AS standby, 0 AS timeline";
const QUESTION_OF_SEVERAL = `SELECT pg_is_in_recovery() AS standby, CASE WHEN pg_is_in_recovery() THEN 0
  ELSE ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int END AS timeline`;
const TOO_MANY_CONNECTIONS = "53300";

/** What a host answered, or why it did not. */
export type HostState = { readonly standby: boolean; readonly timeline: number } | { readonly reason: string };

export interface PrimaryOptions {
  readonly hosts: readonly [DatabaseHost, ...DatabaseHost[]];
  readonly clock: Clock;
  readonly log: Log;
  /** Called when a host could not be asked. Whether it has removed the cause, so that it is asked again. */
  readonly onFailure?: (error: unknown) => Promise<boolean>;
}

export class Primary {
  readonly #options: PrimaryOptions;
  readonly #seen = new Map<DatabaseHost, HostState>();
  readonly #sockets = new Set<Socket>();
  readonly #stopping = new AbortController();
  /** Aborted when every host has answered once, or has failed to. */
  readonly #settled = new AbortController();
  #current: DatabaseHost | null = null;
  /** Where connections go that are made while there is no primary; nothing waits for them. */
  #latest: DatabaseHost;
  #timeline = 0;
  #watching: Promise<unknown> | null = null;

  constructor(options: PrimaryOptions) {
    this.#options = options;
    [this.#latest] = options.hosts;
  }

  /**
   * undefined: there is a primary now. Otherwise resolves when there is one, or rejects with
   * DatabaseUnavailable.
   */
  ready(): Promise<void> | undefined {
    return this.#current === null ? this.#whenKnown() : undefined;
  }

  async #whenKnown(): Promise<void> {
    this.#watching ??= Promise.all(this.#options.hosts.map((host) => this.#watch(host)));
    const { signal } = this.#settled;
    if (!signal.aborted) await new Promise((resolve) => signal.addEventListener("abort", resolve, { once: true }));
    if (this.#current === null) throw new DatabaseUnavailable(new Error(this.#whyNone()));
  }

  /** Settings of a new connection to the primary. */
  config(): pg.ClientConfig {
    return { ...this.#latest.config, stream: () => this.#newSocket() };
  }

  /** The primary, or the latest one. */
  get host(): DatabaseHost {
    return this.#latest;
  }

  /** Ends every connection. */
  cut(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  async close(): Promise<void> {
    this.#stopping.abort();
    this.#settled.abort();
    this.cut();
    await this.#watching;
  }

  #newSocket(): Socket {
    const socket = new Socket();
    this.#sockets.add(socket);
    socket.once("close", () => this.#sockets.delete(socket));
    return socket;
  }

  async #watch(host: DatabaseHost): Promise<void> {
    const { clock, onFailure } = this.#options;
    const { signal } = this.#stopping;
    while (!signal.aborted) {
      let hasAnswered = false;
      await ask(host, this.#options, {
        signal,
        onAnswer: (seen) => {
          hasAnswered = true;
          this.#note(host, seen);
        },
      }).catch(async (error: unknown) => {
        if ((await onFailure?.(error)) === true) return;
        const isRefusedForNow = (error as { code?: unknown }).code === TOO_MANY_CONNECTIONS && this.#seen.has(host);
        if ((!hasAnswered || error instanceof Silent) && !isRefusedForNow)
          this.#note(host, { reason: ownMessageOf(error) });
      });
      if (!hasAnswered) await clock.sleep(ASK_AGAIN_MS, signal);
    }
  }

  #note(host: DatabaseHost, seen: HostState): void {
    if (this.#stopping.signal.aborted) return;
    this.#seen.set(host, seen);
    if (isPrimary(seen)) this.#timeline = Math.max(this.#timeline, seen.timeline);
    if (this.#seen.size < this.#options.hosts.length) return;
    const next = choosePrimary(this.#seen, { timeline: this.#timeline, current: this.#current });
    if (next !== this.#current) this.#change(next);
    this.#settled.abort();
  }

  #change(next: DatabaseHost | null): void {
    const { log, hosts } = this.#options;
    if (next === null) log.warn({ reason: this.#whyNone() }, "there is no primary database");
    else if (this.#settled.signal.aborted || hosts.length > 1)
      log.warn({ host: next.name, timeline: this.#timeline }, "the primary database is this host from now on");
    this.#current = next;
    this.#latest = next ?? this.#latest;
    this.cut();
  }

  #whyNone(): string {
    const { length: hosts } = this.#options.hosts;
    const why = ([host, seen]: [DatabaseHost, HostState]): string => {
      if ("reason" in seen) return hosts === 1 ? seen.reason : `${host.name}: ${seen.reason}`;
      if (seen.standby) return `${host.name} is a standby`;
      return `${host.name} has timeline ${seen.timeline}, which is older than ${this.#timeline}`;
    };
    return [...this.#seen].map(why).join("; ");
  }
}

const isPrimary = (seen: HostState): seen is { readonly standby: false; readonly timeline: number } =>
  "standby" in seen && !seen.standby;

/** The primary of the newest timeline; of several the current one; null: there is none. */
export function choosePrimary(
  seen: ReadonlyMap<DatabaseHost, HostState>,
  { timeline, current }: { readonly timeline: number; readonly current: DatabaseHost | null },
): DatabaseHost | null {
  const found = [...seen].filter(([, state]) => isPrimary(state) && state.timeline >= timeline).map(([host]) => host);
  return found.find((host) => host === current) ?? found[0] ?? null;
}

/** A host accepted the connection and does not answer. */
class Silent extends Error {}

interface Asking {
  readonly signal: AbortSignal;
  readonly onAnswer: (seen: HostState) => void;
}

/** Asks on one connection until it is lost or the signal is aborted. Rejects with the reason of the end. */
async function ask(host: DatabaseHost, options: PrimaryOptions, { signal, onAnswer }: Asking): Promise<void> {
  const { clock, hosts } = options;
  const socket = new Socket();
  const client = new pg.Client({ ...host.config, application_name: "flotilla watch", stream: () => socket });
  const lost = new AbortController();
  client.on("error", () => undefined);
  client.on("end", () => lost.abort());
  const over = AbortSignal.any([signal, lost.signal]);
  try {
    await inTime(client.connect(), options, signal);
    while (!over.aborted) {
      const answering = client.query<{ standby: boolean; timeline: number }>(
        hosts.length === 1 ? QUESTION : QUESTION_OF_SEVERAL,
      );
      const { rows } = await inTime(answering, options, signal);
      if (rows[0] !== undefined) onAnswer(rows[0]);
      await clock.sleep(ASK_MS, over);
    }
  } finally {
    socket.destroy();
  }
}

/** Rejects with Silent after SILENCE_MS, counted from when this process could read the answer. */
async function inTime<T>(work: Promise<T>, { clock }: PrimaryOptions, signal: AbortSignal): Promise<T> {
  work.catch(() => undefined);
  const done = new AbortController();
  const late = clock.sleep(SILENCE_MS, AbortSignal.any([signal, done.signal])).then(async () => {
    // The answer may have arrived while this process was busy.
    if (!done.signal.aborted) await endOfTurn();
    throw new Silent(`no answer within ${SILENCE_MS / 1000} s`);
  });
  late.catch(() => undefined);
  try {
    return await Promise.race([work, late]);
  } finally {
    done.abort();
  }
}

/** The primary now. Throws DatabaseUnavailable when there is none. */
export async function findPrimary(options: PrimaryOptions): Promise<DatabaseHost> {
  const { hosts } = options;
  if (hosts.length === 1) return hosts[0];
  const primary = new Primary(options);
  try {
    await primary.ready();
    return primary.host;
  } finally {
    await primary.close();
  }
}
