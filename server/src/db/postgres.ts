/**
 * The Database over `pg`: a pool for queries, and a separate connection that listens.
 *
 * Always:
 * - Statements are prepared once per connection, under a name that is a hash of their text.
 * - bigint arrives as number (it throws above 2^53). Statements read instants as epoch milliseconds (instant.ts). A value for
 *   a jsonb column is passed as JSON text, because pg would send an array as a PostgreSQL array.
 * - A lost or refused connection is thrown as DatabaseUnavailable, a full disk as DatabaseFull; HTTP answers both with 503.
 * - Every client has an error handler: without one the process would end when a backend is terminated.
 *
 * Notifications are a hint. One is sent at once, and those of the next few milliseconds together as one NOTIFY per
 * channel, payloads separated by newlines, because a NOTIFY in each transaction costs most of the write rate. This server
 * delivers its own directly, and receives them once more from PostgreSQL.
 */
import { createHash } from "node:crypto";
import type { Clock } from "@flotilla/base/clock";
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
} from "./database.ts";
import { Listener } from "./listener.ts";

export interface DatabaseOptions {
  readonly connection: ConnectionOptions;
  readonly clock: Clock;
  readonly log: Log;
  readonly connectionsMax?: number;
}

export type ConnectionOptions =
  | { readonly connectionString: string }
  | { readonly host: string; readonly user: string; readonly password: string; readonly database: string };

/** Most statements answer in milliseconds; one that runs this long holds a connection that others need. */
const STATEMENT_TIMEOUT_MS = 30_000;
const CONNECT_TIMEOUT_MS = 5_000;
const TRANSACTION_TRIES_MAX = 8;
const NOTIFY_GATHER_MS = 3;
/** PostgreSQL refuses payloads of 8000 bytes and more. */
const NOTIFY_PAYLOAD_BYTES_MAX = 7_000;
/** More texts than this are sent unnamed: they can only come from generated text. */
const PREPARED_TEXTS_MAX = 2_000;

const BIGINT_OID = 20;

