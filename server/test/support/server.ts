/**
 * A server for a test file: real HTTP on a free port, a fresh database, an admin key and a small client.
 *
 * Call it at the top of a file (`const server = await startTestServer()`) or inside a test, never in a
 * `before` hook: what it starts ends after the file or the test in which it was called.
 *
 * One embedded PostgreSQL serves all databases of a test file: under `npm test` the one of its place
 * (scripts/testing/postgres.ts), alone its own (cluster.ts).
 */
import { randomBytes } from "node:crypto";
import { copyFile, mkdtemp, rm } from "node:fs/promises";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { after } from "node:test";
import type { Clock } from "@flotilla/base/clock";
import type { ConnectionOptions } from "../../src/db/postgres.ts";
import { createLog } from "../../src/log.ts";
import { type RunningServer, type ServerOptions, startServer } from "../../src/main.ts";
import { Secrets } from "../../src/secrets.ts";
import { Client } from "./client.ts";
import { administer, startTestCluster, TEMPLATE } from "./cluster.ts";

const log = createLog("error");

let shared: Promise<ConnectionOptions> | undefined;
let databases = 0;

/**
 * The PostgreSQL of this test file, with a migrated template database: that of its place, or one that ends
 * after its tests.
 */
function sharedPostgres(): Promise<ConnectionOptions> {
  const address = process.env["FLOTILLA_TEST_POSTGRES"];
  shared ??= address === undefined ? ownPostgres() : lentPostgres(address);
  return shared;
}

async function lentPostgres(address: string): Promise<ConnectionOptions> {
  return JSON.parse(await text(connect(address))) as ConnectionOptions;
}

async function ownPostgres(): Promise<ConnectionOptions> {
  const started = startTestCluster(log);
  after(async () => {
    shared = undefined;
    const { directory, postgres } = await started;
    await postgres.stop();
    await rm(directory, { recursive: true, force: true });
  });
  return (await started).postgres.connection;
}

/** A new database as a connection string; migrated unless `isEmpty`. */
export async function freshDatabase(options: { readonly isEmpty?: boolean } = {}): Promise<string> {
  const connection = await sharedPostgres();
  const name = `test_${++databases}`;
  // Copying files takes a quarter of the processor time of writing each block to the log.
  const template = options.isEmpty ? "" : ` TEMPLATE ${TEMPLATE} STRATEGY file_copy`;
  await administer(connection, `CREATE DATABASE ${name}${template}`);
  const { host, user, password } = connection as { host: string; user: string; password: string };
  return `postgres://${user}:${password}@${encodeURIComponent(host)}/${name}`;
}

export interface TestServer extends RunningServer {
  /** Calls with the admin key of tenant `default`. */
  readonly client: Client;
  readonly databaseUrl: string;
  readonly dataDirectory: string;
}

export interface TestServerOptions extends Partial<Omit<ServerOptions, "clock">> {
  readonly clock?: Clock;
}

/** Data directories of servers that run. */
const inUse = new Set<string>();

/**
 * A data directory: the given one, unless a server uses it. Beside that server another one has its own
 * directory with the same keys, as on another host, so that each has its socket for nodes.
 */
async function directoryFor(given: string | undefined): Promise<string> {
  if (given !== undefined && !inUse.has(given)) return given;
  const made = await mkdtemp(join(tmpdir(), "flotilla-test-data-"));
  if (given === undefined) return made;
  // Makes the key of secrets, if there is none yet.
  new Secrets(join(given, "secrets.key"), randomBytes).seal("test", {});
  for (const name of ["admin.key", "secrets.key"]) await copyFile(join(given, name), join(made, name));
  return made;
}

/**
 * Starts a server on a fresh database; stopped after the tests of the file. Answers are checked against the
 * contract.
 */
export async function startTestServer(options: TestServerOptions = {}): Promise<TestServer> {
  const started: RunningServer[] = [];
  const dataDirectory = await directoryFor(options.dataDirectory);
  inUse.add(dataDirectory);
  // Hooks run in the order in which they were made, and the database must outlive the server.
  after(async () => {
    for (const server of started) await server.stop();
    await rm(dataDirectory, { recursive: true, force: true });
  });
  const databaseUrl = options.databaseUrl ?? (await freshDatabase());
  const server = await startServer({
    listen: { host: "127.0.0.1", port: 0 },
    plansUrl: null,
    portsPerMachine: 4,
    invoiceGraceHours: 72,
    machinesUrl: null,
    publicUrl: null,
    logLevel: "error",
    joinToken: null,
    cpuOvercommit: null,
    memoryOvercommit: null,
    allowedRegistries: null,
    registryMirrors: new Map(),
    insecureRegistries: [],
    nodeListen: null,
    nodeAddresses: null,
    trustedProxies: ["127.0.0.0/8", "::1"],
    connectionsPerAddress: null,
    stopDelaySeconds: 0,
    expectsNode: false,
    auditDays: 365,
    webhookNetworks: [],
    webhookHttp: false,
    registry: null,
    registryCredentials: null,
    checkAnswers: true,
    ...options,
    databaseUrl,
    dataDirectory,
  });
  const stop: RunningServer["stop"] = (how) => server.stop(how).finally(() => inUse.delete(dataDirectory));
  started.push({ ...server, stop });
  return {
    ...server,
    stop,
    client: new Client(server.url, server.adminKey.key, join(dataDirectory, "nodes.sock")),
    databaseUrl,
    dataDirectory,
  };
}
