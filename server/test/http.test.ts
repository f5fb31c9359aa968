/**
 * The steps of every request, seen by a client.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { connect } from "node:net";
import { test } from "node:test";
import { DatabaseUnavailable, sql } from "../src/db/database.ts";
import type { Answer } from "./support/client.ts";
import { startTestServer } from "./support/server.ts";
import { until } from "../../test/support/until.ts";

const server = await startTestServer();
const { client } = server;
const anonymous = client.withKey(null);

test("without a key every path answers 401 with an empty body, even an unknown one", async () => {
  for (const path of [
    "/v1/me",
    "/v1/nope",
    "/v1/machines/x",
    "/",
    "/%00",
    "/v1/machines/%zz",
    `/${"x".repeat(9000)}`,
  ]) {
    const answer = await anonymous.get(path);
    assert.deepEqual([answer.status, answer.text], [401, ""], path);
    assert.equal(answer.headers.get("x-error-code"), "missing_key");
  }
});

test("with a key an unknown path answers 404", async () => {
  for (const path of ["/v1/nope", "/", "/v1/me/", "/V1/me", `/${"x".repeat(9000)}`]) {
    assert.equal((await client.get(path)).status, 404, path);
  }
});

test("health, description and documentation are public, and only for GET", async () => {
  for (const path of ["/health", "/livez", "/readyz", "/openapi.json", "/docs", "/docs/swagger-ui-bundle.js"]) {
    assert.equal((await anonymous.get(path)).status, 200, path);
    for (const method of ["POST", "PROPFIND"]) {
      const refused = await anonymous.call(method, path);
      assert.deepEqual([refused.status, refused.headers.get("allow")], [405, "GET, HEAD"], `${method} ${path}`);
    }
  }
});

test("a browser at the server's address gets the console, and any other client what an unknown path gives", async () => {
  const open = (headers: Record<string, string>, method = "GET") =>
    fetch(`${server.url}/`, { method, headers, redirect: "manual" });
  const browser = { accept: "text/html,application/xhtml+xml,*/*;q=0.8" };
  const led = await open(browser);
  assert.deepEqual([led.status, led.headers.get("location"), await led.text()], [302, "/console/", ""]);
  const others = [await open({}), await open({ accept: "application/json" }), await open(browser, "POST")];
  for (const other of others)
    assert.deepEqual([other.status, other.headers.get("x-error-code"), await other.text()], [401, "missing_key", ""]);
});

test("an error is one plain sentence, and RFC 9457 JSON for callers that accept JSON", async () => {
  const plain = await client.get("/v1/tenants/none");
  assert.deepEqual([plain.status, plain.headers.get("content-type")], [404, "text/plain; charset=utf-8"]);
  assert.equal(plain.text, "tenant none was not found; GET /v1/tenants lists them");
  for (const accept of ["application/problem+json", "application/json"]) {
    const problem = await client.get("/v1/tenants/none", { headers: { accept, "x-request-id": "abc" } });
    assert.equal(problem.headers.get("content-type"), accept);
    assert.deepEqual(problem.json, {
      type: "about:blank",
      title: "the resource does not exist, or is another tenant's",
      status: 404,
      detail: "tenant none was not found; GET /v1/tenants lists them",
      code: "not_found",
      requestId: "abc",
      details: { resource: { kind: "tenant", id: "none" }, call: "GET /v1/tenants" },
    });
  }
});

test("a refusal's details have what its text says", async () => {
  const headers = { accept: "application/json" };
  const source = { type: "image", reference: "local/busybox" };
  const limit = (of: string, bound: string, value: number) => ({ limit: { of, bound, value } });
  const machine = (more: object) => client.post("/v1/machines", { source, ...more }, { headers });
  const tenant = (body: object) => client.post("/v1/tenants", body, { headers });
  const given: readonly (readonly [Promise<Answer>, object | undefined])[] = [
    [
      machine({ resources: { cpus: 65 } }),
      { field: "resources.cpus", must: "be at most 64", ...limit("value", "<=", 64) },
    ],
    [machine({ source: { type: "image" } }), { field: "source.reference", must: "be given" }],
    [tenant({ name: 7 }), { field: "name", must: "be a string" }],
    [tenant({ name: "" }), { field: "name", must: "not be empty", ...limit("characters", ">=", 1) }],
    [
      tenant({ name: "x", id: "sp ace" }),
      { field: "id", must: "be 1 to 64 letters, digits, `-` or `_`, the first of them not `-`" },
    ],
    [
      client.get("/v1/machines?limit=0", { headers }),
      { field: "limit", must: "be at least 1", ...limit("value", ">=", 1) },
    ],
    [client.get("/v1/events?cursor=x", { headers }), { field: "cursor", call: "GET /v1/events" }],
    [client.get("/v1/nowhere", { headers }), { resource: { kind: "path" } }],
    [client.post("/v1/tenants", "{", { headers }), undefined],
  ];
  for (const [answer, details] of given) assert.deepEqual((await answer).json.details, details, (await answer).text);
});

