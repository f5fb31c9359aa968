/**
 * Runs as their node reports them: each is written once with the node's times, whatever the order and the
 * number of reports, and whatever happened to the server, the node or the machine in between. Usage is
 * computed from them.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Run, RunReport } from "@flotilla/contract/link/link";
import { RUN_END_CAUSES } from "@flotilla/contract/runs";
import { sql } from "../src/db/database.ts";
import { RESOURCES, startTestNode, TEST_JOIN_TOKEN } from "./support/node.ts";
import { RESTORED_AGENT } from "../src/nodes/state.ts";
import { startTestServer } from "./support/server.ts";
import { until } from "../../test/support/until.ts";

const server = await startTestServer({ joinToken: TEST_JOIN_TOKEN });
const { client, context } = server;
const { db } = context;
const source = { type: "image", reference: "local/busybox" };
const MINUTE = 60_000;
const HOUR = 60 * MINUTE;

const register = async (id = "ghost") => {
  const answer = await client
    .withKey(TEST_JOIN_TOKEN)
    .post("/v1/nodes/register", { id, address: "unix:/nowhere/agent.sock", totalCpus: 8 });
  assert.equal(answer.status, 200, answer.text);
  return client.withKey(answer.json.credential);
};
const other = await register("other");
let ghost = await register();

/** A heartbeat of the node without machines. */
async function beat(fields: object = {}): Promise<{ acknowledgedRuns?: number }> {
  const body = { bootId: "agent-1", isComplete: false, resources: RESOURCES, machines: [], events: [], ...fields };
  const answer = await ghost.post("/v1/nodes/ghost/heartbeat", body);
  assert.equal(answer.status, 200, answer.text);
  return answer.json;
}

let lastSequence = 0;
const sequence = (): number => ++lastSequence;

const changes = (...runs: readonly Run[]): { readonly runs: RunReport } => ({
  runs: { sequence: lastSequence, isComplete: false, runs },
});

let lastBoot = 0;

/** A machine of the node that was created three hours ago and started. Nothing is reported of it yet. */
async function machine(): Promise<{ readonly id: string; readonly open: Run; readonly end: Run }> {
  const { id } = (await client.post("/v1/machines", { source, resources: { cpus: 2, memoryMb: 1024 } })).json;
  await db.execute(sql`
    UPDATE machines SET node_id = 'ghost', created_at = now() - interval '3 hours', updated_at = now() - interval '3 hours'
    WHERE id = ${id}`);
  const startedAt = context.clock.now() - 2 * HOUR;
  const open = {
    bootId: `boot-${++lastBoot}`,
    machineId: id,
    startedAt,
    endedAt: null,
    cause: null,
    egressBytes: 0,
    sequence: sequence(),
  };
  return { id, open, end: { ...open, endedAt: startedAt + HOUR, cause: "crash", sequence: sequence() } };
}

interface Row {
  readonly bootId: string;
  readonly startedAt: number;
  readonly endedAt: number | null;
  readonly cause: string | null;
}

const rows = async (machineId: string): Promise<readonly Row[]> =>
  (
    await db.query<{ bootId: string; startedAt: Date; endedAt: Date | null; cause: string | null }>(sql`
      SELECT boot_id AS "bootId", started_at AS "startedAt", ended_at AS "endedAt", end_cause AS cause FROM machine_runs
      WHERE machine_id = ${machineId} ORDER BY started_at`)
  ).map((row) => ({ ...row, startedAt: row.startedAt.getTime(), endedAt: row.endedAt?.getTime() ?? null }));

/** As the end of a move. */
const moveTo = (nodeId: string, id: string): Promise<number> =>
  db.execute(sql`
    UPDATE machines SET node_id = ${nodeId}, updated_at = date_trunc('milliseconds', now()) WHERE id = ${id}`);

const asRow = ({ bootId, startedAt, endedAt, cause }: Run): Row => ({ bootId, startedAt, endedAt, cause });

const uptime = async (id: string): Promise<number> =>
  (await client.get(`/v1/machines/${id}/usage`)).json.usage.totalUptimeSeconds;

