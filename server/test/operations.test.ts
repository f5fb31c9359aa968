/**
 * Operations: who sees them, which server works on them, and how they end whatever happens to that server.
 *
 * The workers are the test's own, so that each moment can be held; they have nothing to do with their kinds.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { OPERATION_KINDS, type OperationKind } from "@flotilla/contract/operations";
import { Refusal } from "@flotilla/contract/errors";
import { FairSemaphore } from "../src/fairness/semaphore.ts";
import { sql } from "../src/db/database.ts";
import { beginOperation } from "../src/operations/begin.ts";
import { OPERATION_LEASE_MS, OperationRunner } from "../src/operations/run.ts";
import { claimRoom } from "../src/operations/shares.ts";
import { claimOperations, endOperation, purgeOperations } from "../src/operations/store.ts";
import type { OperationRecord, OperationWorker } from "../src/family.ts";
import { startTestServer } from "./support/server.ts";
import { until } from "../../test/support/until.ts";

const server = await startTestServer();
const { client, context } = server;
const { tenantId } = (await client.get("/v1/me")).json;

const get = async (id: string) => (await client.get(`/v1/operations/${id}`)).json;

/** A kind without a worker in the running server, so that only the test's runners claim it. */
const KIND = "machine export" as const satisfies OperationKind;

const begin = (request: { steps?: readonly string[]; deadlineMs?: number } = {}): Promise<OperationRecord> =>
  beginOperation(context, {
    id: context.ids.make("operation"),
    tenantId,
    kind: KIND,
    resource: { kind: "machine", id: "mach-1", name: "one" },
    input: { to: "node-b" },
    steps: request.steps ?? ["copy", "switch"],
    deadlineMs: request.deadlineMs ?? 60_000,
  });

/** The work of the operation loop, for one runner of the test. Returns whether the operation was claimed. */
async function offer(runner: OperationRunner, id: string): Promise<boolean> {
  const claimed = await claimOperations(context, {
    kinds: [KIND],
    room: claimRoom([]),
    leaseMs: OPERATION_LEASE_MS,
  });
  for (const operation of claimed) runner.take(operation);
  return claimed.some((operation) => operation.id === id);
}

function runnerOf(work: OperationWorker["work"]): OperationRunner {
  const runner = new OperationRunner(context, new FairSemaphore(context.clock));
  runner.add([{ kind: KIND, work }]);
  return runner;
}

/** Long enough for a busy host. */
const PATIENT = { deadlineMs: 60_000 };

const ended = (id: string) =>
  until(async () => {
    const operation = await get(id);
    return operation.status !== "running" && operation;
  }, PATIENT);

const letLeaseRunOut = (id: string) =>
  context.db.execute(sql`UPDATE operations SET leased_until = now() - interval '1 second' WHERE id = ${id}`);

test("an operation shows its steps before, while and after they run", async () => {
  const gate = Promise.withResolvers<void>();
  const runner = runnerOf(async ({ step }) => {
    await step("copy", async (say) => {
      say("12 of 80 MB");
      await gate.promise;
      return "80 MB copied";
    });
    await step("switch", () => Promise.resolve("it runs there"));
  });
  const { id } = await begin();
  const planned = await get(id);
  assert.deepEqual([planned.status, planned.kind, planned.error], ["running", KIND, null]);
  assert.deepEqual(planned.resource, { kind: "machine", id: "mach-1", name: "one" });
  assert.deepEqual(
    planned.steps.map(({ name, status }: { name: string; status: string }) => [name, status]),
    [
      ["copy", "pending"],
      ["switch", "pending"],
    ],
  );
  assert.equal(await offer(runner, id), true);
  await until(async () => (await get(id)).steps[0].message === "12 of 80 MB", PATIENT);
  gate.resolve();
  const done = await ended(id);
  assert.equal(done.status, "succeeded");
  assert.deepEqual(
    done.steps.map(({ status, message }: { status: string; message: string }) => [status, message]),
    [
      ["succeeded", "80 MB copied"],
      ["succeeded", "it runs there"],
    ],
  );
  assert.ok(done.steps[0].startedAt <= done.steps[0].finishedAt && done.steps[0].finishedAt <= done.updatedAt);
  await runner.stop();
});

