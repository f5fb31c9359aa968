/**
 * Every answer that the contract documents for an endpoint of machines is produced here once, and no other.
 *
 * The contract determines what is tried: a test for each code covers all endpoints that document it, so a new
 * endpoint is tried automatically, and there are no exceptions: the contract does not document an answer that
 * cannot be produced here.
 */
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";
import { type EndpointName, endpointList } from "@flotilla/contract/endpoints";
import { type ErrorCode, IMAGE_FAULTS } from "@flotilla/contract/errors";
import { JSON_BODY_BYTES_MAX } from "@flotilla/contract/limits";
import { SCOPES } from "@flotilla/contract/scopes";
import { sql } from "../src/db/database.ts";
import { claimKey } from "../src/api/idempotency-store.ts";
import type { Answer, Client } from "./support/client.ts";
import { httpGuest } from "./support/guest.ts";
import { type Asked, documentedCodes, endpointOf, Ledger } from "./support/ledger.ts";
import { FACTS, putPackage } from "./support/packages.ts";
import { createMachine, SOURCE, startMachineServer } from "./support/machine-server.ts";
import { startProxy } from "./support/proxy.ts";
import { sampleBody, samplePath } from "./support/sample.ts";
import { startTestServer } from "./support/server.ts";
import { until } from "../../test/support/until.ts";

/**
 * Endpoints that are newer than this test: what they lack is printed and does not fail it. Remove them one by
 * one.
 */
const NEWCOMERS: readonly EndpointName[] = [
  "createBranch",
  "createBranches",
  "assignBranch",
  "createCheckpoint",
  "adoptMachine",
  "getLineage",
  "exportMachine",
];

/** Deletes come last, that of the machine last of all. */
const turnOf = (name: EndpointName): number => (name === "deleteMachine" ? 2 : name.startsWith("delete") ? 1 : 0);

const NAMES: readonly EndpointName[] = endpointList
  // moves.test.ts has the answers to operators.
  .filter(([, { path, access }]) => path.startsWith("/v1/machines") && String(access) !== "admin")
  .map(([name]) => name)
  .toSorted((a, b) => turnOf(a) - turnOf(b));
const SETTLED = NAMES.filter((name) => !NEWCOMERS.includes(name));

const { server, node, client, context } = await startMachineServer();
const ledger = new Ledger();

/** Another server of the cluster, which hardly waits for nodes. */
async function startHurried(): Promise<Client> {
  const hurried = await startTestServer({ databaseUrl: server.databaseUrl, nodeWaitMs: 300 });
  return hurried.client.withKey(server.adminKey.key);
}

const guest = await httpGuest((_request, response) => response.end("hello"));

const PATIENT = { deadlineMs: 60_000 };

function machine(
  env: Record<string, string> = {},
  owner: Client = client,
  more: Readonly<Record<string, unknown>> = {},
): Promise<string> {
  const scripted = { FAKE_INTERPRETERS: "python3", FAKE_PORTS: `80=${guest.port}` };
  const resources = { cpus: 1, memoryMb: 128 };
  return createMachine(owner, { resources, ports: [{ port: 80 }], env: { ...scripted, ...env }, ...more });
}

async function tenant(plan: object): Promise<Client> {
  const made = await client.post("/v1/plans", { name: `plan ${JSON.stringify(plan)}`, ...plan });
  const owner = await client.post("/v1/tenants", { name: `of ${made.json.id}`, planId: made.json.id });
  const key = await client.post("/v1/apikeys", { tenantId: owner.json.id });
  assert.equal(key.status, 200, key.text);
  return client.withKey(key.json.key);
}

/** Request bodies where the contract's smallest one would not do. */
const BODIES: Readonly<Partial<Record<EndpointName, object>>> = {
  createMachine: { source: SOURCE },
  exec: { command: "true" },
  execStream: { command: "true" },
  execInSession: { command: "true" },
  runCode: { language: "python", code: "true" },
  pullMachineImage: { image: "local/busybox" },
};
const QUERIES: Readonly<Partial<Record<EndpointName, string>>> = {
  readFile: "path=/workspace/file",
  writeFile: "path=/workspace/file",
};
const PARAMETERS: Readonly<Record<string, string>> = {
  session_id: "one",
  terminal_id: "0".repeat(32),
  "path...": "workspace/file",
  port: "80",
};

