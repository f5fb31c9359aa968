/**
 * Loss of nodes in a fleet of 1,000, with 1,000 machines that wait in pools: how long after a cut everything
 * that was on the silent nodes waits elsewhere, for one node and for 5 %; and that of 60 % nothing is
 * replaced.
 *
 * The nodes are simulated by one program (support/simulated-nodes.ts), which stops their heartbeats and
 * refuses calls to them. Nothing of the server is hurried: the times are those of a fleet.
 */
import { createHash, randomBytes } from "node:crypto";
import { mkdir, mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { systemClock } from "@flotilla/base/clock";
import { Flotilla } from "@flotilla/sdk/client";
import { type Database, sql } from "../server/src/db/database.ts";
import { openDatabase } from "../server/src/db/postgres.ts";
import { startEmbeddedPostgres } from "../server/src/embedded-postgres/embedded.ts";
import { createLog } from "../server/src/log.ts";
import { monotonic, sleep } from "./support/clock.ts";
import { credentialOf, hostOf, NODES, nodeId } from "./support/fleet.ts";
import { removeOnInterrupt } from "./support/interrupt.ts";
import { end, firstLine, start, urlOf } from "./support/programs.ts";
import type { Finding } from "./support/report.ts";
import { atMost } from "./support/statistics.ts";

const POOLS = 10;
const MACHINES_EACH = 100;
const FEW = NODES / 20;
const MANY = (NODES * 6) / 10;
/** Detection takes 30 s, and what is not begun 10 s later is not replaced. */
const HELD_MS = 45_000;
const FILL_MS_MAX = 300_000;
const REPLACE_MS_MAX = 90_000;
const POLL_MS = 100;
const LIMITS = { fewS: 35, oneS: 40 };

type Program = ReturnType<typeof start>;

export async function nodeLoss(): Promise<Finding> {
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
    const nodes = start("bench/support/simulated-nodes.ts", {}, [String(NODES), "idle"]);
    programs.push(nodes);
    const port = Number(await firstLine(nodes));
    const server = start("server/src/main.ts", {
      ...{ DATABASE_URL: await urlOf(postgres), FLOTILLA_DATA_DIR: path.join(directory, "server") },
      FLOTILLA_LISTEN: "127.0.0.1:0",
    });
    programs.push(server);
    const { url, adminKeyFile } = JSON.parse(await firstLine(server)) as { url: string; adminKeyFile: string };
    await writeNodes(db, port);
    nodes.stdin?.write(`${path.join(directory, "server", "nodes.sock")}\n`);
    const client = new Flotilla({ url, apiKey: (await readFile(adminKeyFile, "utf8")).trim(), retries: 0 });
    return await measure(db, client, (count) => void nodes.stdin?.write(`${count}\n`));
  } finally {
    await remove();
  }
}

async function measure(db: Database, client: Flotilla, cutOff: (nodes: number) => void): Promise<Finding> {
  const filledMs = await fill(db, client);
  const one = await lose(db, cutOff, 1);
  const few = await lose(db, cutOff, FEW);
  await reporting(db);
  const before = await members(db);
  cutOff(MANY);
  await sleep(HELD_MS);
  const after = await members(db);
  const replaced = [...before.keys()].filter((id) => !after.has(id)).length;
  const held = await db.queryOne<{ count: number }>(
    sql`SELECT count(*)::int AS count FROM nodes WHERE held_at IS NOT NULL`,
  );
  cutOff(0);
  return {
    name: "node-loss",
    series: [],
    reaches: [
      atMost(`one node cut, until its ${one.lost} machines wait elsewhere`, one.ms / 1000, LIMITS.oneS, "s"),
      atMost(`5 % cut, until their ${few.lost} machines wait elsewhere`, few.ms / 1000, LIMITS.fewS, "s"),
      atMost(`60 % cut, machines replaced within ${HELD_MS / 1000} s`, replaced, 0),
    ],
    setting: { nodes: NODES, "machines that wait": POOLS * MACHINES_EACH, pools: POOLS },
    notes: [
      `of 60 % that were cut ${held?.count ?? 0} nodes were held`,
      `the pools were filled in ${(filledMs / 1000).toFixed(0)} s`,
      "the silence of a node is noticed 30 s after its last heartbeat, which came up to 5 s before the cut",
    ],
  };
}