/** The uptime of a run in the month of `at`: the current one, unless its machine was deleted before. */
const secondsOf = ({ startedAt, endedAt }: Row, at = context.clock.now()): number => {
  const day = new Date(at);
  const month = Date.UTC(day.getUTCFullYear(), day.getUTCMonth(), 1);
  return Math.floor(Math.max(0, (endedAt ?? 0) - Math.max(startedAt, month)) / 1000);
};

const ORDERS = [
  ["once each", (open: Run, end: Run) => [[open], [end]]],
  ["the end alone, because the server was away at the start", (_: Run, end: Run) => [[end]]],
  ["the end before the start", (open: Run, end: Run) => [[end], [open]]],
  ["each twice", (open: Run, end: Run) => [[open], [open], [end], [end]]],
  ["the start again after the end", (open: Run, end: Run) => [[open], [end], [open], [end]]],
] as const;

for (const [what, orderOf] of ORDERS) {
  test(`a run is written once with its node's times: ${what}`, async () => {
    const { id, open, end } = await machine();
    for (const runs of orderOf(open, end)) {
      assert.equal((await beat(changes(...runs))).acknowledgedRuns, runs.at(-1)?.sequence);
    }
    assert.deepEqual(await rows(id), [asRow(end)]);
    assert.equal(await uptime(id), secondsOf(asRow(end)));
  });
}

test("a run that has ended never changes, also when its node reports another end", async () => {
  const { id, open, end } = await machine();
  await beat(changes(end));
  await beat(changes({ ...end, endedAt: (end.endedAt ?? 0) + MINUTE, cause: "unseen" }));
  await beat(changes(open));
  assert.deepEqual(await rows(id), [asRow(end)]);
  await assert.rejects(db.execute(sql`UPDATE machine_runs SET ended_at = now() WHERE boot_id = ${end.bootId}`), {
    message: /has ended and cannot change/,
  });
  await assert.rejects(
    db.execute(sql`UPDATE machine_runs SET ended_at = NULL, end_cause = NULL WHERE boot_id = ${end.bootId}`),
  );
});

test("the end of one run and the start of the next come in one report, in either order", async () => {
  for (const isReversed of [false, true]) {
    const { id, open, end } = await machine();
    await beat(changes(open));
    const next = { ...open, bootId: `${open.bootId}-next`, startedAt: (end.endedAt ?? 0) + 1, sequence: sequence() };
    await beat(changes(...(isReversed ? [next, end] : [end, next])));
    assert.deepEqual(await rows(id), [asRow(end), asRow(next)]);
  }
});

test("times of a node whose clock is wrong are bounded: not in the future, not before the machine was made", async () => {
  const [ahead, behind] = [await machine(), await machine()];
  const now = context.clock.now();
  await beat(changes({ ...ahead.open, startedAt: now + HOUR }, { ...behind.open, startedAt: 5 }));
  await beat(changes({ ...ahead.end, startedAt: now + HOUR, endedAt: now + 2 * HOUR }, { ...behind.end, endedAt: 4 }));
  const [[late], [early]] = [await rows(ahead.id), await rows(behind.id)];
  assert.ok((late?.startedAt ?? 0) >= now && (late?.startedAt ?? 0) <= (late?.endedAt ?? 0));
  assert.ok((late?.endedAt ?? 0) <= context.clock.now());
  assert.ok(early !== undefined && early.startedAt > now - 4 * HOUR && early.endedAt === early.startedAt);
});

test("a run of a machine that is not on the node is not recorded, and does not hold up the others", async () => {
  const { id, open, end } = await machine();
  await db.execute(sql`DELETE FROM machine_periods WHERE machine_id = ${id}`);
  const mine = await machine();
  assert.equal((await beat(changes(open, mine.end, end))).acknowledgedRuns, end.sequence);
  assert.deepEqual(await rows(id), []);
  assert.deepEqual(await rows(mine.id), [asRow(mine.end)]);
  // Nor does it end another node's run.
  const foreign = await machine();
  await beat(changes(foreign.open));
  await db.execute(sql`UPDATE machine_runs SET node_id = 'other' WHERE machine_id = ${foreign.id}`);
  await beat(changes(foreign.end));
  assert.deepEqual(await rows(foreign.id), [asRow(foreign.open)]);
});