type CallParts = Partial<Omit<Asked, "path">> & { readonly id?: string; readonly query?: string };

/** A valid call, for a machine that need not exist. */
function asked(name: EndpointName, { id = "none-such", query, raw, body, ...rest }: CallParts = {}): Asked {
  const endpoint = endpointOf(name);
  const filled = endpoint.path.replace(/\{([a-z_.]+)\}/g, (whole, parameter: string) =>
    parameter === "id" ? id : (PARAMETERS[parameter] ?? samplePath(whole)),
  );
  const search = query ?? QUERIES[name];
  const given = { ...(raw === undefined ? {} : { raw }), ...(body === undefined ? {} : { body }) };
  const usual =
    endpoint.body?.kind === "bytes"
      ? { raw: "0123456789" }
      : endpoint.body === undefined
        ? {}
        : { body: BODIES[name] ?? sampleBody(endpoint) };
  const isBare = endpoint.method === "GET" || endpoint.method === "HEAD";
  const content = isBare ? {} : raw === undefined && body === undefined ? usual : given;
  return { path: search === undefined ? filled : `${filled}?${search}`, ...content, ...rest };
}

const call = (name: EndpointName, parts?: CallParts, as: Client = client): Promise<Answer> =>
  ledger.call(as, name, asked(name, parts));

/**
 * Tries the code with every endpoint, and returns which of those that document it answered otherwise. The
 * others' answers are in the ledger as well.
 */
async function provoke(code: ErrorCode, how: (name: EndpointName) => Promise<Answer | undefined>): Promise<void> {
  const otherwise: string[] = [];
  for (const name of NAMES) {
    const answer = await how(name);
    const isExpected = SETTLED.includes(name) && documentedCodes(name).includes(code);
    if (!isExpected) continue;
    if (answer?.headers.get("x-error-code") !== code)
      otherwise.push(`${name}: ${answer?.status ?? "no answer"} ${answer?.text.slice(0, 200) ?? ""}`);
  }
  assert.deepEqual(otherwise, [], `these document ${code} and answered otherwise`);
}

/** A session with the id that calls use, where the endpoint needs one. */
async function withSession(name: EndpointName, id: string, as: Client = client): Promise<string> {
  if (endpointOf(name).path.includes("{session_id}")) await as.post(`/v1/machines/${id}/sessions`, { id: "one" });
  return id;
}

test("each endpoint gives each of its successful answers", async () => {
  const started = await machine();
  await client.post(`/v1/machines/${started}/start`);
  await client.call("PUT", `/v1/machines/${started}/files/workspace/file`, { raw: "0123456789" });
  const further: Readonly<Partial<Record<string, CallParts>>> = {
    "startMachine 202": { query: "detach=true" },
    "deleteMachine 200": { query: "includeUsage=true" },
    "readFile 206": { headers: { range: "bytes=0-1" } },
    "readFileAt 206": { headers: { range: "bytes=0-1" } },
  };
  for (const name of SETTLED) {
    for (const status of Object.keys(endpointOf(name).answers)) {
      const parts = further[`${name} ${status}`];
      const own = name === "deleteMachine" || name === "createSession" || parts?.query === "detach=true";
      const id = own ? await machine() : await withSession(name, started);
      const answer = await call(name, { id, ...parts });
      assert.equal(String(answer.status), status, `${name}: ${answer.text}`);
    }
  }
});

test("no key, a wrong one, one that expired, one without the scope", async () => {
  await provoke("missing_key", (name) => call(name, {}, client.withKey(null)));
  await provoke("unknown_key", (name) => call(name, {}, client.withKey(`smk_${"x".repeat(43)}`)));
  const keyOf = async (body: object) => client.withKey((await client.post("/v1/apikeys", body)).json.key);
  const expired = await keyOf({ expiresInDays: 7 });
  await server.context.db.execute(sql`UPDATE api_keys SET expires_at = now() WHERE expires_at IS NOT NULL`);
  await provoke("expired_key", (name) => call(name, {}, expired));
  const useless = await keyOf({ scopes: SCOPES.filter((scope) => scope === "billing:read") });
  await provoke("missing_scope", (name) => call(name, {}, useless));
});