/**
 * Cuts the first nodes off, and waits until as many machines as before wait on the others. They are back
 * afterwards.
 */
async function lose(
  db: Database,
  cutOff: (nodes: number) => void,
  count: number,
): Promise<{ readonly ms: number; readonly lost: number }> {
  await reporting(db);
  const isCut = (node: string): boolean => node <= nodeId(count);
  const before = await members(db);
  const lost = [...before.values()].filter(isCut).length;
  cutOff(count);
  const cutAt = monotonic();
  for (;;) {
    await sleep(POLL_MS);
    const ms = monotonic() - cutAt;
    const now = await members(db);
    if (now.size === before.size && ![...now.values()].some(isCut)) {
      cutOff(0);
      return { ms, lost };
    }
    if (ms > REPLACE_MS_MAX)
      throw new Error(`of ${lost} machines some do not wait elsewhere after ${REPLACE_MS_MAX / 1000} s`);
  }
}

/** Resolves when every node reports. */
async function reporting(db: Database): Promise<void> {
  for (;;) {
    const silent = await db.query(
      sql`SELECT 1 AS one FROM nodes WHERE status <> 'ready' OR last_heartbeat_at < now() - interval '7 seconds' LIMIT 1`,
    );
    if (silent.length === 0) return;
    await sleep(POLL_MS);
  }
}

/** The machines that wait and can be claimed, with their nodes. */
const members = async (db: Database): Promise<ReadonlyMap<string, string>> =>
  new Map(
    (
      await db.query<{ id: string; node: string }>(sql`
        SELECT m.id, m.node_id AS node FROM machine_owners w JOIN machines m ON m.id = w.machine_id
        WHERE w.discarded_at IS NULL AND m.deleted_at IS NULL AND m.observed_state = 'running'`)
    ).map(({ id, node }) => [id, node]),
  );

async function fill(db: Database, client: Flotilla): Promise<number> {
  const startedAt = monotonic();
  const plan = await client.createPlan({
    ...{ name: "bench", maxMachines: 10_000, maxConcurrentMachines: 10_000 },
    ...{ maxTotalCpus: 1_000_000, maxTotalMemoryMb: 1_000_000_000, maxTotalDiskGb: 1_000_000_000 },
  });
  const tenant = await client.createTenant({ name: "bench", planId: plan.id });
  for (let pool = 0; pool < POOLS; pool++)
    await client.createPool({
      tenantId: tenant.id,
      image: "local/busybox",
      targetSize: MACHINES_EACH,
      cpus: 1,
      memoryMb: 512,
    });
  while ((await members(db)).size < POOLS * MACHINES_EACH) {
    if (monotonic() - startedAt > FILL_MS_MAX) throw new Error(`the pools are not full after ${FILL_MS_MAX / 1000} s`);
    await sleep(POLL_MS);
  }
  return monotonic() - startedAt;
}

/**
 * As if they had registered. Their first report is in the future, so that none is found silent before it
 * reports.
 */
async function writeNodes(db: Database, port: number): Promise<void> {
  const nodes = Array.from({ length: NODES }, (_, index) => index + 1).map((n) => ({
    ...{ id: nodeId(n), address: `http://${hostOf(n)}:${port}` },
    hash: createHash("sha256").update(credentialOf(n)).digest("hex"),
  }));
  await db.execute(sql`
    INSERT INTO nodes (id, address, status, credential_hash, registered_at, last_heartbeat_at, total_cpus, total_memory_mb,
      available_memory_mb, total_disk_gb, available_disk_gb, images_boot_id, images_sequence, labels)
    SELECT id, address, 'ready', decode(hash, 'hex'), now(), now() + interval '10 seconds', 64, 262144, 200000, 2000, 1500, 'agent', 1,
      '{"arch": "amd64"}' FROM jsonb_to_recordset(${JSON.stringify(nodes)}::jsonb) AS n(id text, address text, hash text)`);
  await db.execute(sql`
    INSERT INTO node_images (node_id, reference, architecture) SELECT id, 'local/busybox:latest', 'amd64' FROM nodes`);
}
