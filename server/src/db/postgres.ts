/**
 * The Database over `pg`: a pool for queries, and a separate connection that listens.
 *
 * Always:
 * - Statements are prepared once per connection, under a name that is a hash of their text.
 * - bigint arrives as number (it throws above 2^53). Statements read instants as epoch milliseconds
 *   (instant.ts). A value for a jsonb column is passed as JSON text, because pg would send an array as a
 *   PostgreSQL array.
 * - A lost or refused connection, and a database that refuses writes, are thrown as DatabaseUnavailable, a
 *   full disk as DatabaseFull; HTTP answers all with 503.
 * - What finds the disk full is repeated in the room that the reserve gives, unless it stores something new.
 * - Every connection is to the primary (primary.ts), and no statement waits longer than ANSWER_TIMEOUT_MS.
 * - Every client has an error handler: without one the process would end when a backend is terminated.
 *
 * Notifications are a hint. One is sent at once, and those of the next few milliseconds together as one
 * NOTIFY per channel, payloads separated by newlines, because a NOTIFY in each transaction costs most of the
 * write rate. This server delivers its own directly, and receives them once more from PostgreSQL.
 */
import { createHash } from "node:crypto";
import { InexactAmount } from "@flotilla/base/money";
import { type Clock, systemClock } from "@flotilla/base/clock";
import { errorOf } from "@flotilla/base/errors";
import type { Log } from "@flotilla/base/log";
import pg from "pg";
import {
  type Channel,
  type Database,
  DatabaseFull,
  DatabaseUnavailable,
  type Queryable,
  type Statement,
  sql,
} from "./database.ts";
import { ConnectionShare } from "./connection-share.ts";
import { Connections } from "./connections.ts";
import { forAll, mayUseReserve } from "./holder.ts";
import { type ConnectionOptions, hostsOf } from "./hosts.ts";
import { Listener } from "./listener.ts";
import { Primary } from "./primary.ts";

export type { ConnectionOptions } from "./hosts.ts";

export interface DatabaseOptions {
  readonly connection: ConnectionOptions;
  readonly clock: Clock;
  readonly log: Log;
  readonly connectionsMax?: number;
  /** Absent: the disk has no reserve of ours. */
  readonly makeRoom?: MakeRoom | undefined;
}

/**
 * Makes some room on the database's disk, more with each attempt, from 0 on. False: there is none, or the
 * work has tried often enough.
 */
export type MakeRoom = (attempt: number) => Promise<boolean>;

/** Most statements answer in milliseconds; one that runs this long holds a connection that others need. */
const STATEMENT_TIMEOUT_MS = 30_000;
/** After STATEMENT_TIMEOUT_MS the database answers with a failure; without one the connection is dead. */
const ANSWER_TIMEOUT_MS = STATEMENT_TIMEOUT_MS + 5_000;
const CONNECT_TIMEOUT_MS = 5_000;
/**
 * A server that has lost its host, its cable or its processor in a transaction would keep the locks of its
 * rows, and its connections, for as long as TCP waits: two hours. No transaction waits for anything but the
 * database.
 */
const IDLE_TRANSACTION_MS = 10_000;
/** Probes by the database of a server that sends nothing, in seconds. */
const KEEPALIVE = "-c tcp_keepalives_idle=15 -c tcp_keepalives_interval=5 -c tcp_keepalives_count=3";
/** Bounds of every connection with transactions. */
export const LOST_SERVER_BOUNDS = {
  idle_in_transaction_session_timeout: IDLE_TRANSACTION_MS,
  options: KEEPALIVE,
  keepAlive: true,
} satisfies pg.ClientConfig;
/** How long connections have to end in order when the database is closed. */
const CLOSE_MS = 2_000;
const TRANSACTION_TRIES_MAX = 8;
const NOTIFY_GATHER_MS = 3;
/** PostgreSQL refuses payloads of 8000 bytes and more. */
const NOTIFY_PAYLOAD_BYTES_MAX = 7_000;
/** More texts than this are sent unnamed: they can only come from generated text. */
const PREPARED_TEXTS_MAX = 2_000;

