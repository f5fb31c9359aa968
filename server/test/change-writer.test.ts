/**
 * Changes of machines that are written together: ceilings hold within one statement, and no caller fails or
 * waits for what is another's.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Context } from "../src/context.ts";
import { sql } from "../src/db/database.ts";
import { type Change, requestStart } from "../src/machines/change.ts";
import { applyObservation } from "../src/machines/observe.ts";
import { absentMachine } from "@flotilla/contract/link/absent";
import { ChangeWriter } from "../src/machines/change-writer.ts";
import type { MachineRecord } from "../src/machines/record.ts";
import { findAnyMachine } from "../src/machines/store.ts";
import { TEST_JOIN_TOKEN } from "./support/node.ts";
import { startTestServer } from "./support/server.ts";
import { until } from "../../test/support/until.ts";

const { client, context } = await startTestServer({ joinToken: TEST_JOIN_TOKEN });
const { db } = context;
const CPUS = 8;

type Written = ReadonlyMap<string, MachineRecord>;

const NODES = ["ghost-a", "ghost-b", "ghost-c"] as const;
for (const id of NODES) {
  const register = { id, address: "unix:/nowhere/agent.sock", totalCpus: CPUS };
  assert.equal((await client.withKey(TEST_JOIN_TOKEN).post("/v1/nodes/register", register)).status, 200);
}
// They are asked for nothing here, and report nothing.
await db.execute(sql`UPDATE nodes SET status = 'ready', last_heartbeat_at = now() + interval '1 hour'`);

/** A tenant with a key to make machines of one processor. */
async function tenantWith(maxConcurrentMachines: number, more: object = {}) {
  const fields = { maxConcurrentMachines, rateRequestsPerSecond: 1_000, rateBurst: 1_000, ...more };
  const plan = (await client.post("/v1/plans", { name: `plan ${context.ids.make("event")}`, ...fields })).json;
  const tenantId = (await client.post("/v1/tenants", { name: context.ids.make("event"), planId: plan.id })).json.id;
  const { key } = (await client.post("/v1/apikeys", { tenantId, scopes: ["machine:create"] })).json;
  const own = client.withKey(key);
  return async (): Promise<MachineRecord> => {
    const body = { source: { type: "image", reference: "local/busybox" }, resources: { cpus: 1, memoryMb: 256 } };
    const answer = await own.post("/v1/machines", body);
    assert.equal(answer.status, 201, answer.text);
    const machine = await findAnyMachine(db, answer.json.id);
    assert.ok(machine !== undefined);
    return machine;
  };
}

function startOn(
  nodeId: string,
  machine: MachineRecord,
  { activeMax = 1_000, hasCeilings = true, isBudgeted = false } = {},
): Change {
  const overcommit = { cpus: hasCeilings ? 1 : null, memory: null };
  return requestStart(machine, {
    ...{ tenantId: machine.tenantId, nodeId, overcommit, activeMax, isBudgeted },
    ...{ isAutomatic: false, keyId: "key-a", now: context.clock.now() },
  });
}

/** A writer, and how many statements it has sent. */
function openWriter() {
  let statements = 0;
  const query: Context["db"]["query"] = (statement) => {
    statements += 1;
    return db.query(statement);
  };
  const writer = new ChangeWriter({ ...context, db: { ...db, query } });
  return { write: (change: Change) => writer.write([change]), sent: () => statements };
}

/** How many of single changes were written. */
const writtenOf = (outcomes: readonly Written[]): number => outcomes.reduce((sum, { size }) => sum + size, 0);
const nodeOf = (n: number): string => NODES[n % NODES.length] ?? NODES[0];
const wait = (ms: number): Promise<void> => context.clock.sleep(ms);
const free = () => db.execute(sql`UPDATE machines SET observed_state = 'stopped', desired_state = 'stopped'`);

test("starts that come together share statements, which admit exactly as many as the tenant may have", async () => {
  const create = await tenantWith(5);
  const machines = await Promise.all(Array.from({ length: 30 }, create));
  const writer = openWriter();
  const starts = machines.map((machine, n) => startOn(nodeOf(n), machine, { activeMax: 5 }));
  const outcomes = await Promise.all(starts.map((start) => writer.write(start)));
  assert.equal(writtenOf(outcomes), 5);
  assert.ok(writer.sent() <= 4, `${writer.sent()} statements`);
  await free();
});