test("an invalid field is named with its path and what was expected", async () => {
  const cases: [unknown, RegExp][] = [
    [{}, /missing field `name`/],
    [{ name: 7 }, /: name: expected string/],
    [{ name: "" }, /name: expected at least 1 characters/],
    [{ name: "a\u0000b" }, /name: expected text without NUL characters/],
    [{ name: "x", id: "-rf" }, /id: expected 1 to 64 letters, digits, `-` or `_`, the first of them not `-`/],
  ];
  for (const [body, expected] of cases) {
    const answer = await client.post("/v1/tenants", body);
    assert.equal(answer.status, 422);
    assert.match(answer.text, expected);
  }
  const escaped = await client.call("POST", "/v1/tenants", { raw: '{"name":"\\ud800"}' });
  assert.deepEqual([escaped.status, escaped.headers.get("x-error-code")], [422, "invalid_body"]);
});

test("a body needs no content type, and an unknown one is ignored", async () => {
  for (const headers of [{}, { "content-type": "text/strange" }, { "content-type": ";;;" }, { "content-type": "" }]) {
    const answer = await client.call("POST", "/v1/apikeys", { raw: '{"description":"d"}', headers });
    assert.equal(answer.status, 200, JSON.stringify(headers));
  }
  assert.equal((await client.post("/v1/apikeys")).status, 200, "no body at all");
});

test("every answer shows the caller's rate limit", async () => {
  const plan = await client.post("/v1/plans", { name: "shown", rateBurst: 77 });
  const tenant = await client.post("/v1/tenants", { name: "shown", planId: plan.json.id });
  const { key } = (await client.post("/v1/apikeys", { tenantId: tenant.json.id })).json;
  const answer = await client.withKey(key).get("/v1/me");
  assert.equal(answer.headers.get("ratelimit-limit"), "77");
  assert.equal(answer.headers.get("x-ratelimit-remaining"), answer.headers.get("ratelimit-remaining"));
});

test("a tenant over its rate gets 429 with the time to wait, and others are not affected", async () => {
  const plan = await client.post("/v1/plans", { name: "slow", rateRequestsPerSecond: 1, rateBurst: 5 });
  const tenant = await client.post("/v1/tenants", { name: "hasty", planId: plan.json.id });
  const key = await client.post("/v1/apikeys", { tenantId: tenant.json.id });
  const hasty = client.withKey(key.json.key);
  const answers: Answer[] = [];
  for (let count = 0; count < 5; count++) answers.push(await hasty.get("/v1/me"));
  assert.ok(answers.every(({ status }) => status === 200));
  // At the same time: one after the other each might have got the second that it needs.
  answers.push(...(await Promise.all(Array.from({ length: 30 }, () => hasty.get("/v1/me")))));
  const refused = answers.find(({ status }) => status === 429);
  assert.match(refused?.headers.get("retry-after") ?? "", /^[1-9]\d*$/);
  assert.equal((await client.get("/v1/me")).status, 200);
});

test("a tenant that continues to call above its rate gets its refusals later, and may leave", async () => {
  const plan = await client.post("/v1/plans", { name: "floods", rateRequestsPerSecond: 1, rateBurst: 1 });
  const tenant = await client.post("/v1/tenants", { name: "flooder", planId: plan.json.id });
  const key = await client.post("/v1/apikeys", { tenantId: tenant.json.id });
  const flooder = client.withKey(key.json.key);
  const ask = (count: number) => Promise.all(Array.from({ length: count }, () => flooder.get("/v1/me")));
  const startedAt = performance.now();
  const answers = await ask(160);
  assert.ok(performance.now() - startedAt >= 900, "the last refusals came at once");
  assert.ok(answers.filter(({ status }) => status === 429).length > 100);
  const leaving = new AbortController();
  const left = flooder.get("/v1/me", { signal: leaving.signal });
  leaving.abort();
  await assert.rejects(left);
  assert.equal((await client.get("/v1/me")).status, 200);
});