const BIGINT_OID = 20;

const parseBigint = (text: string): number => {
  const number = Number(text);
  if (!Number.isSafeInteger(number)) throw new InexactAmount(text);
  return number;
};

const types: pg.CustomTypesConfig = {
  getTypeParser: ((oid: number, format?: "text" | "binary") =>
    oid === BIGINT_OID
      ? parseBigint
      : (pg.types.getTypeParser(oid, format) as unknown)) as typeof pg.types.getTypeParser,
};

const preparedNames = new Map<string, string>();

function preparedName(text: string): string | undefined {
  let name = preparedNames.get(text);
  if (name === undefined && preparedNames.size < PREPARED_TEXTS_MAX) {
    name = createHash("sha256").update(text).digest("base64url").slice(0, 22);
    preparedNames.set(text, name);
  }
  return name;
}

const queryConfig = (statement: Statement): pg.QueryConfig => {
  const name = preparedName(statement.text);
  const config = { text: statement.text, values: statement.values as unknown[] };
  return name === undefined ? config : { ...config, name };
};

/**
 * What the system says of a host that cannot be reached or, as at the host's start, whose name cannot be
 * resolved now.
 */
const UNREACHABLE: ReadonlySet<string> = new Set([
  ...["ECONNREFUSED", "ECONNRESET", "ECONNABORTED", "EPIPE", "ETIMEDOUT"],
  ...["EHOSTUNREACH", "EHOSTDOWN", "ENETUNREACH", "ENETDOWN", "ENOTFOUND", "EAI_AGAIN"],
]);

/**
 * The connection was lost or could not be made: whether the statement took effect is not known. Or the
 * database accepts no writes (25006), because it is a standby or was made one. Or it has ended a transaction
 * that did nothing (25P03), or a statement that took longer than STATEMENT_TIMEOUT_MS (57014).
 */
export function isConnectionLoss(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  const { code, syscall } = error as { code?: unknown; syscall?: unknown };
  if (typeof code === "string") {
    if (/^(08...|57P0[1-5]|57014|53300|25006|25P03)$/.test(code) || UNREACHABLE.has(code)) return true;
    if (code === "ENOENT" && syscall === "connect") return true;
  }
  return /^(Connection terminated|timeout exceeded when trying to connect|Client has encountered a connection error|Client was closed|Query read timeout|Cannot use a pool after)/.test(
    error.message,
  );
}

/** `disk_full`, or an I/O error for the same reason. */
export const isDiskFull = (error: unknown): boolean =>
  error instanceof pg.DatabaseError &&
  (error.code === "53100" || (error.code === "58030" && /No space left|quota exceeded/i.test(error.message)));

/** An error of the pool or its connections as one of this program. */
function translated(error: unknown): unknown {
  if (isDiskFull(error)) return new DatabaseFull(error);
  return isConnectionLoss(error) ? new DatabaseUnavailable(error) : error;
}

const isRetryable = (error: unknown): boolean =>
  error instanceof pg.DatabaseError && (error.code === "40001" || error.code === "40P01");

/** On any connection. */
async function run<Row extends object>(connections: Connections, statement: Statement): Promise<pg.QueryResult<Row>> {
  const client = await connect(connections);
  let broken: Error | undefined;
  try {
    return await ask<Row>(client, statement);
  } catch (error) {
    if (isLost(error)) broken = error;
    throw error;
  } finally {
    connections.giveBack(client, broken);
  }
}

/** Whether its connection is unusable. */
const isLost = (error: unknown): error is DatabaseUnavailable =>
  error instanceof DatabaseUnavailable && !(error instanceof DatabaseFull);