test("a failed step ends the operation with its reason, and a bug of ours is not shown to users", async () => {
  const refusing = runnerOf(({ step }) =>
    step("copy", () => Promise.reject(new Refusal("unavailable", "the disk is full"))),
  );
  const first = await begin();
  await offer(refusing, first.id);
  const failed = await ended(first.id);
  assert.deepEqual([failed.status, failed.error], ["failed", "the disk is full"]);
  assert.deepEqual([failed.steps[0].status, failed.steps[1].status], ["failed", "pending"]);
  const broken = runnerOf(({ step }) => step("copy", () => Promise.reject(new TypeError("secret is undefined"))));
  const second = await begin();
  await offer(broken, second.id);
  const fault = await ended(second.id);
  assert.match(fault.error, new RegExp(`^the server failed .* under ${second.id}$`));
  assert.equal(fault.steps[0].status, "failed");
  await Promise.all([refusing.stop(), broken.stop()]);
});

test("of many servers that look at the same time one claims an operation", async () => {
  let runs = 0;
  const runners = Array.from({ length: 8 }, () =>
    runnerOf(() => {
      runs += 1;
      return Promise.resolve();
    }),
  );
  const operations = await Promise.all(Array.from({ length: 20 }, () => begin()));
  const taken = await Promise.all(runners.map((runner) => offer(runner, operations[0]?.id ?? "")));
  assert.equal(taken.filter((one) => one).length, 1);
  for (const { id } of operations) assert.equal((await ended(id)).status, "succeeded");
  assert.equal(runs, operations.length);
  await Promise.all(runners.map((runner) => runner.stop()));
});

test("another server continues after a crash: ended steps are not repeated, the running one is", async () => {
  const ran: string[] = [];
  const lost = Promise.withResolvers<void>();
  // It never returns from the second step, like a killed server.
  const dying = runnerOf(async ({ step, signal }) => {
    signal.addEventListener("abort", () => lost.resolve());
    await step("copy", () => Promise.resolve(`copied by ${ran.push("copy")}`));
    await step("switch", () => new Promise((_, reject) => signal.addEventListener("abort", reject)));
  });
  const { id } = await begin();
  await offer(dying, id);
  await until(async () => (await get(id)).steps[1].status === "running", PATIENT);
  const next = runnerOf(async ({ step }) => {
    await step("copy", () => Promise.resolve(`copied by ${ran.push("copy")}`));
    await step("switch", () => Promise.resolve(`switched by ${ran.push("switch")}`));
  });
  assert.equal(await offer(next, id), false, "its lease has not run out");
  await letLeaseRunOut(id);
  assert.equal(await offer(next, id), true);
  const done = await ended(id);
  assert.equal(done.status, "succeeded");
  assert.deepEqual(ran, ["copy", "switch"]);
  // The first one notices that it lost its lease, and its end changes nothing.
  await lost.promise;
  await dying.stop();
  assert.deepEqual(await get(id), done);
  await next.stop();
});

test("a server that lost its lease writes nothing any more", async () => {
  const { id } = await begin();
  const [first] = (await claimOperations(context, { kinds: [KIND], room: claimRoom([]), leaseMs: 0 })).filter(
    (operation) => operation.id === id,
  );
  assert.ok(first);
  await claimOperations(context, { kinds: [KIND], room: claimRoom([]), leaseMs: OPERATION_LEASE_MS });
  assert.equal(
    await endOperation(context, first, { steps: [], error: "late", errorCode: null, isCanceled: false }),
    "stale",
  );
  assert.equal((await get(id)).status, "running");
  await endOperation(
    context,
    { id, attempt: first.attempt + 1 },
    { steps: [], error: null, errorCode: null, isCanceled: false },
  );
});

test("a server that stops releases its operations immediately", async () => {
  const stopping = runnerOf(async ({ step, signal }) => {
    await step("copy", () => new Promise((_, reject) => signal.addEventListener("abort", reject)));
  });
  const { id } = await begin();
  await offer(stopping, id);
  await until(async () => (await get(id)).steps[0].status === "running", PATIENT);
  await stopping.stop();
  assert.equal(stopping.room.all, 0);
  const next = runnerOf(({ step }) => step("copy", () => Promise.resolve("done by the next")));
  assert.equal(await offer(next, id), true);
  assert.equal((await ended(id)).steps[0].message, "done by the next");
  await next.stop();
});

