/**
 * Callers who are refused again and again, or ask without reading: what they cost the server, and what they
 * hide.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { AuditRecord } from "@flotilla/contract/audit";
import { AuditRecorder } from "../src/audit/recorder.ts";
import { sql } from "../src/db/database.ts";
import { head, wire } from "../../test/support/wire.ts";
import { until } from "../../test/support/until.ts";
import { startTestServer } from "./support/server.ts";

const PIPELINED_MAX = 16;
/** More than a caller is permitted in half a minute with a burst of 5 and one a second. */
const CALLS = 35;

const server = await startTestServer();
const { client, context } = server;

/** The answers to requests that are all sent before one is read. */
async function pipelined(count: number, path: string): Promise<{ answers: number; isClosed: boolean }> {
  const caller = await wire(server.url);
  caller.send(head("GET", path, null).repeat(count));
  const answers = (): number => caller.received().split("HTTP/1.1 200 ").length - 1;
  await until(() => caller.isClosed() || answers() === count, { what: "all answers, or the end of the connection" });
  const found = { answers: answers(), isClosed: caller.isClosed() };
  caller.socket.destroy();
  return found;
}

test("a connection may ask a few times at once, and ends when it asks for more", async () => {
  assert.deepEqual(await pipelined(PIPELINED_MAX, "/livez"), { answers: PIPELINED_MAX, isClosed: false });
  for (const path of ["/livez", "/openapi.json", "/docs/swagger-ui-bundle.js"]) {
    const found = await pipelined(400, path);
    assert.ok(found.isClosed && found.answers <= PIPELINED_MAX, `${path}: ${JSON.stringify(found)}`);
  }
});

test("an upgrade that is asked for before the answer to an earlier request is served as a plain request", async () => {
  const upgrade = { connection: "upgrade", upgrade: "websocket" };
  const path = `/v1/machines/mach-${"0".repeat(32)}/exec/interactive`;
  for (const [earlier, status] of [
    [{}, 200],
    [{ expect: "something" }, 417],
  ] as const) {
    const caller = await wire(server.url);
    caller.send(head("GET", "/docs", null, earlier) + head("GET", path, client.key, upgrade));
    const isOver = (): boolean => caller.isClosed() || caller.received().includes("call it with a WebSocket client");
    await until(isOver, { what: `the second answer, or the end of the connection, after status ${status}` });
    assert.match(caller.received(), new RegExp(`^HTTP/1.1 ${status} `));
    caller.socket.destroy();
  }
});

test("what follows a request and is not HTTP ends its answer, and adds nothing to it", async () => {
  const caller = await wire(server.url);
  caller.send(head("GET", "/v1/events?follow=true", client.key));
  await until(() => caller.received().includes(" 200 "), { what: "the beginning of the stream" });
  caller.send("this is not HTTP\r\n\r\n");
  await until(() => caller.isClosed(), { what: "the end of the connection" });
  assert.equal(caller.received().split("HTTP/1.1 ").length, 2, caller.received());
});

test("the documents of the server are whole, with the same content each time", async () => {
  for (const path of ["/openapi.json", "/docs/swagger-ui-bundle.js", "/docs/swagger-ui.css"]) {
    const [first, second] = await Promise.all([client.get(path), client.get(path)]);
    assert.equal(first.status, 200);
    assert.equal(first.text.length > 10_000 && first.text === second.text, true, path);
  }
  assert.ok((await client.get("/openapi.json")).json.paths["/v1/machines"] !== undefined);
});

test("refusals of a known caller count for its rate", async () => {
  const plan = await client.post("/v1/plans", { name: "few", rateRequestsPerSecond: 1, rateBurst: 5 });
  const statuses = async (
    scopes: readonly string[],
    ask: "POST /v1/machines" | "GET /v1/nope" | "PUT /v1/machines",
  ) => {
    const { id } = (await client.post("/v1/tenants", { name: ask, planId: plan.json.id })).json;
    const key = (await client.post("/v1/apikeys", { tenantId: id, scopes })).json.key;
    const [method = "", path = ""] = ask.split(" ");
    const own = client.withKey(key);
    return await Promise.all(Array.from({ length: CALLS }, async () => (await own.call(method, path)).status));
  };
  for (const [ask, status] of [
    ["POST /v1/machines", 403],
    ["GET /v1/nope", 404],
    ["PUT /v1/machines", 405],
  ] as const) {
    const found = await statuses(["machine:read"], ask);
    const count = (wanted: number): number => found.filter((each) => each === wanted).length;
    assert.ok(count(status) >= 5 && count(429) >= 1 && count(status) + count(429) === CALLS, `${ask}: ${found}`);
  }
});

test("a flood of calls without a key gets its refusals later", async () => {
  const startedAt = performance.now();
  for (let count = 0; count < 110; count += 1) {
    const answer = await fetch(`${server.url}/v1/machines`);
    assert.equal(answer.status, 401);
    await answer.arrayBuffer();
  }
  // A hundred at once, then twenty a second; some have come back meanwhile.
  const tookMs = performance.now() - startedAt;
  assert.ok(tookMs > 200, `110 refusals took ${tookMs} ms`);
});

test("a tenant that is refused again and again hides neither another one's commands nor its refusals", async () => {
  const [flooding, calling, refused] = await Promise.all(
    ["flooding", "calling", "refused"].map(
      async (name) => (await client.post("/v1/tenants", { name })).json.id as string,
    ),
  );
  const recorder = new AuditRecorder(context);
  const note = (tenantId: string | undefined, status: number, type = "machines.execMachine"): void => {
    const record: AuditRecord = {
      ...{
        at: new Date(context.clock.now()).toISOString(),
        requestId: "req-1",
        type,
        resource: null,
      },
      ...{ keyId: "key-1", scopes: [], address: "192.0.2.1", status, errorCode: status < 400 ? null : "missing_scope" },
    };
    if (status >= 400) recorder.note(tenantId ?? null, record, "whateverNamed");
    else assert.equal(recorder.sent(tenantId ?? null, { ...record, status: 102 }).answered(record), undefined);
  };
  // Not alike, so that each would have a row.
  for (let count = 0; count < 5_000; count += 1) note(flooding, 403, `machines.type${count}`);
  for (let count = 0; count < 60; count += 1) note(calling, 200);
  for (let count = 0; count < 10; count += 1) note(refused, 403);
  const rows = async (tenantId: string | undefined): Promise<number> => {
    const found = await context.db.query(
      sql`SELECT 1 FROM audit_log WHERE tenant_id = ${tenantId} AND record LIKE '%req-1%'`,
    );
    return found.length;
  };
  await until(async () => (await rows(calling)) === 60 && (await rows(refused)) === 10, {
    what: "all rows of the others",
  });
  await recorder.stop();
  assert.equal(await rows(flooding), 500);
});