/** Does work of which nothing has taken effect when it finds the disk full. */
async function withRoom<T>(makeRoom: MakeRoom | undefined, work: () => Promise<T>): Promise<T> {
  // The work itself counts for no holder once it has a connection.
  const isPermitted = mayUseReserve();
  for (let attempt = 0; ; attempt++) {
    try {
      return await work();
    } catch (error) {
      if (!(error instanceof DatabaseFull) || !isPermitted || !(await makeRoom?.(attempt))) throw error;
    }
  }
}

/**
 * On this connection, which is unusable after an error that `isLost`. With a callback, and a time limit that
 * is not pg's: where pg makes a promise or has a limit, each statement, with its answer and all that waited
 * for it, stays in memory until a full collection (docs/decisions/0018-what-one-caller-may-hold.md).
 */
function ask<Row extends object>(client: pg.PoolClient, statement: Statement): Promise<pg.QueryResult<Row>> {
  return new Promise((resolve, reject) => {
    const fail = (error: unknown): void => reject(errorOf(translated(error)));
    const late = systemClock.timer(ANSWER_TIMEOUT_MS, () => fail(new Error("Query read timeout")));
    client.query<Row>(queryConfig(statement), (error: Error | null, result) => {
      late.cancel();
      if (error === null) resolve(result);
      else fail(error);
    });
  });
}

type Run = <Row extends object>(statement: Statement) => Promise<pg.QueryResult<Row>>;

const queryable = (run: Run): Queryable => ({
  query: async <Row extends object>(statement: Statement) => (await run<Row>(statement)).rows,
  queryOne: async <Row extends object>(statement: Statement) => (await run<Row>(statement)).rows[0],
  execute: async (statement) => (await run(statement)).rowCount ?? 0,
});

/**
 * Connects lazily: a database that is down shows at the first query, as DatabaseUnavailable. Throws for a bad
 * address.
 */
export function openDatabase(options: DatabaseOptions): Database {
  const { connection, clock, log, connectionsMax = 20, makeRoom } = options;
  // A new connection writes caches.
  const onFailure = async (error: unknown): Promise<boolean> => isDiskFull(error) && (await makeRoom?.(1)) === true;
  const primary = new Primary({ hosts: hostsOf(connection), clock, log, onFailure });
  const pool = openPool(primary, connectionsMax);
  const connections = new Connections(pool, connectionsMax, clock);
  const share = new ConnectionShare(clock, connectionsMax);
  let isClosing = false;
  pool.on("error", (error) => {
    if (!isClosing) log.warn({ reason: error.message }, "an idle database connection was lost");
  });
  const listener = new Listener({
    connect: async () => {
      await primary.ready();
      return new pg.Client({ ...primary.config(), application_name: "flotilla listener", keepAlive: true });
    },
    clock,
    log,
  });
  const direct: Run = async (statement) => {
    await primary.ready();
    return await withRoom(makeRoom, () => share.run(() => run(connections, statement)));
  };
  const notifications = new Notifications(direct, { clock, log });
  return {
    ...queryable(direct),
    transaction: (work) => transaction({ connections, share, primary, clock, makeRoom }, work),
    notify(channel, payload) {
      listener.deliver(channel, payload);
      return notifications.add(channel, payload);
    },
    listen: (channel, callbacks) => listener.add(channel, callbacks),
    isListening: () => listener.isConnected,
    async close() {
      isClosing = true;
      await notifications.flushing;
      // A database that does not answer would keep connections open that end in order.
      const late = clock.timer(CLOSE_MS, () => primary.cut());
      await listener.close();
      await pool.end();
      late.cancel();
      await primary.close();
    },
  };
}

function openPool(primary: Primary, max: number): pg.Pool {
  /** Each connection is made to the host that is the primary then. */
  class PrimaryClient extends pg.Client {
    constructor(options?: pg.ClientConfig) {
      super({ ...options, ...primary.config() });
    }
  }
  const pool = new pg.Pool({
    Client: PrimaryClient,
    max,
    connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
    statement_timeout: STATEMENT_TIMEOUT_MS,
    ...LOST_SERVER_BOUNDS,
    application_name: "flotilla",
    types,
  });
  pool.on("connect", (client) => client.on("error", () => undefined));
  return pool;
}

