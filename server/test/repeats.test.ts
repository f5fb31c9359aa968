/**
 * Creates under an idempotency key whose server died between the write and the answer: a repetition finds
 * what was created, and answers as the first request would have.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { sql } from "../src/db/database.ts";
import { startTestNode, TEST_JOIN_TOKEN } from "./support/node.ts";
import { startTestServer } from "./support/server.ts";
import { until } from "../../test/support/until.ts";

const server = await startTestServer({ joinToken: TEST_JOIN_TOKEN });
const { client, context } = server;
const { db } = context;
const node = await startTestNode(server, "node-a");
const source = { type: "image", reference: "local/busybox" };
const machine = (await client.post("/v1/machines", { source, ports: [{ port: 80 }] })).json.id;

/** What remains of a server that dies before its answer is stored, when the lease has run out. */
const lose = (key: string): Promise<number> =>
  db.execute(sql`
    UPDATE idempotency_keys SET status = NULL, answer = NULL, lease_until = now() - interval '1 second' WHERE idempotency_key = ${key}`);

/** The number of rows in each table that a create may write. */
const counts = () =>
  db.query(sql`
    SELECT (SELECT count(*) FROM api_keys) AS keys, (SELECT count(*) FROM join_tokens) AS joins,
      (SELECT count(*) FROM connect_tokens) AS connects, (SELECT count(*) FROM machine_shares) AS shares,
      (SELECT count(*) FROM tenants) AS tenants, (SELECT count(*) FROM plans) AS plans,
      (SELECT count(*) FROM machine_sessions) AS sessions, (SELECT count(*) FROM operations) AS operations`);

async function repeated(path: string, body: object) {
  const key = `lost-${path}-${JSON.stringify(body)}`.replaceAll(/\s/g, "").slice(0, 255);
  const send = () => client.post(path, body, { headers: { "idempotency-key": key } });
  const first = await send();
  assert.ok(first.status < 300, first.text);
  const before = await counts();
  assert.equal(await lose(key), 1);
  const again = await send();
  assert.equal(again.status, first.status, again.text);
  assert.deepEqual(await counts(), before);
  return { first: first.json, again: again.json };
}

for (const [what, path, body] of [
  ["an API key", "/v1/apikeys", { description: "mine" }],
  ["a join token", "/v1/tokens", { maxUses: 2 }],
  ["a connect token", `/v1/machines/${machine}/connect-token`, {}],
  ["a share link", `/v1/machines/${machine}/share`, {}],
  ["a tenant", "/v1/tenants", { name: "made-up-id" }],
  ["a tenant with an id of the caller's", "/v1/tenants", { name: "own-id", id: "mine" }],
  ["a plan", "/v1/plans", { name: "made-up-id" }],
  ["a plan with an id of the caller's", "/v1/plans", { name: "own-id", id: "mine" }],
  ["a session", `/v1/machines/${machine}/sessions`, { cwd: "/tmp" }],
  ["a session with an id of the caller's", `/v1/machines/${machine}/sessions`, { id: "mine" }],
] as const) {
  test(`${what} that was made before the server died is the answer to the repetition`, async () => {
    const { first, again } = await repeated(path, body);
    assert.deepEqual(again, first);
  });
}

test("an operation that was begun before the server died is the answer to the repetition", async () => {
  const pull = await repeated("/v1/images/pull", { reference: "alpine" });
  assert.equal(pull.again.id, pull.first.id);
  const drain = await repeated(`/v1/nodes/${node.id}/drain`, {});
  assert.equal(drain.again.operationId, drain.first.operationId);
});

test("a drain that was canceled before the repetition does not begin again", async () => {
  const key = "lost-drain";
  const path = `/v1/nodes/${node.id}/drain`;
  const drain = () => client.post(path, {}, { headers: { "idempotency-key": key } });
  const canceled = async (): Promise<void> => {
    const { operationId } = (await client.delete(path)).json;
    // null: none was running.
    if (operationId !== null)
      await until(async () => (await client.get(`/v1/operations/${operationId}`)).json.status !== "running");
    assert.equal((await client.delete(path)).json.status, "ready");
  };
  // That of the test before may run.
  await canceled();
  const { operationId } = (await drain()).json;
  await canceled();
  await lose(key);
  const again = await drain();
  assert.deepEqual([again.status, again.json.operationId, again.json.status], [200, operationId, "ready"]);
});