test("a suspended tenant, and one that asks too often", async () => {
  const suspended = await tenant({ maxApps: 1 });
  const { tenantId } = (await suspended.get("/v1/me")).json;
  await client.post(`/v1/tenants/${tenantId}/suspend`);
  await until(async () => (await suspended.get("/v1/machines")).status === 402, PATIENT);
  await provoke("payment_required", (name) => call(name, {}, suspended));
  const eager = await tenant({ rateRequestsPerSecond: 1, rateBurst: 1 });
  await provoke("rate_limited", (name) =>
    until(async () => {
      const answer = await call(name, {}, eager);
      return answer.status === 429 && answer;
    }, PATIENT),
  );
});

test("bodies and parameters that do not match the schema", async () => {
  await provoke("invalid_json", (name) => call(name, { raw: "{" }));
  await provoke("invalid_body", (name) => {
    const { body, query } = endpointOf(name);
    if (body?.kind === "json") return call(name, { body: [] });
    const { properties = {} } = (query ?? {}) as { properties?: Record<string, { type?: string }> };
    const [field = ""] =
      Object.entries(properties).find(([, { type }]) => type === "integer" || type === "boolean") ?? [];
    const named = "path" in properties ? "path" : Object.keys(properties)[0];
    return call(name, { query: field === "" ? `${named}=%00` : `${field}=wrong%20type` });
  });
  await provoke("unsupported_encoding", (name) =>
    call(name, { raw: "not really", headers: { "content-encoding": "gzip" } }),
  );
  await provoke("body_too_large", (name) => {
    const { body } = endpointOf(name);
    const bytes = body?.kind === "json" ? (body.maxBytes ?? JSON_BODY_BYTES_MAX) : JSON_BODY_BYTES_MAX;
    return call(name, { raw: " ".repeat(bytes + 1) });
  });
});

test("invalid requests, and things that do not exist", async () => {
  const id = await machine();
  const badEnvironment = { env: { "": "x" } };
  const senseless: Readonly<Partial<Record<EndpointName, CallParts>>> = {
    createMachine: { body: { source: { type: "image", reference: "two parts" } } },
    exec: { body: { command: "true", ...badEnvironment } },
    execStream: { body: { command: "true", ...badEnvironment } },
    execInSession: { body: { command: "true", ...badEnvironment } },
    runCode: { body: { ...BODIES.runCode, ...badEnvironment } },
    openTerminal: { isPlain: true },
    watchTerminal: { isPlain: true },
    createSession: { body: { cwd: "relative" } },
    readFile: { query: "" },
    writeFile: { query: "" },
    pullMachineImage: { body: { image: "two parts" } },
    listMachineLogs: { query: "tail=20000" },
    getMachineUsage: { query: "from=yesterday" },
  };
  await provoke("invalid_request", async (name) => {
    const parts = senseless[name] ?? { headers: { "idempotency-key": "two parts" } };
    if (!endpointOf(name).path.includes("/files/{path...}")) return call(name, { id, ...parts });
    // A path longer than any system permits.
    return ledger.call(client, name, {
      ...asked(name, { id }),
      path: `/v1/machines/${id}/files/${"x/".repeat(2100)}x`,
    });
  });
  const packaged = { body: { source: { type: "smolmachine", reference: "missing" } } };
  await provoke("not_found", (name) => call(name, name === "createMachine" ? packaged : {}));
});

test("idempotency keys of another request, the same or a different one", async () => {
  const at = context.clock.now();
  const later = at + 600_000;
  const { subject: keyId } = (await client.get("/v1/me")).json;
  /** As if the request with these parts ran on another server. */
  const running = async (key: string, parts: readonly (string | Buffer)[]): Promise<void> => {
    const hash = createHash("sha256");
    for (const part of parts) hash.update(String(part.length)).update(":").update(part);
    const claim = { keyId, key, owner: "another request", fingerprint: hash.digest() };
    await claimKey(context.db, { ...claim, at, leaseUntil: later, expiresAt: later });
  };
  for (const code of ["idempotency_in_progress", "idempotency_mismatch"] as const) {
    await provoke(code, async (name) => {
      const { path, body } = asked(name);
      const isStreamed = endpointOf(name).body?.kind === "bytes";
      const bytes = Buffer.from(isStreamed ? "a streamed body" : body === undefined ? "" : JSON.stringify(body));
      const key = `${code}-${name}`;
      await running(key, code === "idempotency_mismatch" ? ["another"] : ["POST", path, bytes]);
      return call(name, { headers: { "idempotency-key": key } });
    });
  }
});