test("runs that a node reports after a machine has moved away from it are recorded", async () => {
  const { id, open, end } = await machine();
  await beat(changes(open));
  await moveTo("other", id);
  // It restarted by itself before it moved, and the report of that was late.
  const startedAt = (end.endedAt ?? 0) + MINUTE;
  const next: Run = {
    ...end,
    bootId: `boot-${++lastBoot}`,
    startedAt,
    endedAt: startedAt + MINUTE,
    sequence: sequence(),
  };
  assert.equal((await beat(changes(end, next))).acknowledgedRuns, next.sequence);
  assert.deepEqual(await rows(id), [asRow(end), asRow(next)]);
  assert.equal(await uptime(id), secondsOf(asRow(end)) + secondsOf(asRow(next)));
});

test("a deleted machine is counted up to its deletion, and its runs outlive it", async () => {
  const { id, open, end } = await machine();
  await beat(changes(open));
  const settled = (await client.call("DELETE", `/v1/machines/${id}?includeUsage=true`)).json;
  assert.ok(settled.usage.totalUptimeSeconds > 0);
  const endedAt = context.clock.now();
  await beat(changes({ ...end, endedAt, cause: "delete" }));
  assert.deepEqual((await client.get(`/v1/machines/${id}/usage`)).json, settled);
  assert.deepEqual(await rows(id), [{ ...asRow(end), endedAt, cause: "delete" }]);
  await db.execute(sql`DELETE FROM machines WHERE id = ${id}`);
  assert.equal((await rows(id)).length, 1);
});

test("the end of a run is taken after its machine is forgotten, and a late start counts up to the deletion", async () => {
  const [forgotten, late] = [await machine(), await machine()];
  await beat(changes(forgotten.open));
  for (const { id } of [forgotten, late]) await client.delete(`/v1/machines/${id}`);
  await db.execute(sql`DELETE FROM machines WHERE id = ${forgotten.id}`);
  const deletedAt = late.open.startedAt + MINUTE;
  await db.execute(sql`UPDATE machines SET deleted_at = ${new Date(deletedAt)} WHERE id = ${late.id}`);
  await beat(changes(forgotten.end, late.open));
  assert.deepEqual(await rows(forgotten.id), [asRow(forgotten.end)]);
  assert.equal(await uptime(late.id), secondsOf({ ...asRow(late.open), endedAt: deletedAt }, deletedAt));
});

test("a run on a node that does not report counts up to the last report, and in full when the node is back", async () => {
  const { id, open, end } = await machine();
  await beat(changes(open));
  const lastReport = open.startedAt + 10 * MINUTE;
  await db.execute(sql`
    UPDATE nodes SET status = 'unreachable', last_heartbeat_at = ${new Date(lastReport)} WHERE id = 'ghost'`);
  assert.equal(await uptime(id), secondsOf({ ...asRow(open), endedAt: lastReport }));
  await beat(changes(end));
  assert.equal(await uptime(id), secondsOf(asRow(end)));
});

test("what ended is not billed up to the heartbeat that brings its end: the end is written first", async () => {
  const { id, open, end } = await machine();
  await beat(changes(open));
  let beating: Promise<unknown> = Promise.resolve();
  await db.transaction(async (transaction) => {
    await transaction.execute(sql`SELECT FROM nodes WHERE id = 'ghost' FOR UPDATE`);
    beating = beat(changes(end));
    await until(async () => (await rows(id))[0]?.endedAt === end.endedAt);
  });
  await beating;
});

test("a run of a machine that has moved is recorded before its former node reports the end of an earlier one", async () => {
  const { id, open, end } = await machine();
  await beat(changes(open));
  await moveTo("other", id);
  const moved = { ...open, bootId: `boot-${++lastBoot}`, startedAt: context.clock.now(), sequence: 1 };
  const report = { bootId: "agent-2", isComplete: false, resources: RESOURCES, machines: [], events: [] };
  const runs = { sequence: 1, isComplete: false, runs: [moved] };
  const answer = await other.post("/v1/nodes/other/heartbeat", { ...report, runs });
  assert.deepEqual([answer.status, answer.json.acknowledgedRuns], [200, 1], answer.text);
  await beat(changes(end));
  assert.deepEqual(await rows(id), [asRow(end), asRow(moved)]);
});

