/**
 * kill -9 of a server that delivers, again and again: a receiver that fails one in three gets every event,
 * and the events of each machine in order. With many events two servers share the work, and one of them is
 * killed at a time.
 *
 *     FLOTILLA_WEBHOOK_EVENTS=100000 FLOTILLA_WEBHOOK_KILLS=20 npm test -- test/crash/webhooks.test.ts
 */
import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { randomInt } from "node:crypto";
import { once } from "node:events";
import { realpath } from "node:fs/promises";
import { createInterface } from "node:readline";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import pg from "pg";
import { startReceiver } from "../../server/test/support/receiver.ts";
import { startTestServer } from "../../server/test/support/server.ts";
import { until } from "../support/until.ts";

const EVENTS = Number(process.env["FLOTILLA_WEBHOOK_EVENTS"] ?? 200);
const KILLS = Number(process.env["FLOTILLA_WEBHOOK_KILLS"] ?? 2);
const MACHINES = Math.min(200, EVENTS / 20);
const BATCH = Math.ceil(EVENTS / 20);
const STALL_MS = 60_000;
const SERVER = fileURLToPath(new URL("./webhook-server.ts", import.meta.url));

const manager = await startTestServer({ webhookNetworks: ["127.0.0.0/8"], webhookHttp: true });
const { client, databaseUrl: ownUrl, dataDirectory } = manager;
/** The database's socket as a path that is valid in every process. */
const socket = /@([^/]+)\//.exec(ownUrl)?.[1] ?? "";
const databaseUrl = ownUrl.replace(socket, encodeURIComponent(await realpath(decodeURIComponent(socket))));

async function start(): Promise<ChildProcess> {
  const child = spawn(process.execPath, [SERVER, databaseUrl, dataDirectory], { stdio: ["ignore", "pipe", "inherit"] });
  after(() => child.kill("SIGKILL"));
  const ended = once(child, "exit").then(() => Promise.reject(new Error("the server ended at its start")));
  await Promise.race([once(createInterface({ input: child.stdout }), "line"), ended]);
  ended.catch(() => undefined);
  return child;
}

async function kill(child: ChildProcess): Promise<void> {
  const ended = once(child, "exit");
  child.kill("SIGKILL");
  await ended;
}

test("every event arrives, those of a machine in order, when servers are killed and one request in three fails", async (context) => {
  // Only the killed servers deliver.
  const database = new pg.Client({ connectionString: databaseUrl });
  database.on("error", () => undefined);
  await database.connect();
  after(() => database.end());
  const receiver = await startReceiver(() => (receiver.requests.length % 3 === 0 ? 503 : 200));
  const made = await client.post("/v1/webhooks", { url: receiver.url });
  assert.equal(made.status, 201, made.text);
  const tenant = (await client.get("/v1/tenants")).json[0].id as string;
  await manager.stop();
  const servers = await Promise.all(Array.from({ length: EVENTS > 1000 ? 2 : 1 }, start));

  const seen = new Set<string>();
  const last = new Map<string, number>();
  const overtaken: string[] = [];
  let read = 0;
  const look = (): number => {
    for (; read < receiver.accepted.length; read += 1) {
      const { id, event } = receiver.accepted[read] ?? { id: "", event: {} };
      if (seen.has(id)) continue;
      seen.add(id);
      const { subject, message } = event.data as { subject: { id: string }; message: string };
      if (Number(message) < (last.get(subject.id) ?? 0)) overtaken.push(`${subject.id}: ${message}`);
      last.set(subject.id, Number(message));
    }
    return seen.size;
  };
  const advance = async (goal: number): Promise<void> => {
    for (let count = look(); count < goal; count = look())
      await until(() => look() > count, { what: `more than ${count} of ${goal} events`, deadlineMs: STALL_MS });
  };
  const insert = `INSERT INTO tenant_events (id, tenant_id, subject_kind, subject_id, type, data, level, message, created_at)
    SELECT 'ev-' || lpad(i::text, 32, '0'), $1, 'machine', 'mach-' || i % $2::int, 'machine.started', '{}', 'info', i::text, now()
    FROM generate_series($3::int, $4::int) AS series(i) ORDER BY series.i`;

  let kills = 0;
  for (let from = 1; from <= EVENTS; from += BATCH) {
    const to = Math.min(EVENTS, from + BATCH - 1);
    await database.query(insert, [tenant, MACHINES, from, to]);
    if (kills < (KILLS * to) / EVENTS) {
      await advance(from + randomInt(to - from + 1) * 0.5);
      const victim = kills++ % servers.length;
      await kill(servers[victim] as ChildProcess);
      servers[victim] = await start();
    }
  }
  await advance(EVENTS);
  const repeated = receiver.accepted.length - seen.size;
  context.diagnostic(`${EVENTS} events, ${kills} kills, ${receiver.requests.length} requests, ${repeated} repeated`);
  assert.equal(seen.size, EVENTS);
  assert.deepEqual(overtaken, []);
  for (const child of servers) await kill(child);
});