test("and exactly as many as its plan has processors or memory for, beside those of another tenant", async () => {
  const [byCpus, byMemory] = await Promise.all([
    tenantWith(1_000, { maxTotalCpus: 4 }),
    tenantWith(1_000, { maxTotalMemoryMb: 6 * 256 + 255 }),
  ]);
  const machines = await Promise.all(Array.from({ length: 12 }, () => [byCpus(), byMemory()]).flat());
  const writer = openWriter();
  const starts = machines.map((machine) => startOn("ghost-a", machine, { hasCeilings: false }));
  const outcomes = await Promise.all(starts.map((start) => writer.write(start)));
  const admitted = [0, 1].map((tenant) => writtenOf(outcomes.filter((_, n) => n % 2 === tenant)));
  assert.deepEqual(admitted, [4, 6]);
  assert.ok(writer.sent() <= 4, `${writer.sent()} statements`);
  await free();
});

test("and exactly as many as the node may have, also when two servers write at the same time in other orders", async () => {
  const creates = await Promise.all(Array.from({ length: 20 }, () => tenantWith(1_000)));
  const machines = await Promise.all(creates.flatMap((create) => [create(), create()]));
  const deadlocks = sql`SELECT deadlocks::int AS count FROM pg_stat_database WHERE datname = current_database()`;
  const earlier = await db.queryOne<{ count: number }>(deadlocks);
  const [mine, theirs] = [openWriter(), openWriter()];
  for (let round = 0; round < 10; round += 1) {
    const fresh = await Promise.all(machines.map(({ id }) => findAnyMachine(db, id)));
    const starts = fresh.flatMap((machine, n) => (machine === undefined ? [] : [startOn(nodeOf(n), machine)]));
    const [first, second] = [starts.slice(0, 20), starts.slice(20).toReversed()];
    const writes: Promise<Written>[] = [
      ...first.map((start) => mine.write(start)),
      ...second.map((start) => theirs.write(start)),
    ];
    const outcomes: readonly Written[] = await Promise.all(writes);
    assert.equal(writtenOf(outcomes), 3 * CPUS);
    await free();
  }
  // PostgreSQL counts at most a second later.
  await wait(1_100);
  assert.deepEqual(await db.queryOne(deadlocks), earlier);
});

test("and exactly as many as the tenant's budget has windows for, beside those of another tenant", async () => {
  // The price of a window of 60 s is 60,000 micros.
  const rates = { rateCpuHourMicros: 3_600_000, rateMemoryGbHourMicros: 0 };
  const budget = { budgetPolicy: "block", monthlyBudgetMicros: 200_000, ...rates };
  const creates = await Promise.all([tenantWith(1_000, budget), tenantWith(1_000, budget)]);
  const machines = await Promise.all(Array.from({ length: 10 }, () => creates).flatMap(([a, b]) => [a(), b()]));
  const writer = openWriter();
  const starts = machines.map((machine) => startOn("ghost-a", machine, { hasCeilings: false, isBudgeted: true }));
  const outcomes = await Promise.all(starts.map((start) => writer.write(start)));
  const admitted = [0, 1].map((tenant) => writtenOf(outcomes.filter((_, n) => n % 2 === tenant)));
  assert.deepEqual(admitted, [3, 3]);
  await free();
});