test("HEAD answers like GET without a body", async () => {
  const answer = await client.call("HEAD", "/v1/me");
  assert.deepEqual([answer.status, answer.text], [200, ""]);
  assert.equal(answer.headers.get("content-length"), String((await client.get("/v1/me")).text.length));
});

test("two posts with one idempotency key create one thing and get the same answer", async () => {
  const headers = { "idempotency-key": "order-1" };
  const first = await client.post("/v1/apikeys", { description: "once" }, { headers });
  const second = await client.post("/v1/apikeys", { description: "once" }, { headers });
  assert.deepEqual([second.status, second.text], [first.status, first.text]);
  assert.equal(second.headers.get("idempotency-replayed"), "true");
  assert.equal(second.headers.get("content-type"), "application/json");
  const listed = await client.get("/v1/apikeys");
  const made = (listed.json as { description: string | null }[]).filter(({ description }) => description === "once");
  assert.equal(made.length, 1);
});

test("an idempotency key with another body or path answers 422", async () => {
  const headers = { "idempotency-key": "order-1" };
  const other = await client.post("/v1/apikeys", { description: "other" }, { headers });
  assert.deepEqual([other.status, other.headers.get("x-error-code")], [422, "idempotency_mismatch"]);
  const elsewhere = await client.post("/v1/tenants", { description: "once" }, { headers });
  assert.equal(elsewhere.status, 422);
});

test("a refusal is replayed like an answer", async () => {
  const headers = { "idempotency-key": "order-2" };
  const first = await client.post("/v1/apikeys", { scopes: ["nonsense"] }, { headers });
  const second = await client.post("/v1/apikeys", { scopes: ["nonsense"] }, { headers });
  assert.deepEqual([first.status, second.status, second.text], [400, 400, first.text]);
  assert.equal(second.headers.get("idempotency-replayed"), "true");
});

test("of concurrent posts with one idempotency key one runs, and the others get its answer or 409", async () => {
  const headers = { "idempotency-key": "order-3" };
  const answers = await Promise.all(
    Array.from({ length: 20 }, () => client.post("/v1/apikeys", { description: "race" }, { headers })),
  );
  const made = new Set(answers.filter(({ status }) => status === 200).map(({ text }) => text));
  assert.equal(made.size, 1);
  for (const { status, headers: got } of answers) {
    if (status !== 200) assert.deepEqual([status, got.get("x-error-code")], [409, "idempotency_in_progress"]);
  }
});

test("keys of two API keys are separate, and a stored answer cannot be read from the database", async () => {
  const other = client.withKey((await client.post("/v1/apikeys", {})).json.key);
  const headers = { "idempotency-key": "order-4" };
  const mine = await client.post("/v1/apikeys", {}, { headers });
  const theirs = await other.post("/v1/apikeys", {}, { headers });
  assert.notEqual(mine.json.id, theirs.json.id);
  const rows = await server.context.db.query<{ answer: Buffer }>(
    sql`SELECT answer FROM idempotency_keys WHERE idempotency_key = 'order-4'`,
  );
  assert.equal(rows.length, 2);
  for (const { answer } of rows) assert.ok(!answer.includes("smk_"));
});

test("a request lost in a crash may run again when its lease has run out", async () => {
  const { db } = server.context;
  const headers = { "idempotency-key": "order-5" };
  const first = await client.post("/v1/apikeys", { description: "lost" }, { headers });
  await db.execute(sql`
    UPDATE idempotency_keys SET status = NULL, answer = NULL, lease_until = now() + interval '1 minute'
    WHERE idempotency_key = 'order-5'`);
  assert.equal((await client.post("/v1/apikeys", { description: "lost" }, { headers })).status, 409);
  await db.execute(
    sql`UPDATE idempotency_keys SET lease_until = now() - interval '1 second' WHERE idempotency_key = 'order-5'`,
  );
  const again = await client.post("/v1/apikeys", { description: "lost" }, { headers });
  assert.deepEqual([again.status, again.json], [200, first.json]);
});