test("names in use, and ceilings that are reached", async () => {
  await client.post("/v1/machines", { source: SOURCE, name: "taken" });
  await provoke("name_taken", (name) => call(name, { body: { source: SOURCE, name: "taken" } }));
  const small = await tenant({ maxMachines: 3, maxConcurrentMachines: 1 });
  const running = await machine({}, small);
  const stopped = await machine({}, small);
  const full = await machine({}, small);
  await holdAsManyAsPossible(full);
  assert.equal((await small.post(`/v1/machines/${running}/start`)).status, 200);
  await provoke("quota_exceeded", async (name) => {
    if (name === "createSession" || name === "createConnectToken") return call(name, { id: full }, small);
    return call(name, { id: await withSession(name, stopped, small) }, small);
  });
});

/** Holds as many as possible, for limits per machine. */
async function holdAsManyAsPossible(id: string): Promise<void> {
  const { db } = server.context;
  await db.execute(sql`
    INSERT INTO machine_sessions (machine_id, id, env, created_at)
    SELECT ${id}, 'full' || n, '{}', now() FROM generate_series(1, 256) n ON CONFLICT DO NOTHING`);
  await db.execute(sql`
    INSERT INTO connect_tokens (token_hash, machine_id, key_id, expires_at)
    SELECT sha256((${id} || n)::bytea), ${id}, (SELECT min(id) FROM api_keys), now() + interval '1 hour'
    FROM generate_series(1, 1000) n ON CONFLICT DO NOTHING`);
}

test("a cluster without a node has no room", async () => {
  const { client: alone } = await startTestServer();
  const id = await machine({}, alone);
  await provoke("no_capacity", async (name) => call(name, { id: await withSession(name, id, alone) }, alone));
});

test("a failed boot, and a machine in error", async () => {
  await provoke("start_failed", async (name) => {
    const id = await machine({ FAKE_BOOT_FAIL: "1" });
    return call(name, { id: await withSession(name, id) });
  });
  await provoke("conflict", async (name) => {
    const failed = await machine({ FAKE_BOOT_FAIL: "1" });
    await client.post(`/v1/machines/${failed}/start`);
    switch (name) {
      case "startMachine": {
        const id = await machine({ FAKE_BOOT_MS: "600000" });
        const starting = call(name, { id });
        await until(async () => (await client.get(`/v1/machines/${id}`)).json.state === "creating", PATIENT);
        await client.post(`/v1/machines/${id}/stop`);
        return starting;
      }
      case "stopMachine": {
        const id = await machine({ FAKE_SUSPEND_FAIL: "conflict" });
        await client.post(`/v1/machines/${id}/start`);
        return call(name, { id, query: "keepMemory=true" });
      }
      case "createSession":
        await withSession("execInSession", failed);
        return call(name, { id: failed, body: { id: "one" } });
      case "pullMachineImage":
        return call(name, { id: await machine() });
      default:
        return call(name, { id: await withSession(name, failed) });
    }
  });
});

test("unavailable images", async () => {
  const references = {
    image_not_found: "team/missing",
    image_refused: "team/secluded",
    image_not_allowed: "team/outlawed",
    image_wrong_platform: "team/foreign",
    image_not_cached: "team/uncached",
  } as const;
  const started = await machine();
  await client.post(`/v1/machines/${started}/start`);
  const { registryNamespace } = (await client.get("/v1/me")).json;
  const facts = { ...FACTS, architecture: process.arch === "arm64" ? "amd64" : "arm64" };
  await putPackage(context.db, {
    repository: `${registryNamespace}/foreign`,
    tag: "latest",
    content: "foreign",
    facts,
  });
  for (const code of IMAGE_FAULTS) {
    const reference = references[code];
    const network = { mode: code === "image_not_cached" ? "blocked" : "open" };
    await provoke(code, async (name) => {
      if (!documentedCodes(name).includes(code)) return undefined;
      if (name === "createMachine")
        return call(name, { body: { source: { type: "smolmachine", reference: "foreign" } } });
      if (name === "pullMachineImage") return call(name, { id: started, body: { image: reference } });
      const id = await machine({}, client, { source: { type: "image", reference }, network });
      return call(name, { id: await withSession(name, id) });
    });
  }
});