test("runs that share a statement are recorded as use, each once and for its machine and key, however often they are reported", async () => {
  const creates = await Promise.all([tenantWith(1_000), tenantWith(1_000)]);
  const machines = await Promise.all(Array.from({ length: 6 }, () => creates).flatMap(([a, b]) => [a(), b()]));
  const writer = openWriter();
  const started = await Promise.all(
    machines.map((machine, n) => writer.write(startOn(nodeOf(n), machine, { hasCeilings: false }))),
  );
  const report = ({ id }: MachineRecord) => ({
    ...absentMachine(id, 1),
    ...{ state: "running" as const, bootId: `boot-${id}`, runningSince: context.clock.now() },
  });
  const before = writer.sent();
  const changes = started
    .flatMap((written) => [...written.values()])
    .map((machine) => {
      const observation = applyObservation(machine, report(machine), context.clock.now());
      assert.ok(observation.outcome === "news");
      return observation.change;
    });
  const running = await Promise.all(changes.map((change) => writer.write(change)));
  assert.equal(writtenOf(running), 12);
  assert.ok(writer.sent() - before <= 3, `${writer.sent() - before} statements`);
  const again = changes.map((change) => ({ ...change, next: { ...change.next, revision: change.next.revision + 1 } }));
  assert.equal(writtenOf(await Promise.all(again.map((change) => writer.write(change)))), 12);
  const used = await db.query(sql`
    SELECT u.machine_id AS id, u.tenant_id AS "tenantId", u.boot_id AS "bootId", u.meter, u.quantity, a.machine_id AS of, a.key_id AS key
    FROM usage_intervals u JOIN usage_attributions a ON a.id = u.attribution_id
    WHERE u.machine_id = ANY(${machines.map(({ id }) => id)}::text[]) AND u.boot_id IS NOT NULL AND u.ended_at IS NULL
    ORDER BY u.machine_id, u.meter`);
  const expected = machines
    .toSorted((a, b) => (a.id < b.id ? -1 : 1))
    .flatMap(({ id, tenantId, cpus, memoryMb }) =>
      [
        ["cpu", cpus],
        ["memory", memoryMb],
        ["uptime", 1],
      ].map(([meter, quantity]) => ({
        ...{ id, tenantId, bootId: `boot-${id}`, meter, quantity, of: id, key: "key-a" },
      })),
    );
  assert.deepEqual(used, expected);
  await free();
});

test("a change that the database refuses fails alone", async () => {
  const create = await tenantWith(1_000);
  const machines = await Promise.all(Array.from({ length: 6 }, create));
  const writer = openWriter();
  const outcomes = await Promise.allSettled(
    machines.map((machine, n) => {
      const change = startOn("ghost-a", machine);
      const next = n === 4 ? { ...change.next, error: "a text with \u0000" } : change.next;
      return writer.write({ ...change, next });
    }),
  );
  const settled = outcomes.map((outcome) => (outcome.status === "fulfilled" ? outcome.value.size : "failed"));
  assert.deepEqual(settled, [1, 1, 1, 1, "failed", 1]);
  await free();
});

test("changes whose machines another transaction locks wait alone, also if they come first", async () => {
  // Each holds its tenant meanwhile.
  const creates = await Promise.all(Array.from({ length: 8 }, () => tenantWith(1_000)));
  const machines = await Promise.all(creates.map((create) => create()));
  const ids = machines.map(({ id }) => id);
  const locked = [0, 1, 5].map((n) => ids[n] ?? "");
  const writer = openWriter();
  const [release, holding] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const lock = db.transaction(async (transaction) => {
    await transaction.execute(sql`SELECT FROM machines WHERE id = ANY(${locked}) FOR UPDATE`);
    holding.resolve();
    await release.promise;
  });
  await holding.promise;
  const settled: string[] = [];
  const writes = machines.map(async (machine) => {
    assert.equal((await writer.write(startOn("ghost-b", machine, { hasCeilings: false }))).size, 1);
    settled.push(machine.id);
  });
  const others = ids.filter((id) => !locked.includes(id)).toSorted();
  await until(() => settled.length === others.length);
  assert.deepEqual(settled.toSorted(), others);
  release.resolve();
  await Promise.all([lock, ...writes]);
  await free();
});

test("changes of one machine are written in the order in which they came", async () => {
  const create = await tenantWith(1_000);
  const [machine, other, third] = await Promise.all([create(), create(), create()]);
  const writer = openWriter();
  const change = startOn("ghost-c", machine);
  const again = { ...change, next: { ...change.next, revision: machine.revision + 1 } };
  const outcomes = await Promise.all(
    [change, startOn("ghost-c", other), startOn("ghost-c", third), again, change].map((one) => writer.write(one)),
  );
  assert.deepEqual(
    outcomes.map(({ size }) => size),
    [1, 1, 1, 1, 0],
  );
  await free();
});