test("a repetition finds a create whose answer was lost in a crash, named or not, also at the ceiling", async () => {
  const { db } = server.context;
  const plan = await client.post("/v1/plans", { name: "two", maxMachines: 2 });
  const tenant = await client.post("/v1/tenants", { name: "repeats", planId: plan.json.id });
  const own = client.withKey((await client.post("/v1/apikeys", { tenantId: tenant.json.id })).json.key);
  const source = { type: "image", reference: "local/busybox" };
  const made: string[] = [];
  for (const [key, body] of [
    ["create-1", { source, name: "once" }],
    ["create-2", { source }],
  ] as const) {
    const headers = { "idempotency-key": key };
    const first = await own.post("/v1/machines", body, { headers });
    assert.equal(first.status, 201);
    made.push(first.json.id);
    // What remains of a server that dies between the machine and its answer, when the lease has run out.
    await db.execute(sql`
      UPDATE idempotency_keys SET status = NULL, answer = NULL, lease_until = now() WHERE idempotency_key = ${key}`);
    const again = await own.post("/v1/machines", body, { headers });
    assert.deepEqual([again.status, again.json.id], [201, first.json.id]);
  }
  const listed = (await own.get("/v1/machines")).json as { id: string }[];
  assert.deepEqual(listed.map(({ id }) => id).sort(), made.sort());
});

test("a repetition finds a create that was answered with a fault of the database", async () => {
  const { db } = server.context;
  const headers = { "idempotency-key": "create-3" };
  const body = { source: { type: "image", reference: "local/busybox" }, name: "after-all" };
  const real = db.queryOne;
  let isLost = false;
  Object.assign(db, {
    queryOne: async (statement: Parameters<typeof real>[0]) => {
      const row = await real(statement);
      if (isLost || !/INSERT INTO machines/.test(statement.text)) return row;
      isLost = true;
      throw new DatabaseUnavailable(new Error("the connection was lost after the commit"));
    },
  });
  try {
    assert.equal((await client.post("/v1/machines", body, { headers })).status, 503);
  } finally {
    Object.assign(db, { queryOne: real });
  }
  assert.ok(isLost);
  const again = await client.post("/v1/machines", body, { headers });
  assert.equal(again.status, 201);
  const listed = (await client.get("/v1/machines")).json as { name: string }[];
  assert.equal(listed.filter(({ name }) => name === "after-all").length, 1);
});

test("a request that failed while the database was away may be repeated as soon as it is back", async () => {
  const { db } = server.context;
  const headers = { "idempotency-key": "create-while-away" };
  const body = { source: { type: "image", reference: "local/busybox" }, name: "while-away" };
  const { queryOne, execute } = db;
  const lost = new DatabaseUnavailable(new Error("the connection was lost"));
  let hasClaimed = false;
  Object.assign(db, {
    queryOne: async (statement: Parameters<typeof queryOne>[0]) => {
      if (hasClaimed) throw lost;
      hasClaimed = statement.text.includes("INSERT INTO idempotency_keys");
      return await queryOne(statement);
    },
    execute: async (statement: Parameters<typeof execute>[0]) => {
      if (hasClaimed) throw lost;
      return await execute(statement);
    },
  });
  try {
    assert.equal((await client.post("/v1/machines", body, { headers })).status, 503);
  } finally {
    Object.assign(db, { queryOne, execute });
  }
  const startedAt = performance.now();
  const again = async () => (await client.post("/v1/machines", body, { headers })).status === 201;
  await until(again, { what: "the repetition", deadlineMs: 60_000 });
  assert.ok(performance.now() - startedAt < 55_000, "before the lease ends");
});

test("an answer above 64 KiB is not stored, and a repetition gets advice", async () => {
  const headers = { "idempotency-key": "large" };
  const labels = Object.fromEntries(Array.from({ length: 32 }, (_, at) => [`label-${at}`, "x".repeat(200)]));
  const env = Object.fromEntries(Array.from({ length: 40 }, (_, at) => [`NAME_${at}`, "x".repeat(2_000)]));
  const body = { source: { type: "image", reference: "local/busybox" }, labels, env };
  const first = await client.post("/v1/machines", body, { headers });
  assert.equal(first.status, 201, first.text);
  assert.ok(first.text.length > 64 * 1024);
  const second = await client.post("/v1/machines", body, { headers });
  assert.equal(second.status, 409);
  assert.match(second.text, /was answered with 201 and is not repeated.*with a new key/);
});