/** What waits to be sent as NOTIFY. */
class Notifications {
  flushing: Promise<void> | null = null;
  readonly #run: Run;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #waiting = new Map<Channel, Set<string>>();
  #flushedAt = Number.NEGATIVE_INFINITY;

  constructor(run: Run, { clock, log }: Pick<DatabaseOptions, "clock" | "log">) {
    this.#run = run;
    this.#clock = clock;
    this.#log = log;
  }

  /** Resolves when it was sent, or could not be. */
  add(channel: Channel, payload: string): Promise<void> {
    const items = this.#waiting.get(channel);
    if (items === undefined) this.#waiting.set(channel, new Set([payload]));
    else items.add(payload);
    this.flushing ??= forAll(() => this.#flush()).catch((error: unknown) =>
      this.#log.warn({ error }, "a notification could not be sent"),
    );
    return this.flushing;
  }

  async #flush(): Promise<void> {
    const sinceLast = this.#clock.monotonic() - this.#flushedAt;
    // Later in this turn at the earliest: a statement that wrote many rows notifies each of them.
    if (sinceLast < NOTIFY_GATHER_MS) await this.#clock.sleep(NOTIFY_GATHER_MS - sinceLast);
    else await Promise.resolve();
    this.flushing = null;
    this.#flushedAt = this.#clock.monotonic();
    const channels: string[] = [];
    const payloads: string[] = [];
    for (const [channel, items] of this.#waiting) {
      for (const payload of joinPayloads(items)) {
        channels.push(channel);
        payloads.push(payload);
      }
    }
    this.#waiting.clear();
    await this.#run(
      sql`SELECT pg_notify(channel, payload) FROM unnest(${channels}::text[], ${payloads}::text[]) AS note(channel, payload)`,
    );
  }
}

function joinPayloads(items: ReadonlySet<string>): readonly string[] {
  const joined: string[] = [];
  let current = "";
  for (const item of items) {
    const next = current === "" ? item : `${current}\n${item}`;
    if (Buffer.byteLength(next) > NOTIFY_PAYLOAD_BYTES_MAX && current !== "") {
      joined.push(current);
      current = item;
    } else {
      current = next;
    }
  }
  if (current !== "") joined.push(current);
  return joined;
}

interface TransactionParts {
  readonly connections: Connections;
  readonly share: ConnectionShare;
  readonly primary: Primary;
  readonly clock: Clock;
  readonly makeRoom: MakeRoom | undefined;
}

async function transaction<T>(
  { connections, share, primary, clock, makeRoom }: TransactionParts,
  work: (transaction: Queryable) => Promise<T>,
): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    await primary.ready();
    try {
      return await withRoom(makeRoom, () => share.run(() => attemptOnce(connections, work)));
    } catch (error) {
      if (!isRetryable(error) || attempt >= TRANSACTION_TRIES_MAX) throw error;
    }
    await clock.sleep(attempt * attempt * 2);
  }
}

async function attemptOnce<T>(connections: Connections, work: (transaction: Queryable) => Promise<T>): Promise<T> {
  const client = await connect(connections);
  let broken: Error | undefined;
  try {
    await ask(client, { text: "BEGIN", values: [] });
    const result = await work(queryable((statement) => ask(client, statement)));
    await ask(client, { text: "COMMIT", values: [] });
    return result;
  } catch (error) {
    broken = isLost(error) ? error : await rollback(client);
    throw error;
  } finally {
    connections.giveBack(client, broken);
  }
}

async function connect(connections: Connections): Promise<pg.PoolClient> {
  try {
    return await connections.take();
  } catch (error) {
    throw translated(error);
  }
}

/** The error that makes the connection unusable, if rolling back failed too. */
async function rollback(client: pg.PoolClient): Promise<Error | undefined> {
  try {
    await ask(client, { text: "ROLLBACK", values: [] });
    return undefined;
  } catch (error) {
    return errorOf(error);
  }
}
