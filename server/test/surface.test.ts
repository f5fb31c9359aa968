/**
 * The whole surface: every endpoint of the contract without a key, without scope, and with bad input. Other
 * tenants: isolation.test.ts.
 *
 * These tests do not know what an endpoint does. They check of each answer: the right status, never a 500,
 * and a request id.
 */
import assert from "node:assert/strict";
import { request as httpRequest } from "node:http";
import { test } from "node:test";
import type { Endpoint } from "@flotilla/contract/endpoint";
import { type EndpointName, endpointList } from "@flotilla/contract/endpoints";
import { EXEC_BODY_BYTES_MAX } from "@flotilla/contract/limits";
import { SCOPES, type Scope } from "@flotilla/contract/scopes";
import fc from "fast-check";
import { sql } from "../src/db/database.ts";
import type { Answer, CallOptions, Client } from "./support/client.ts";
import { sampleBody, samplePath } from "./support/sample.ts";
import { startTestServer } from "./support/server.ts";

const server = await startTestServer();
const admin = server.client;
const anonymous = admin.withKey(null);
const UNKNOWN_KEY = `smk_${"x".repeat(43)}`;

/** Declared as always answering 501. */
const SNAPSHOTS: readonly EndpointName[] = ["createSnapshot", "listSnapshots"];
const isPending = (name: EndpointName): boolean => SNAPSHOTS.includes(name);

const all = endpointList.filter(([, endpoint]) => endpoint.isUpgrade !== true);
const guarded = all.filter(([, endpoint]) => endpoint.access !== "public");
const keyed = guarded.filter(([, endpoint]) => !isForNodes(endpoint));
const scoped = keyed.filter(([, endpoint]) => typeof endpoint.access !== "string");
const withJsonBody = keyed.filter(([name, endpoint]) => endpoint.body?.kind === "json" && !isPending(name));

function isForNodes({ access }: Endpoint): boolean {
  return access === "joinToken" || access === "nodeCredential";
}

let calls = 0;

/**
 * Calls the endpoint with a valid body, for an id that does not exist. From another address each time: so
 * many refusals of one come later.
 */
async function call(client: Client, endpoint: Endpoint, options: CallOptions & { id?: string } = {}): Promise<Answer> {
  calls += 1;
  const { id, headers, ...rest } = options;
  const hasBody = "raw" in rest || "body" in rest || endpoint.body === undefined;
  const body = endpoint.body?.kind === "bytes" ? { raw: "bytes" } : { body: sampleBody(endpoint) };
  const answer = await client.call(endpoint.method, samplePath(endpoint.path, id), {
    ...(hasBody ? {} : body),
    ...rest,
    headers: { "x-forwarded-for": `10.0.${calls >> 8}.${calls & 255}`, ...headers },
  });
  assert.match(answer.headers.get("x-request-id") ?? "", /^[A-Za-z0-9._-]{1,128}$/);
  assert.notEqual(answer.status, 500, `${endpoint.method} ${endpoint.path}: ${answer.text}`);
  return answer;
}

const title = ({ method, path }: Endpoint): string => `${method} ${path}`;

async function keyWith(scopes: readonly Scope[], more: object = {}): Promise<Client> {
  const answer = await admin.post("/v1/apikeys", { scopes, ...more });
  assert.equal(answer.status, 200, answer.text);
  return admin.withKey(answer.json.key);
}

test("without a key every guarded endpoint answers 401 with an empty body", async () => {
  for (const [, endpoint] of guarded) {
    const answer = await call(anonymous, endpoint);
    assert.deepEqual([answer.status, answer.method === "HEAD" ? "" : answer.text], [401, ""], title(endpoint));
    assert.equal(answer.headers.get("x-error-code"), "missing_key", title(endpoint));
  }
});

test("an unknown key answers 401 in the fixed form", async () => {
  for (const key of [UNKNOWN_KEY, "smk_short", "something-else"]) {
    for (const [, endpoint] of guarded) {
      const answer = await call(admin.withKey(key), endpoint);
      assert.equal(answer.status, 401, title(endpoint));
      assert.equal(answer.headers.get("content-type"), "application/json");
      if (answer.method !== "HEAD") assert.equal(answer.text, '{"code":"unknown_key","error":"unknown API key"}');
    }
  }
});

test("an expired key answers 401 in the fixed form", async () => {
  const expired = await keyWith(["*"], { expiresInDays: 7 });
  await server.context.db.execute(sql`UPDATE api_keys SET expires_at = now() WHERE expires_at IS NOT NULL`);
  for (const [, endpoint] of keyed) {
    const answer = await call(expired, endpoint);
    assert.equal(answer.status, 401, title(endpoint));
    if (answer.method !== "HEAD") assert.equal(answer.text, '{"code":"expired_key","error":"API key has expired"}');
  }
});