test("a secret that was rotated before the server died is the answer to the repetition, and the one before still signs", async () => {
  const made = await client.post("/v1/webhooks", { url: "https://receiver.example/hook" });
  const secretsOf = async (): Promise<readonly unknown[]> =>
    await db.query(sql`SELECT secret, previous_secret FROM webhooks WHERE id = ${made.json.id}`);
  const key = "lost-rotation";
  const rotate = () => client.post(`/v1/webhooks/${made.json.id}/secret`, {}, { headers: { "idempotency-key": key } });
  const first = await rotate();
  const rotated = await secretsOf();
  await lose(key);
  assert.deepEqual((await rotate()).json, first.json);
  assert.deepEqual(await secretsOf(), rotated);
});

test("a secret of a repetition works, and cannot be computed from the database and another key", async () => {
  const { again } = await repeated("/v1/apikeys", { description: "works" });
  assert.equal((await client.withKey(again.key).get("/v1/me")).status, 200);
  const [row] = await db.query<{ seed: string }>(
    sql`SELECT seed FROM idempotency_keys WHERE idempotency_key LIKE '%works%'`,
  );
  assert.ok(row !== undefined && !again.key.includes(row.seed));
  const other = client.withKey((await client.post("/v1/apikeys", {})).json.key);
  const headers = { "idempotency-key": "the-same" };
  const [mine, theirs] = [
    await client.post("/v1/apikeys", {}, { headers }),
    await other.post("/v1/apikeys", {}, { headers }),
  ];
  assert.notEqual(mine.json.key, theirs.json.key);
});

test("a thing that another request made with the same id is refused, also to a repetition", async () => {
  for (const [path, body] of [
    ["/v1/tenants", { name: "mine-again", id: "mine" }],
    ["/v1/plans", { name: "mine-again", id: "mine" }],
    [`/v1/machines/${machine}/sessions`, { id: "mine" }],
  ] as const) {
    const key = `other-${path}`;
    const send = () => client.post(path, body, { headers: { "idempotency-key": key } });
    assert.equal((await send()).status, 409);
    await lose(key);
    assert.equal((await send()).status, 409);
  }
});

test("a repetition is answered also at the ceiling of the machine's own limits", async () => {
  const key = "at-the-ceiling";
  const send = () => client.post(`/v1/machines/${machine}/connect-token`, {}, { headers: { "idempotency-key": key } });
  const first = await send();
  await db.execute(sql`
    INSERT INTO connect_tokens (token_hash, machine_id, key_id, expires_at)
    SELECT decode(md5(n::text) || md5(n::text), 'hex'), machine_id, key_id, now() + interval '1 hour'
    FROM (SELECT machine_id, key_id FROM connect_tokens WHERE machine_id = ${machine} LIMIT 1) one, generate_series(1, 1000) n`);
  assert.equal((await client.post(`/v1/machines/${machine}/connect-token`, {})).status, 422);
  await lose(key);
  assert.deepEqual((await send()).json, first.json);
});

test("a repetition that the budget refuses is the same request later, and makes nothing twice", async () => {
  const budget = (monthlyBudgetMicros: number) => ({ budgetPolicy: "block", monthlyBudgetMicros });
  const plan = (await client.post("/v1/plans", { name: "budget of repetitions", ...budget(1_000) })).json.id;
  const tenantId = (await client.post("/v1/tenants", { name: "repeats", planId: plan })).json.id;
  const own = client.withKey((await client.post("/v1/apikeys", { tenantId })).json.key);
  const key = "lost-and-refused";
  const create = () => own.post("/v1/machines", { source }, { headers: { "idempotency-key": key } });
  const first = await create();
  assert.equal(first.status, 201, first.text);
  await lose(key);
  await client.patch(`/v1/plans/${plan}`, budget(0));
  assert.equal((await create()).status, 402);
  await client.patch(`/v1/plans/${plan}`, budget(1_000));
  assert.equal((await create()).json.id, first.json.id);
  assert.equal((await own.get("/v1/machines")).json.length, 1);
});