test("a tenant has a bounded number of idempotency keys; known ones stay valid", async () => {
  const { db } = server.context;
  const tenant = await client.post("/v1/tenants", { name: "many-keys" });
  const { id: keyId, key: secret } = (await client.post("/v1/apikeys", { tenantId: tenant.json.id })).json;
  const own = client.withKey(secret);
  await db.execute(sql`
    INSERT INTO idempotency_keys (key_id, idempotency_key, fingerprint, owner, lease_until, expires_at)
    SELECT ${keyId}, 'old-' || n, '\\x00'::bytea, 'o', now(), now() + interval '1 hour' FROM generate_series(1, 9999) n`);
  const post = (key: string) => own.post("/v1/apikeys", { description: "d" }, { headers: { "idempotency-key": key } });
  const last = await post("last");
  assert.equal(last.status, 200);
  const refused = await post("one-more");
  assert.deepEqual([refused.status, refused.headers.get("retry-after")], [429, "60"]);
  assert.match(refused.text, /10000 idempotency keys in 24 hours/);
  assert.equal((await post("last")).text, last.text);
});

test("an idempotency key that is too long or odd answers 400, as the description says", async () => {
  const { pattern } = (await client.get("/openapi.json")).json.components.parameters.IdempotencyKey.schema;
  for (const key of ["x".repeat(256), "a b"]) {
    const answer = await client.post("/v1/apikeys", {}, { headers: { "idempotency-key": key } });
    assert.equal(answer.status, 400);
    assert.doesNotMatch(key, new RegExp(pattern));
  }
});

/** Sends bytes unchanged and returns everything received. */
function exchange(bytes: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const { hostname, port } = new URL(server.url);
    const socket = connect({ host: hostname, port: Number(port) });
    let received = "";
    socket.on("data", (chunk) => {
      received += chunk;
    });
    socket.on("error", reject);
    socket.on("close", () => resolve(received));
    socket.end(bytes);
  });
}

test("a request that is not HTTP, or has too large a head, still gets an answer with a request id", async () => {
  assert.match(await exchange("GARBAGE\r\n\r\n"), /^HTTP\/1.1 400 .*x-request-id: req-[0-9a-f]{32}/s);
  const large = `GET /v1/me HTTP/1.1\r\nhost: x\r\nlarge: ${"x".repeat(70_000)}\r\n\r\n`;
  assert.match(await exchange(large), /^HTTP\/1.1 431 .*x-request-id: req-/s);
});

test("a caller that disconnects during its body affects no other", async () => {
  const { hostname, port } = new URL(server.url);
  const socket = connect({ host: hostname, port: Number(port) });
  const head = `POST /v1/apikeys HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${server.adminKey.key}\r\ncontent-length: 100\r\n\r\n{`;
  await new Promise<void>((resolve) => socket.write(head, () => resolve()));
  socket.destroy();
  assert.equal((await client.get("/v1/me")).status, 200);
});

test("an idle connection is closed", async () => {
  const own = await startTestServer({ keepAliveMs: 1 });
  const { hostname, port } = new URL(own.url);
  const socket = connect({ host: hostname, port: Number(port) });
  const answer = once(socket, "data");
  socket.write("GET /livez HTTP/1.1\r\nhost: x\r\n\r\n");
  assert.match(String((await answer).at(0)), /^HTTP\/1.1 200 .*connection: keep-alive/is);
  await until(() => socket.closed, { what: "the server to close the connection" });
});

test("stopping lets a running request finish and refuses new connections", async () => {
  const own = await startTestServer();
  const { db } = own.context;
  await db.execute(
    sql`CREATE FUNCTION slow_insert() RETURNS trigger AS 'BEGIN PERFORM pg_sleep(0.5); RETURN NEW; END' LANGUAGE plpgsql`,
  );
  await db.execute(sql`CREATE TRIGGER slow_insert BEFORE INSERT ON api_keys EXECUTE FUNCTION slow_insert()`);
  const running = own.client.post("/v1/apikeys", {});
  await until(async () => (await db.query(sql`SELECT FROM pg_stat_activity WHERE wait_event = 'PgSleep'`)).length > 0);
  const stopped = own.stop();
  await until(
    () =>
      own.client.get("/livez").then(
        () => false,
        () => true,
      ),
    { what: "new connections to be refused" },
  );
  assert.equal((await running).status, 200);
  await stopped;
});