test("a key with every scope but the needed ones answers 403 and names them", async () => {
  for (const [, endpoint] of scoped) {
    const needed = endpoint.access as readonly Scope[];
    const others = SCOPES.filter((scope) => !needed.includes(scope) && scope !== "*" && scope !== "admin");
    const answer = await call(await keyWith(others), endpoint);
    assert.equal(answer.status, 403, title(endpoint));
    if (answer.method !== "HEAD") assert.equal(answer.text, `missing scope: ${needed.join(" or ")}`);
  }
});

test("a key without a scope that is needed besides answers 403 and names it", async () => {
  const needing = scoped.filter(([, endpoint]) => endpoint.alsoNeeds !== undefined);
  assert.deepEqual(
    needing.map(([name, { alsoNeeds }]) => `${name} ${alsoNeeds}`),
    [
      "createShare machine:exec",
      ...["createWebhook", "updateWebhook", "replayWebhook", "listWebhookDeliveries", "redeliverWebhook"].map(
        (name) => `${name} machine:read`,
      ),
      "adoptMachine machine:delete",
      "createAppShare machine:exec",
    ],
  );
  for (const [, endpoint] of needing) {
    const missing = endpoint.alsoNeeds ?? [];
    const others = SCOPES.filter((scope) => !missing.includes(scope) && scope !== "*" && scope !== "admin");
    const answer = await call(await keyWith(others), endpoint);
    assert.deepEqual([answer.status, answer.text], [403, `missing scope: ${missing.join(" and ")}`], title(endpoint));
  }
});

test("pending endpoints answer 501, and no other does", async () => {
  for (const [name, endpoint] of keyed) {
    const answer = await call(admin, endpoint);
    assert.equal(answer.status === 501, isPending(name), `${name}: ${answer.status} ${answer.text}`);
  }
  const upgrades = endpointList.filter(([, endpoint]) => endpoint.isUpgrade === true);
  for (const [name, endpoint] of upgrades) {
    const answer = await admin.get(samplePath(endpoint.path));
    assert.equal(answer.status === 501, isPending(name), `${name}: ${answer.status}`);
  }
});

test("a body that is not JSON answers 400", async () => {
  for (const [, endpoint] of withJsonBody) {
    for (const raw of ["{", "not json", "\u0000", new Uint8Array([0x22, 0xff, 0x22])]) {
      const answer = await call(admin, endpoint, { raw });
      assert.deepEqual([answer.status, answer.headers.get("x-error-code")], [400, "invalid_json"], title(endpoint));
    }
  }
});

test("an empty body answers 400 where one is needed, whatever the content type", async () => {
  for (const [, endpoint] of withJsonBody) {
    if (endpoint.body?.kind !== "json" || endpoint.body.isOptional) continue;
    const answer = await call(admin, endpoint, { raw: "", headers: { "content-type": "text/strange; x" } });
    assert.equal(answer.status, 400, title(endpoint));
  }
});

test("a value of the wrong type answers 422 and says where", async () => {
  for (const [name, endpoint] of withJsonBody) {
    if (name === "heartbeatNode") continue;
    for (const body of [[], "text", 7]) {
      const answer = await call(admin, endpoint, { body });
      assert.equal(answer.status, 422, title(endpoint));
      assert.match(answer.text, /^Failed to deserialize the JSON body into the target type: /);
    }
    const sample = sampleBody(endpoint) as Record<string, unknown>;
    for (const field of Object.keys(sample)) {
      const answer = await call(admin, endpoint, { body: { ...sample, [field]: { wrong: [] } } });
      assert.equal(answer.status, 422, `${title(endpoint)} ${field}`);
      assert.ok(answer.text.includes(field), answer.text);
      const { [field]: _, ...without } = sample;
      const missing = await call(admin, endpoint, { body: without });
      assert.ok(missing.text.includes(`missing field \`${field}\``), missing.text);
    }
  }
});

test("unknown fields are ignored and null means absent", async () => {
  for (const [, endpoint] of withJsonBody) {
    if (endpoint.body?.kind !== "json") continue;
    const { properties = {}, required = [] } = endpoint.body.schema as {
      properties?: Record<string, unknown>;
      required?: readonly string[];
    };
    const absent = Object.keys(properties).filter((name) => !required.includes(name));
    const nulls = Object.fromEntries(absent.map((name) => [name, null]));
    const answer = await call(admin, endpoint, {
      body: { ...(sampleBody(endpoint) as object), ...nulls, "": 1, zz: {} },
    });
    assert.ok(![400, 422].includes(answer.status), `${title(endpoint)}: ${answer.status} ${answer.text}`);
  }
});

test("a body that is too large answers 413", async () => {
  for (const [, endpoint] of withJsonBody) {
    if (endpoint.body?.kind !== "json" || (endpoint.body.maxBytes ?? 0) >= EXEC_BODY_BYTES_MAX) continue;
    const raw = " ".repeat((endpoint.body.maxBytes ?? 1024 * 1024) + 1);
    const answer = await call(admin, endpoint, { raw });
    assert.equal(answer.status, 413, title(endpoint));
  }
});