test("an operation past its deadline has failed, with a worker that hangs and with none", async () => {
  const hanging = runnerOf(({ step, signal }) =>
    step("copy", () => new Promise((_, reject) => signal.addEventListener("abort", reject))),
  );
  const first = await begin({ deadlineMs: 3_000 });
  await offer(hanging, first.id);
  const late = await ended(first.id);
  assert.match(late.error, /^machine export of one timed out after 1 min; request it again/);
  assert.equal(late.steps[0].status, "failed");
  // No worker has the kind: the loop of the running server ends it at its deadline.
  const orphan = await begin({ deadlineMs: 300 });
  assert.match((await ended(orphan.id)).error, /timed out/);
  await hanging.stop();
});

test("operations are visible to their tenant alone, newest first, page by page", async () => {
  const all = (await client.get("/v1/operations")).json as { id: string; createdAt: string }[];
  assert.ok(all.length > 5);
  assert.deepEqual(
    all,
    all.toSorted((a, b) => (a.createdAt === b.createdAt ? (a.id < b.id ? 1 : -1) : a.createdAt < b.createdAt ? 1 : -1)),
  );
  const paged: { id: string }[] = [];
  for (let path: string | undefined = "/v1/operations?limit=3"; path !== undefined; ) {
    const answer = await client.get(path);
    paged.push(...answer.json);
    path = /<([^>]+)>; rel="next"/.exec(answer.headers.get("link") ?? "")?.[1];
  }
  assert.deepEqual(
    paged.map(({ id }) => id),
    all.map(({ id }) => id),
  );
  assert.equal((await client.get("/v1/operations?cursor=nonsense")).status, 422);
  const other = (await client.post("/v1/tenants", { name: "other" })).json;
  const stranger = client.withKey((await client.post("/v1/apikeys", { tenantId: other.id })).json.key);
  assert.deepEqual((await stranger.get("/v1/operations")).json, []);
  assert.equal((await stranger.get(`/v1/operations/${all[0]?.id}`)).status, 404);
  assert.equal((await client.get("/v1/operations/op-none")).status, 404);
});

test("a tenant may have a hundred running operations, and a refusal beyond that says so", async () => {
  const other = (await client.post("/v1/tenants", { name: "eager" })).json;
  const request = { tenantId: other.id, kind: KIND, resource: { kind: "x", id: "x", name: null }, steps: [] };
  const asked = () =>
    beginOperation(context, { ...request, id: context.ids.make("operation"), input: {}, deadlineMs: 60_000 });
  for (let count = 0; count < 100; count += 1) await asked();
  await assert.rejects(
    asked,
    (error: Refusal) => error.code === "rate_limited" && error.headers["retry-after"] === "10",
  );
});

test("a list without a limit has the newest thousand, and names the next page", async () => {
  const { id } = (await client.post("/v1/tenants", { name: "diligent" })).json;
  const own = client.withKey((await client.post("/v1/apikeys", { tenantId: id })).json.key);
  await context.db.execute(sql`
    INSERT INTO operations (id, tenant_id, kind, status, resource_kind, resource_id, input, steps, created_at, updated_at, deadline_at, attempt)
    SELECT 'op-d' || lpad(n::text, 31, '0'), ${id}, ${KIND}, 'succeeded', 'machine', 'x', '{}', '[]', now() - n * interval '1 s', now(), now(), 1
    FROM generate_series(1, 1005) n`);
  const listed = await own.get("/v1/operations");
  assert.equal(listed.json.length, 1_000);
  assert.equal(listed.json[0].id, `op-d${"1".padStart(31, "0")}`);
  const next = /^<([^>]+)>; rel="next"$/.exec(listed.headers.get("link") ?? "")?.[1] ?? "";
  assert.equal((await own.get(next)).json.length, 5);
});

test("operations are deleted thirty days after they ended, running ones never", async () => {
  const before = (await client.get("/v1/operations")).json.length;
  const running = await begin();
  await context.db.execute(sql`UPDATE operations SET updated_at = now() - interval '31 days'`);
  await purgeOperations(context, 1_000);
  const left = (await client.get("/v1/operations")).json as { id: string; status: string }[];
  assert.ok(left.length < before);
  assert.ok(left.some(({ id }) => id === running.id));
  assert.ok(left.every(({ status }) => status === "running"));
});

test("the kinds of the table are the contract's", async () => {
  const row = await context.db.queryOne<{ definition: string }>(sql`
    SELECT pg_get_constraintdef(oid) AS definition FROM pg_constraint
    WHERE conrelid = 'operations'::regclass AND conname = 'operations_kind_check'`);
  const listed = [...(row?.definition ?? "").matchAll(/'([a-z ]+)'::text/g)].map(([, kind]) => kind);
  assert.deepEqual(listed.toSorted(), OPERATION_KINDS.toSorted());
});