test("a guest whose agent does not answer", async () => {
  await provoke("guest_unreachable", async (name) => {
    const id = await machine({ FAKE_AGENT_SILENT: "1", FAKE_PORTS: "" });
    assert.equal((await client.post(`/v1/machines/${id}/start`)).status, 200);
    return call(name, { id: await withSession(name, id) });
  });
});

test("files: a range outside, a full disk, and a missing file", async () => {
  const withFile = async (): Promise<string> => {
    const id = await machine({ FAKE_DISK_BYTES: "20" });
    await client.call("PUT", `/v1/machines/${id}/files/workspace/file`, { raw: "0123456789" });
    return id;
  };
  const shared = await withFile();
  /** Calls that change the machine get a new one. */
  const idFor = async (name: EndpointName) => (/^(delete|stop|put|post|write)/.test(name) ? await withFile() : shared);
  const headers = { range: "bytes=100-200" };
  await provoke("range_not_satisfiable", async (name) => call(name, { id: await idFor(name), headers }));
  await provoke("no_space", async (name) => {
    if (name === "stopMachine") {
      const id = await machine({ FAKE_SUSPEND_FAIL: "no_space" });
      await client.post(`/v1/machines/${id}/start`);
      return call(name, { id, query: "keepMemory=true" });
    }
    const isBytes = endpointOf(name).body?.kind === "bytes";
    return call(name, { id: await idFor(name), ...(isBytes ? { raw: "x".repeat(1000) } : {}) });
  });
  await provoke("not_implemented", async (name) => call(name, { id: await idFor(name) }));
});

test("an unreachable database, and an unreachable node", async () => {
  const proxy = await startProxy(server.databaseUrl);
  const cut = await startTestServer({ databaseUrl: proxy.url, logLevel: "silent" });
  const there = cut.client.withKey(server.adminKey.key);
  const id = await machine();
  assert.equal((await client.post(`/v1/machines/${id}/start`)).status, 200);
  // The first one is stopped and deleted by calls of this test, which ends its terminals.
  const watched = await machine();
  assert.equal((await client.post(`/v1/machines/${watched}/start`)).status, 200);
  assert.equal((await there.get(`/v1/machines/${id}`)).status, 200);
  proxy.cut();
  await provoke("unavailable", (name) => call(name, { id }, there));
  proxy.restore();
  await until(async () => (await there.get("/v1/machines")).status === 200, PATIENT);
  await cut.stop();
  await proxy.close();
  await node.kill();
  await context.db.execute(sql`UPDATE nodes SET status = 'unreachable' WHERE id = ${node.id}`);
  await context.db.notify("nodes", node.id);
  const hurried = await startHurried();
  const onNode = SETTLED.filter((name) => endpointOf(name).errors?.includes("unavailable"));
  const otherwise: string[] = [];
  for (const name of onNode) {
    const used = name === "watchTerminal" ? watched : await withSession(name, id);
    const answer = await call(name, { id: used }, hurried);
    if (answer.headers.get("x-error-code") !== "unavailable" || answer.headers.get("retry-after") === null)
      otherwise.push(`${name}: ${answer.status} ${answer.text}`);
  }
  assert.deepEqual(
    otherwise,
    [],
    "these answered otherwise than unavailable with Retry-After while their node was away",
  );
});

test("every documented answer was given, and no other", (t) => {
  const advice = "let a test above produce it, or take it out of the contract";
  assert.deepEqual(ledger.missingOf(SETTLED), [], advice);
  assert.deepEqual(ledger.undocumentedOf(SETTLED), [], "the contract does not document these");
  const served = NAMES.filter((name) => NEWCOMERS.includes(name));
  for (const one of ledger.missingOf(served)) t.diagnostic(`documented, but not tried yet: ${one}`);
});
