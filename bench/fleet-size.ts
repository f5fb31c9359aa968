/**
 * A control plane with 1,000 nodes and 100,000 running machines of 1,000 tenants: reads of a machine, lists
 * of a tenant's hundred machines and placements while every node reports every 5 s, then a restart of the
 * server.
 *
 * The nodes are simulated by one program, which takes processor time from what is measured. Rows are written
 * directly. PostgreSQL has the durability of production. Ceilings are configured, so each placement locks its
 * node.
 *
 * Baselines of the same run: the same reads and lists with one node and its hundred machines, without
 * reports; and single inserts, which is what the database commits on this host.
 */
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { mkdir, mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { systemClock } from "@flotilla/base/clock";
import { Flotilla } from "@flotilla/sdk/client";
import { type Database, sql } from "../server/src/db/database.ts";
import { openDatabase } from "../server/src/db/postgres.ts";
import { startEmbeddedPostgres } from "../server/src/embedded-postgres/embedded.ts";
import { createLog } from "../server/src/log.ts";
import { monotonic, sleep, timed } from "./support/clock.ts";
import { MACHINES_EACH, machineId, NODES, STARTING_TENANTS, STARTS_EACH, tenantId } from "./support/fleet.ts";
import { writeFleet } from "./support/fleet-rows.ts";
import { privateMemoryMb, processorMs, processorMsOfAll } from "./support/host.ts";
import { removeOnInterrupt } from "./support/interrupt.ts";
import { type Latencies, Neighbour, type NeighbourCall } from "./support/neighbour.ts";
import { PlainConnection } from "./support/plain-http.ts";
import { end, firstLine, start, urlOf } from "./support/programs.ts";
import type { Finding, Series } from "./support/report.ts";
import { atLeast, atMost, type Summary, summarize } from "./support/statistics.ts";

/** How many of ten calls read a machine. */
const READS_EACH = 9;
const CALLS = 500;
const WARM_UP_MS = 5_000;
const PLACING_MS = 10_000;
const COMMITTING_MS = 3_000;
const CONNECTIONS = 64;
const POLL_MS = 20;
const LIMITS = { getMs: 50, listMs: 80, placements: 1_000, restartS: 2, memoryMb: 600 };
const UNLIMITED = 1_000_000_000;
/** Whose processor time is printed. */
const MEASURED = ["server", "PostgreSQL", "simulated nodes", "callers"];

type Program = ReturnType<typeof start>;

/** Reads and lists for this many seconds. */
export async function fleetSize(seconds: number): Promise<Finding> {
  const directory = await mkdtemp(path.join(tmpdir(), "flotilla-bench-"));
  const log = createLog("error");
  const clock = systemClock;
  const postgres = await startEmbeddedPostgres({ directory: path.join(directory, "pg"), clock, log, randomBytes });
  const db = openDatabase({ connection: postgres.connection, clock, log });
  const programs: Program[] = [];
  let removing: Promise<void> | null = null;
  const removeAll = async (): Promise<void> => {
    forget();
    for (const program of programs.toReversed()) await end(program);
    await db.close();
    await postgres.stop();
    await rm(directory, { recursive: true, force: true });
  };
  const remove = (): Promise<void> => (removing ??= removeAll());
  const forget = removeOnInterrupt(remove);
  try {
    await mkdir(path.join(directory, "server"));
    const environment = {
      ...{ DATABASE_URL: await urlOf(postgres), FLOTILLA_DATA_DIR: path.join(directory, "server") },
      ...{ FLOTILLA_LISTEN: "127.0.0.1:0", FLOTILLA_CPU_OVERCOMMIT: "8", FLOTILLA_MEMORY_OVERCOMMIT: "1.5" },
    };
    return await measure({ db, postgresPid: postgres.pid(), environment, programs }, seconds);
  } finally {
    await remove();
  }
}

interface Control {
  readonly db: Database;
  readonly postgresPid: number;
  /** Environment of a server. */
  readonly environment: Readonly<Record<string, string>>;
  /** What was started and must be ended. */
  readonly programs: Program[];
}

async function measure(control: Control, seconds: number): Promise<Finding> {
  const { db, programs } = control;
  const nodes = start("bench/support/simulated-nodes.ts", {}, [String(NODES)]);
  programs.push(nodes);
  const port = Number(await firstLine(nodes));
  const firstStartedAt = monotonic();
  const server = await serve(control);
  const firstMs = monotonic() - firstStartedAt;
  const admin = new Flotilla({ url: server.url, apiKey: server.adminKey, retries: 0 });
  const plan = await admin.createPlan(UNLIMITED_PLAN);
  await writeFleet(db, { planId: plan.id, port, from: 1, to: 1 });
  const { key } = await admin.createApiKey({ tenantId: tenantId(1) });
  const small = await readsOf(server.url, key, seconds);
  const commits = await commitsPerSecond(db);
  const writingMs = await timed(() => writeFleet(db, { planId: plan.id, port, from: 2, to: NODES }));

  nodes.stdin?.write(`${path.join(control.environment["FLOTILLA_DATA_DIR"] ?? "", "nodes.sock")}\n`);
  const quietMs = await usedDuring(server.pid, () => sleep(WARM_UP_MS));
  const fleet = await readsOf(server.url, key, seconds);
  const keys = await keysOf(admin);
  const programMs = (): Promise<readonly number[]> =>
    Promise.all([
      ...[processorMs(server.pid), processorMsOfAll(control.postgresPid)],
      ...[processorMs(nodes.pid ?? 0), processorMs(process.pid)],
    ]);
  const before = await programMs();
  const placed = await placeMachines(server.url, keys);
  const each = (await programMs()).map((ms, n) => ((ms - (before[n] ?? 0)) / placed.summary.n).toFixed(2));
  const memory = await privateMemoryMb(server.pid);
  const reports = await answersOf(nodes);

  await end(server.child);
  const restartMs = await timed(async () => untilAnswered((await serve(control)).url, key));
  return {
    name: "fleet-size",
    series: seriesOf(fleet, small, placed),
    reaches: [
      atMost("get, p99", fleet.get.p99Ms, LIMITS.getMs),
      atMost("list, p99", fleet.list.p99Ms, LIMITS.listMs),
      atLeast("placements per second", placed.perSecond, LIMITS.placements),
      atMost("restart of the server until it answers", restartMs / 1000, LIMITS.restartS, "s"),
      atMost("memory of the server", memory, LIMITS.memoryMb, "MB"),
    ],
    setting: { nodes: NODES, machines: NODES * MACHINES_EACH, tenants: NODES, connections: CONNECTIONS, seconds },
    notes: [
      `the database commits ${Math.round(commits)} single inserts per second: ${(placed.perSecond / commits).toFixed(2)} placements for each`,
      `${placed.summary.n} placements; other answers: ${JSON.stringify(placed.refused)}`,
      `processor time for each placement, with the heartbeats of that time: ${each.map((ms, n) => `${MEASURED[n]} ${ms} ms`).join(", ")}`,
      `${NODES / 5} heartbeats per second, each with a machine that has changed; answers: ${reports}`,
      `with nothing but heartbeats the server used ${(quietMs / WARM_UP_MS).toFixed(2)} of a processor`,
      `the first start, with an empty database, took ${(firstMs / 1000).toFixed(2)} s`,
      `the rows were written in ${(writingMs / 1000).toFixed(0)} s`,
    ],
  };
}

const UNLIMITED_PLAN = {
  ...{ name: "bench", rateRequestsPerSecond: 1_000_000, rateBurst: 1_000_000 },
  ...{ maxMachines: 10_000, maxConcurrentMachines: 10_000 },
  ...{ maxTotalCpus: UNLIMITED, maxTotalMemoryMb: UNLIMITED, maxTotalDiskGb: UNLIMITED },
};

function seriesOf(fleet: Reads, small: Reads, placed: Placed): readonly Series[] {
  return [
    { what: "GET /v1/machines/{id}", summary: fleet.get },
    { what: "the same with one node", summary: small.get, isBaseline: true },
    { what: `list of a tenant's ${MACHINES_EACH} machines`, summary: fleet.list },
    { what: "the same list with one node", summary: small.list },
    { what: `placement, ${CONNECTIONS} at the same time`, summary: placed.summary },
  ];
}

interface Reads {
  readonly get: Summary;
  readonly list: Summary;
}

/** Reads of one tenant at a fixed rate. */
async function readsOf(url: string, key: string, seconds: number): Promise<Reads> {
  const found: Latencies = new Map();
  const caller = new Neighbour(url, { authorization: `Bearer ${key}` }, readCalls());
  await caller.call(WARM_UP_MS, new Map());
  await caller.call(seconds * 1000, found);
  caller.close();
  return { get: summarize(found.get("get") ?? []), list: summarize(found.get("list") ?? []) };
}

function readCalls(): readonly NeighbourCall[] {
  const get = { method: "GET", body: "" } as const;
  return Array.from({ length: CALLS }, (_, n) =>
    n % (READS_EACH + 1) === READS_EACH
      ? { ...get, what: "list", path: "/v1/machines" }
      : { ...get, what: "get", path: `/v1/machines/${machineId(1, (n % MACHINES_EACH) + 1)}` },
  );
}

interface Placed {
  readonly summary: Summary;
  readonly perSecond: number;
  /** Answers other than 202, by status. */
  readonly refused: Readonly<Record<string, number>>;
}

/**
 * Starts machines of many tenants in turns, on kept-alive connections; each answer means that a durable write
 * chose a node.
 */
async function placeMachines(url: string, keys: readonly string[]): Promise<Placed> {
  const latencies: number[] = [];
  const refused: Record<string, number> = {};
  const connections = await Promise.all(Array.from({ length: CONNECTIONS }, () => PlainConnection.open(url)));
  const startedAt = monotonic();
  let next = 0;
  const worker = async (connection: PlainConnection): Promise<void> => {
    while (next < keys.length * STARTS_EACH && monotonic() - startedAt < PLACING_MS) {
      const [tenant, round] = [next % keys.length, Math.floor(next / keys.length)];
      next += 1;
      const path = `/v1/machines/${machineId(tenant + 2, MACHINES_EACH + 1 + round)}/start?detach=true`;
      const sentAt = monotonic();
      const status = await connection.send({
        method: "POST",
        path,
        headers: { authorization: `Bearer ${keys[tenant]}` },
      });
      if (status === 202) latencies.push(monotonic() - sentAt);
      else refused[String(status)] = (refused[String(status)] ?? 0) + 1;
    }
  };
  await Promise.all(connections.map(worker));
  const perSecond = (latencies.length * 1000) / (monotonic() - startedAt);
  for (const connection of connections) connection.close();
  return { summary: summarize(latencies), perSecond, refused };
}

/** Keys of the tenants whose machines are started. */
async function keysOf(admin: Flotilla): Promise<readonly string[]> {
  const keys: string[] = [];
  for (let tenant = 2; tenant <= STARTING_TENANTS; tenant++)
    keys.push((await admin.createApiKey({ tenantId: tenantId(tenant) })).key);
  return keys;
}

/** Durable inserts of one row, as many at the same time as placements. */
async function commitsPerSecond(db: Database): Promise<number> {
  await db.execute(sql`CREATE TABLE bench_commits (at timestamptz)`);
  const startedAt = monotonic();
  let count = 0;
  const worker = async (): Promise<void> => {
    while (monotonic() - startedAt < COMMITTING_MS) {
      await db.execute(sql`INSERT INTO bench_commits VALUES (now())`);
      count += 1;
    }
  };
  await Promise.all(Array.from({ length: CONNECTIONS }, worker));
  return (count * 1000) / (monotonic() - startedAt);
}

/** The processor time that a process uses during the work, in milliseconds. */
async function usedDuring(pid: number, work: () => Promise<unknown>): Promise<number> {
  const before = await processorMs(pid);
  await work();
  return (await processorMs(pid)) - before;
}

/** Ends the simulated nodes, which then print how their heartbeats were answered. */
async function answersOf(nodes: Program): Promise<string> {
  const lines: string[] = [];
  nodes.stdout?.on("data", (piece: Buffer) => lines.push(String(piece)));
  nodes.kill("SIGTERM");
  await once(nodes, "close");
  return lines.join("").trim();
}

async function serve({ environment, programs }: Control) {
  const child = start("server/src/main.ts", environment);
  programs.push(child);
  const { url, adminKeyFile } = JSON.parse(await firstLine(child)) as { url: string; adminKeyFile: string };
  return { url, child, pid: child.pid ?? 0, adminKey: (await readFile(adminKeyFile, "utf8")).trim() };
}

async function untilAnswered(url: string, key: string): Promise<void> {
  for (;;) {
    const headers = { authorization: `Bearer ${key}` };
    const answer = await fetch(`${url}/v1/machines/${machineId(1, 1)}`, { headers });
    await answer.text();
    if (answer.status === 200) return;
    await sleep(POLL_MS);
  }
}