test("a machine that is deleted while its node does not report counts up to the last report, also when the node is back", async () => {
  const { id, open, end } = await machine();
  await beat(changes(open));
  const lastReport = open.startedAt + 10 * MINUTE;
  const counted = secondsOf({ ...asRow(open), endedAt: lastReport });
  await db.execute(sql`
    UPDATE nodes SET status = 'unreachable', last_heartbeat_at = ${new Date(lastReport)} WHERE id = 'ghost'`);
  const settled = (await client.call("DELETE", `/v1/machines/${id}?includeUsage=true`)).json;
  assert.equal(settled.usage.totalUptimeSeconds, counted);
  await beat(changes({ ...end, endedAt: context.clock.now(), cause: "delete" }));
  assert.equal(await uptime(id), counted);
});

test("a machine whose fence may have ended it counts up to the last report of its node, which need not be unreachable", async () => {
  const [fenced, ordinary] = [await machine(), await machine()];
  await beat(changes(fenced.open, ordinary.open));
  const lastReport = fenced.open.startedAt + 10 * MINUTE;
  await db.execute(sql`UPDATE machines SET fence = 'on' WHERE id = ${fenced.id}`);
  await db.execute(sql`
    UPDATE nodes SET status = 'ready', last_heartbeat_at = ${new Date(lastReport)} WHERE id = 'ghost'`);
  for (const { id } of [fenced, ordinary]) await client.delete(`/v1/machines/${id}`);
  const untilReport = secondsOf({ ...asRow(fenced.open), endedAt: lastReport });
  assert.equal(await uptime(fenced.id), untilReport);
  assert.ok((await uptime(ordinary.id)) > untilReport);
  // Its agent saw it end when it continued.
  await beat(changes({ ...fenced.end, endedAt: lastReport + 21_000, cause: "fenced" }));
  assert.equal(await uptime(fenced.id), untilReport);
});

test("open runs that a node does not know any more end at its last report before, others stay open", async () => {
  const [lost, kept, later] = [await machine(), await machine(), await machine()];
  await beat(changes(lost.open, kept.open, later.open));
  const lastReport = lost.open.startedAt + 10 * MINUTE;
  await db.execute(sql`UPDATE nodes SET last_heartbeat_at = ${new Date(lastReport)} WHERE id = 'ghost'`);
  // The node's journal is new, and it registers again; its report was written before the last of the runs was
  // recorded.
  ghost = await register();
  const report: RunReport = { sequence: later.open.sequence - 1, isComplete: true, runs: [kept.open] };
  assert.equal((await beat({ isComplete: true, runs: report })).acknowledgedRuns, report.sequence);
  assert.deepEqual(await rows(lost.id), [{ ...asRow(lost.open), endedAt: lastReport, cause: "unseen" }]);
  assert.deepEqual(await rows(kept.id), [asRow(kept.open)]);
  assert.deepEqual(await rows(later.id), [asRow(later.open)]);
});

test("a run that an answer has just brought is ended by the first report after a restore, and by no other", async () => {
  const { id, open } = await machine();
  await beat(changes(open));
  await db.execute(sql`UPDATE machine_runs SET sequence = NULL, recorded_at = now() WHERE boot_id = ${open.bootId}`);
  const report: RunReport = { sequence: lastSequence, isComplete: true, runs: [] };
  await beat({ isComplete: true, runs: report });
  assert.deepEqual(await rows(id), [asRow(open)]);
  await db.execute(sql`UPDATE nodes SET agent_boot_id = ${RESTORED_AGENT} WHERE id = 'ghost'`);
  await beat({ isComplete: true, runs: report });
  assert.equal((await rows(id))[0]?.cause, "unseen");
});

test("a report that holds all open runs brings back those that a restored database has lost", async () => {
  const { id, open } = await machine();
  const before = {
    ...open,
    bootId: `${open.bootId}-before`,
    startedAt: open.startedAt - 1,
    sequence: open.sequence - 1,
  };
  await beat(changes(before));
  await beat({ isComplete: true, runs: { sequence: lastSequence, isComplete: true, runs: [open] } });
  const [ended, current] = await rows(id);
  assert.equal(ended?.cause, "unseen");
  assert.deepEqual(current, asRow(open));
});