const parseBigint = (text: string): number => {
  const number = Number(text);
  if (!Number.isSafeInteger(number)) throw new Error(`a bigint from the database is beyond 2^53: ${text}`);
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

/** The connection was lost or could not be made: whether the statement took effect is not known. */
export function isConnectionLoss(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  const { code, syscall } = error as { code?: unknown; syscall?: unknown };
  if (typeof code === "string") {
    if (/^(08...|57P0[1-5]|53300)$/.test(code)) return true;
    if (["ECONNREFUSED", "ECONNRESET", "EPIPE", "ETIMEDOUT", "EHOSTUNREACH", "ENETUNREACH", "ENOTFOUND"].includes(code))
      return true;
    if (code === "ENOENT" && syscall === "connect") return true;
  }
  return /^(Connection terminated|timeout exceeded when trying to connect|Client has encountered a connection error|Client was closed|Cannot use a pool after)/.test(
    error.message,
  );
}

/** `disk_full`, or an I/O error for the same reason. */
const isDiskFull = (error: unknown): boolean =>
  error instanceof pg.DatabaseError &&
  (error.code === "53100" || (error.code === "58030" && /No space left|quota exceeded/i.test(error.message)));

/** An error of the pool or its connections as one of this program. */
function translated(error: unknown): unknown {
  if (isDiskFull(error)) return new DatabaseFull(error);
  return isConnectionLoss(error) ? new DatabaseUnavailable(error) : error;
}

const isRetryable = (error: unknown): boolean =>
  error instanceof pg.DatabaseError && (error.code === "40001" || error.code === "40P01");

async function run<Row extends object>(
  target: pg.Pool | pg.PoolClient,
  statement: Statement,
): Promise<pg.QueryResult<Row>> {
  try {
    return await target.query<Row>(queryConfig(statement));
  } catch (error) {
    throw translated(error);
  }
}

const queryable = (target: pg.Pool | pg.PoolClient): Queryable => ({
  query: async <Row extends object>(statement: Statement) => (await run<Row>(target, statement)).rows,
  queryOne: async <Row extends object>(statement: Statement) => (await run<Row>(target, statement)).rows[0],
  execute: async (statement) => (await run(target, statement)).rowCount ?? 0,
});

/** Connects lazily: a database that is down shows at the first query, as DatabaseUnavailable. */
export function openDatabase({ connection, clock, log, connectionsMax = 20 }: DatabaseOptions): Database {
  const pool = new pg.Pool({
    ...connection,
    max: connectionsMax,
    connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
    statement_timeout: STATEMENT_TIMEOUT_MS,
    keepAlive: true,
    application_name: "flotilla",
    types,
  });
  let isClosing = false;
  pool.on("error", (error) => {
    if (!isClosing) log.warn({ reason: error.message }, "an idle database connection was lost");
  });
  pool.on("connect", (client) => client.on("error", () => undefined));

  const listener = new Listener({
    connect: () => new pg.Client({ ...connection, application_name: "flotilla listener", keepAlive: true }),
    clock,
    log,
  });
  const waiting = new Map<Channel, Set<string>>();
  let flushing: Promise<void> | null = null;
  let flushedAt = Number.NEGATIVE_INFINITY;
  const direct = queryable(pool);

  const flush = async (): Promise<void> => {
    const sinceLast = clock.monotonic() - flushedAt;
    // Later in this turn at the earliest: a statement that wrote many rows notifies each of them.
    if (sinceLast < NOTIFY_GATHER_MS) await clock.sleep(NOTIFY_GATHER_MS - sinceLast);
    else await Promise.resolve();
    flushing = null;
    flushedAt = clock.monotonic();
    const channels: string[] = [];
    const payloads: string[] = [];
    for (const [channel, items] of waiting) {
      for (const payload of joinPayloads(items)) {
        channels.push(channel);
        payloads.push(payload);
      }
    }
    waiting.clear();
    await pool.query(
      "SELECT pg_notify(channel, payload) FROM unnest($1::text[], $2::text[]) AS note(channel, payload)",
      [channels, payloads],
    );
  };

  return {
    ...direct,
    transaction: (work) => transaction(pool, clock, work),
    notify(channel, payload) {
      listener.deliver(channel, payload);
      const items = waiting.get(channel);
      if (items === undefined) waiting.set(channel, new Set([payload]));
      else items.add(payload);
      flushing ??= flush().catch((error: unknown) => log.warn({ error }, "a notification could not be sent"));
      return flushing;
    },
    listen: (channel, callbacks) => listener.add(channel, callbacks),
    isListening: () => listener.isConnected,
    async close() {
      isClosing = true;
      await flushing;
      await listener.close();
      await pool.end();
    },
  };
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

async function transaction<T>(pool: pg.Pool, clock: Clock, work: (transaction: Queryable) => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    const client = await connect(pool);
    let broken: Error | undefined;
    try {
      await run(client, { text: "BEGIN", values: [] });
      const result = await work(queryable(client));
      await run(client, { text: "COMMIT", values: [] });
      return result;
    } catch (error) {
      if (error instanceof DatabaseUnavailable) broken = error;
      else broken = await rollback(client);
      if (broken !== undefined || !isRetryable(error) || attempt >= TRANSACTION_TRIES_MAX) throw error;
    } finally {
      client.release(broken);
    }
    await clock.sleep(attempt * attempt * 2);
  }
}

async function connect(pool: pg.Pool): Promise<pg.PoolClient> {
  try {
    return await pool.connect();
  } catch (error) {
    throw translated(error);
  }
}

/** The error that makes the connection unusable, if rolling back failed too. */
async function rollback(client: pg.PoolClient): Promise<Error | undefined> {
  try {
    await client.query("ROLLBACK");
    return undefined;
  } catch (error) {
    return errorOf(error);
  }
}
