/**
 * The database of a control plane, for the commands of its operator: an external one, the embedded one of a
 * running server, or the embedded one, which is started for the command and stopped after it.
 *
 * Always: it is connected to, and never changed here. A crash may leave an embedded PostgreSQL running, which
 * the next start adopts.
 */
import { randomBytes } from "node:crypto";
import { join } from "node:path";
import { systemClock } from "@flotilla/base/clock";
import type { Log } from "@flotilla/base/log";
import pg from "pg";
import { type ConnectionOptions, hostsOf } from "../db/hosts.ts";
import { findPrimary } from "../db/primary.ts";
import { connectToRunning, startEmbeddedPostgres } from "../embedded-postgres/embedded.ts";

export interface DatabasePlace {
  readonly dataDirectory: string;
  readonly databaseUrl: string | null;
  /**
   * Whether a server may run on the embedded database; otherwise it is started or adopted, and no server may
   * run on it.
   */
  readonly isServed: boolean;
  readonly log: Log;
  /** Aborted when the command is to end. */
  readonly signal: AbortSignal;
}

/** Runs `work` with a connection. Throws an Error for operators when there is none. */
export async function withDatabase<T>(place: DatabasePlace, work: (client: pg.Client) => Promise<T>): Promise<T> {
  const { databaseUrl, dataDirectory, log, signal } = place;
  if (databaseUrl !== null) return await connected({ connectionString: databaseUrl }, place, work);
  const directory = join(dataDirectory, "postgres");
  // After a start that was killed the cluster may lack the database, which the next start makes.
  const running = place.isServed ? await connectToRunning(directory) : undefined;
  if (running !== undefined) {
    try {
      return await connected(running.connection, place, work);
    } finally {
      running.close();
    }
  }
  const embedded = await startEmbeddedPostgres({ directory, clock: systemClock, log, randomBytes, signal });
  try {
    return await connected(embedded.connection, place, work);
  } finally {
    await embedded.stop();
  }
}

async function connected<T>(
  connection: ConnectionOptions,
  { signal, log }: DatabasePlace,
  work: (client: pg.Client) => Promise<T>,
): Promise<T> {
  const { config } = await findPrimary({ hosts: hostsOf(connection), clock: systemClock, log });
  const client = new pg.Client({ ...config, application_name: "flotilla backup", keepAlive: true });
  client.on("error", () => undefined);
  const cut = (): void => void client.end().catch(() => undefined);
  await client.connect();
  signal.addEventListener("abort", cut, { once: true });
  try {
    signal.throwIfAborted();
    return await work(client);
  } finally {
    signal.removeEventListener("abort", cut);
    await client.end().catch(() => undefined);
  }
}