test("an unsupported method answers 405 and lists the supported ones", async () => {
  const paths = new Map<string, Endpoint[]>();
  for (const [, endpoint] of all) {
    for (const path of [endpoint.path, ...(endpoint.aliases ?? [])])
      paths.set(path, [...(paths.get(path) ?? []), endpoint]);
  }
  for (const [path, of] of paths) {
    const methods = of.map((endpoint) => endpoint.method);
    for (const method of ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND"]) {
      if ((methods as readonly string[]).includes(method) || of.some((endpoint) => endpoint.isBridge)) continue;
      const answer = await admin.call(method, samplePath(path));
      assert.equal(answer.status, 405, `${method} ${path}`);
      for (const served of methods) assert.ok(answer.headers.get("allow")?.includes(served), `${method} ${path}`);
    }
  }
});

test("aliases answer like their endpoint", async () => {
  for (const [, endpoint] of all) {
    const own = await call(admin, endpoint);
    for (const path of endpoint.aliases ?? []) {
      const answer = await call(admin, { ...endpoint, path });
      assert.equal(answer.status, own.status, path);
    }
  }
});

test("a safe request id comes back, and an unsafe one is replaced, on every endpoint", async () => {
  for (const [, endpoint] of all) {
    for (const client of [admin, anonymous]) {
      const safe = await call(client, endpoint, { headers: { "x-request-id": "Client-1.2_3" } });
      assert.equal(safe.headers.get("x-request-id"), "Client-1.2_3", title(endpoint));
      for (const unsafe of ["a b", "x".repeat(129), "a;b", "<a>"]) {
        const answer = await call(client, endpoint, { headers: { "x-request-id": unsafe } });
        assert.notEqual(answer.headers.get("x-request-id"), unsafe, title(endpoint));
      }
    }
  }
});

/** Sends a path unchanged, which fetch would not. */
function rawStatus(method: string, path: string): Promise<number> {
  return new Promise((resolve, reject) => {
    const { hostname, port } = new URL(server.url);
    const headers = { authorization: `Bearer ${server.adminKey.key}`, "content-length": "0" };
    const sent = httpRequest({ hostname, port, method, path, headers }, (response) => {
      response.resume();
      response.on("end", () => resolve(response.statusCode ?? 0));
    });
    sent.on("error", reject);
    sent.end();
  });
}

test("odd path parameters answer 404 and never 500", async () => {
  const odd = [
    "%00",
    "%",
    "%zz",
    "%ff%fe",
    "a%2Fb",
    "..",
    "%2e%2e",
    "'%20OR%201=1",
    "x".repeat(4000),
    "%F0%9F%92%A5",
    "%ED%A0%80",
  ];
  for (const [name, endpoint] of keyed) {
    if (!endpoint.path.includes("{") || isPending(name) || endpoint.body?.kind === "json") continue;
    for (const id of odd) {
      const status = await rawStatus(endpoint.method, samplePath(endpoint.path, id));
      assert.ok([404, 405].includes(status), `${endpoint.method} ${endpoint.path} with ${id.slice(0, 20)}: ${status}`);
    }
  }
});

test("query parameters of the wrong type answer 422", async () => {
  for (const [name, endpoint] of keyed) {
    if (isPending(name) || endpoint.query === undefined) continue;
    const { properties = {} } = endpoint.query as { properties?: Record<string, { type?: string; enum?: unknown }> };
    for (const [field, { type, enum: values }] of Object.entries(properties)) {
      if (type === "array" || (type === "string" && values === undefined)) continue;
      const path = `${samplePath(endpoint.path)}?${field}=wrong%20type`;
      const answer = await admin.call(endpoint.method, path, { body: sampleBody(endpoint) });
      assert.equal(answer.status, 422, `${title(endpoint)} ${field}: ${answer.text}`);
      assert.ok(answer.text.includes(field), answer.text);
    }
  }
});

test("garbage in bodies never answers 500", async () => {
  const garbage = fc.oneof(
    fc.json(),
    fc.string({ unit: "binary" }),
    fc.constantFrom('{"__proto__":{"a":1}}', '"\\ud800"', "1e999", "[[[[[]]]]]"),
  );
  for (const [, endpoint] of keyed) {
    if (endpoint.body?.kind !== "json") continue;
    await fc.assert(
      fc.asyncProperty(garbage, async (raw) => void (await call(admin, endpoint, { raw }))),
      { numRuns: 20 },
    );
    const sample = sampleBody(endpoint) as Record<string, unknown>;
    const { properties = {} } = endpoint.body.schema as { properties?: Record<string, unknown> };
    const near = fc.record(
      Object.fromEntries(
        Object.keys(properties).map((name) => [name, fc.oneof(fc.jsonValue(), fc.string({ unit: "binary" }))]),
      ),
      { requiredKeys: [] },
    );
    await fc.assert(
      fc.asyncProperty(near, async (fields) => void (await call(admin, endpoint, { body: { ...sample, ...fields } }))),
      { numRuns: 20 },
    );
  }
});