test("the last run that a report of a machine names is billed, before its node reports its runs", async () => {
  const { id, open, end } = await machine();
  await client.post(`/v1/machines/${id}/start?detach=true`);
  const observed = {
    machineId: id,
    generation: 2,
    state: "running",
    bootId: open.bootId,
    runningSince: open.startedAt,
    readySince: open.startedAt,
    hasPoweredOff: false,
    hostPorts: [],
  };
  assert.equal((await beat({ machines: [observed] })).acknowledgedRuns, undefined);
  assert.deepEqual(await rows(id), [asRow(open)]);
  const { bootId, startedAt, endedAt } = end;
  const stopped = { ...observed, state: "failed", bootId: null, runningSince: null, reason: "crashed" };
  await beat({ machines: [{ ...stopped, lastRun: { bootId, startedAt, endedAt } }] });
  assert.deepEqual(await rows(id), [{ ...asRow(end), cause: "unknown" }]);
});

test("every cause of an end that the contract names is taken, and another word is `unknown`", async () => {
  for (const cause of [...RUN_END_CAUSES, "eaten"]) {
    const { id, end } = await machine();
    await beat(changes({ ...end, cause: cause as Run["cause"] }));
    assert.equal((await rows(id))[0]?.cause, cause === "eaten" ? "unknown" : cause);
  }
});

test("a stop settles the run before it is answered, and a crash of the agent does not end it", async () => {
  await db.execute(sql`UPDATE nodes SET status = 'unreachable'`);
  const node = await startTestNode(server, "node-runs");
  const { id } = (await client.post("/v1/machines", { source })).json;
  assert.equal((await client.post(`/v1/machines/${id}/start`)).status, 200);
  const [open] = await rows(id);
  assert.deepEqual([open?.endedAt, open?.cause], [null, null]);
  await node.kill();
  await node.restart();
  await until(async () => (await client.get(`/v1/machines/${id}`)).json.ready, { what: "the machine" });
  assert.deepEqual(await rows(id), [open]);
  const askedAt = Date.now();
  assert.equal((await client.post(`/v1/machines/${id}/stop`)).json.state, "stopped");
  const [ended, ...others] = await rows(id);
  assert.deepEqual(
    [ended?.bootId, ended?.startedAt, ended?.cause, others],
    [open?.bootId, open?.startedAt, "stop", []],
  );
  assert.ok((ended?.endedAt ?? 0) >= askedAt && (ended?.endedAt ?? 0) <= Date.now());
});

/** The metric of runs that do not agree with the machines, by kind. */
async function mismatches(): Promise<readonly string[]> {
  const { text } = await client.get("/metrics");
  return ["run_without_boot", "boot_without_run"].map(
    (kind) => new RegExp(`^flotilla_run_mismatches\\{kind="${kind}"\\} (\\d+)$`, "m").exec(text)?.[1] ?? "none",
  );
}

test("the metrics count runs without a boot and boots without a run, and both become 0", async () => {
  await db.execute(sql`UPDATE nodes SET status = 'unreachable'`);
  await startTestNode(server, "node-counted");
  const { id } = (await client.post("/v1/machines", { source })).json;
  assert.equal((await client.post(`/v1/machines/${id}/start`)).status, 200);
  assert.deepEqual(await mismatches(), ["0", "0"]);
  const areCounted = async () => {
    // The node's own report may correct it again.
    await db.execute(sql`UPDATE machines SET observed_boot_id = 'boot-other' WHERE id = ${id}`);
    return (await mismatches()).join() === "1,1";
  };
  await until(areCounted, { what: "both to be counted" });
  await client.post(`/v1/machines/${id}/stop`);
  await until(async () => (await mismatches()).join() === "0,0", { what: "the counts" });
});

test("the end of a run arrives after its machine is deleted", async () => {
  await db.execute(sql`UPDATE nodes SET status = 'unreachable'`);
  await startTestNode(server, "node-deleting");
  const { id } = (await client.post("/v1/machines", { source })).json;
  const started = await client.post(`/v1/machines/${id}/start`);
  assert.equal(started.status, 200, started.text);
  await client.delete(`/v1/machines/${id}`);
  const ended = await until(
    async () => {
      const [row] = await rows(id);
      return row?.endedAt !== null && row;
    },
    { what: "the end of the run" },
  );
  assert.equal(ended.cause, "delete");
});
