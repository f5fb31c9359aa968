/**
 * Packages in another registry: with credentials and tokens, below a prefix, and when it redirects, is slow,
 * full, refuses or fails.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer, type IncomingMessage, request as httpRequest, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { sql } from "../src/db/database.ts";
import { until } from "../../test/support/until.ts";
import { REGISTRY_USER, startRegistry } from "../../test/support/registry.ts";
import {
  codeOf,
  digestOf,
  imageOf,
  pushBlob,
  pushImage,
  putManifest,
  randomLayer,
  tenantWithKey,
} from "./support/oci.ts";
import { startTestServer } from "./support/server.ts";

const work = await mkdtemp(join(tmpdir(), "flotilla-external-"));
after(() => rm(work, { recursive: true, force: true }));

async function credentialsFor(host: string, password: string = REGISTRY_USER.password): Promise<string> {
  const path = join(work, `${host.replace(":", "-")}.json`);
  const auth = Buffer.from(`${REGISTRY_USER.name}:${password}`).toString("base64");
  await writeFile(path, JSON.stringify({ auths: { [host]: { auth } } }), { mode: 0o600 });
  return path;
}

type Fault = (message: IncomingMessage, response: ServerResponse) => boolean;

interface Front {
  readonly host: string;
  /** What it answered itself: the request is not passed on when it returns true. */
  fault: Fault;
  readonly scopes: string[];
  tokens: number;
}

/** A registry with a token server, in front of one without a password. */
async function startFront(port: number): Promise<Front> {
  const front: Front & { token: string } = { host: "", fault: () => false, scopes: [], tokens: 0, token: "" };
  const expected = `Basic ${Buffer.from(`${REGISTRY_USER.name}:${REGISTRY_USER.password}`).toString("base64")}`;
  const server = createServer((message, response) => {
    const { url = "", headers } = message;
    const query = new URL(url, "http://x").searchParams;
    if (url.startsWith("/token")) {
      front.scopes.push(...query.getAll("scope"));
      const isGood = headers.authorization === expected && query.get("service") === "front";
      front.token = `token-${++front.tokens}`;
      return response.writeHead(isGood ? 200 : 401).end(JSON.stringify({ token: front.token, expires_in: 300 }));
    }
    if (url.startsWith("/moved/")) return pass(message, response, { port, path: url.slice("/moved".length) });
    if (headers.authorization !== `Bearer ${front.token}` || front.token === "") {
      const challenge = `Bearer realm="http://${front.host}/token",service="front"`;
      message.resume();
      return response.writeHead(401, { "www-authenticate": challenge }).end();
    }
    if (front.fault(message, response)) return;
    if (message.method === "GET" && /\/blobs\/sha256:/.test(url)) {
      return response.writeHead(307, { location: `/moved${url}` }).end();
    }
    return pass(message, response, { port, path: url });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  after(() => {
    server.closeAllConnections();
    server.close();
  });
  return Object.assign(front, { host: `127.0.0.1:${(server.address() as AddressInfo).port}` });
}

function pass(
  message: IncomingMessage,
  response: ServerResponse,
  to: { readonly port: number; readonly path: string },
) {
  const { method, headers } = message;
  const sent = httpRequest({ host: "127.0.0.1", ...to, method, headers }, (answer) => {
    response.writeHead(answer.statusCode ?? 500, answer.headers);
    answer.pipe(response);
  });
  sent.on("error", () => response.destroy());
  message.pipe(sent);
}

const storage = await startRegistry();
after(() => storage[Symbol.asyncDispose]());
const front = await startFront(storage.port);
const server = await startTestServer({
  registry: `http://${front.host}/team/flotilla`,
  registryCredentials: await credentialsFor(front.host),
});
const one = await tenantWithKey(server, "one");
const repositoryOf = (name: string) => `tenants/${one.id}/${name}`;

test("packages are stored below the prefix, with tokens for what is done", async () => {
  const repository = repositoryOf("web");
  const image = imageOf([randomLayer(300_000), randomLayer(10)]);
  await pushImage(one.client, repository, image, "v1");
  assert.equal((await one.client.get(`/v2/${repository}/manifests/v1`)).text, image.text);
  const [layer = Buffer.alloc(0)] = image.layers;
  const headers = { authorization: `Bearer ${one.client.key}` };
  const blob = await fetch(`${server.url}/v2/${repository}/blobs/${digestOf(layer)}`, { headers });
  assert.deepEqual(Buffer.from(await blob.arrayBuffer()), layer);
  assert.ok(front.scopes.includes(`repository:team/flotilla/${repository}:pull,push,delete`), front.scopes.join(" "));
  const tags = await fetch(`${storage.url}/v2/team/flotilla/${repository}/tags/list`);
  assert.deepEqual(((await tags.json()) as { tags: string[] }).tags, [image.digest.replace(":", "-")]);
  // From another repository, as well.
  const mount = `/v2/${repositoryOf("other")}/blobs/uploads/?mount=${digestOf(layer)}&from=${repository}`;
  assert.equal((await one.client.call("POST", mount)).status, 201);
  assert.equal((await server.client.post("/v1/registry/collections")).status, 409);
});

test("a token that has ended early is replaced", async () => {
  const repository = repositoryOf("web");
  const before = front.tokens;
  Object.assign(front, { token: "another" });
  assert.equal((await one.client.get(`/v2/${repository}/manifests/v1`)).status, 200);
  assert.ok(front.tokens > before);
});

const answering =
  (status: number, body: string, headers: Readonly<Record<string, string>> = {}, isFor = /./): Fault =>
  (message, response) => {
    if (!isFor.test(`${message.method} ${message.url}`)) return false;
    message.resume();
    response.writeHead(status, headers).end(body);
    return true;
  };

test("a storage that fails, is full, is busy or refuses is named, and nothing is recorded", async () => {
  const repository = repositoryOf("faults");
  const layer = randomLayer(1_000);
  for (const [fault, code, text] of [
    [answering(500, "boom"), "503 UNAVAILABLE", /status 500/],
    [answering(500, '{"errors":[{"code":"UNKNOWN","detail":"no space left on device"}]}'), "503 UNAVAILABLE", /full/],
    [answering(429, "", { "retry-after": "7" }), "429 TOOMANYREQUESTS", /./],
    [answering(403, '{"errors":[{"code":"DENIED","message":"hidden reason"}]}'), "503 UNAVAILABLE", /credentials/],
    [answering(202, ""), "503 UNAVAILABLE", /does not answer/],
  ] as const) {
    front.fault = fault;
    const answer = await one.client.call("POST", `/v2/${repository}/blobs/uploads/`);
    assert.equal(codeOf(answer), code);
    assert.match(answer.text, text);
    assert.doesNotMatch(answer.text, /hidden reason/);
    assert.ok(answer.headers.has("retry-after"));
  }
  front.fault = () => false;
  await pushBlob(one.client, repository, layer);
  await pushBlob(one.client, repository, Buffer.from("{}"));
  const image = imageOf([layer]);
  front.fault = answering(500, "", {}, /^PUT .*manifests/);
  const path = `${repository}/manifests/v1`;
  assert.equal(codeOf(await putManifest(one.client, path, image.text)), "503 UNAVAILABLE");
  assert.equal((await one.client.get(`/v2/${path}`)).status, 404);
  front.fault = () => false;
  assert.equal((await putManifest(one.client, path, image.text)).status, 201);
  // What it has must be what was put.
  front.fault = answering(200, "{}", {}, /^GET .*manifests/);
  assert.equal(codeOf(await one.client.get(`/v2/${path}`)), "503 UNAVAILABLE");
  front.fault = () => false;
  assert.equal((await one.client.get(`/v2/${path}`)).text, image.text);
});

test("a part that the storage cuts off ends with an error, and the upload can be begun again", async () => {
  const repository = repositoryOf("cut");
  front.fault = (message, response) => {
    if (message.method !== "PATCH") return false;
    message.once("data", () => response.destroy());
    return true;
  };
  const begun = await one.client.call("POST", `/v2/${repository}/blobs/uploads/`);
  const path = begun.headers.get("location") ?? "";
  const sent = await one.client.call("PATCH", path, { raw: randomLayer(500_000) });
  assert.equal(codeOf(sent), "503 UNAVAILABLE");
  front.fault = () => false;
  await pushBlob(one.client, repository, randomLayer(500_000));
});

test("a slow storage holds up nothing but its own requests, and a caller that leaves ends them", async () => {
  const repository = repositoryOf("slow");
  let open = 0;
  front.fault = (message, response) => {
    if (!/manifests/.test(message.url ?? "")) return false;
    open += 1;
    response.on("close", () => (open -= 1));
    return true;
  };
  const leaving = new AbortController();
  await one.client.call("GET", `/v2/${repositoryOf("web")}/tags/list`);
  const slow = one.client.call("GET", `/v2/${repositoryOf("web")}/manifests/v1`, { signal: leaving.signal });
  const left = assert.rejects(slow);
  while (open === 0) await one.client.get(`/v2/${repository}/tags/list`);
  leaving.abort();
  await left;
  while (open > 0) await one.client.get(`/v2/${repository}/tags/list`);
  front.fault = () => false;
});

test("a blob that nothing names for a day does not count any more", async () => {
  const repository = repositoryOf("loose");
  const digest = await pushBlob(one.client, repository, randomLayer(1_000));
  const { db } = server.context;
  await db.execute(sql`UPDATE registry_leases SET expires_at = now() - interval '1 second'`);
  await db.execute(sql`
    UPDATE registry_loose_blobs SET uploaded_at = now() - interval '25 hours' WHERE digest = ${digest}`);
  const find = () => db.queryOne(sql`SELECT FROM registry_loose_blobs WHERE digest = ${digest}`);
  await until(async () => (await find()) === undefined);
});

test("a registry that asks for a password only is used with it, and a wrong one is the operator's fault", async () => {
  const other = await startRegistry({ isPrivate: true });
  after(() => other[Symbol.asyncDispose]());
  const registryCredentials = await credentialsFor(other.host);
  const plain = await startTestServer({ registry: `http://${other.host}`, registryCredentials });
  const image = imageOf([randomLayer(1_000)]);
  await pushImage(plain.client, "library/base", image, "1");
  assert.equal((await plain.client.get("/v2/library/base/manifests/1")).text, image.text);
  await credentialsFor(other.host, "wrong");
  const wrong = await startTestServer({ registry: `http://${other.host}`, registryCredentials });
  const refused = await wrong.client.call("POST", "/v2/library/base/blobs/uploads/");
  assert.equal(codeOf(refused), "503 UNAVAILABLE");
  assert.match(refused.text, /refuses this server; ask the operator/);
});

test("without a registry a push says what to do", async () => {
  const none = await startTestServer();
  const answer = await none.client.call("POST", "/v2/library/base/blobs/uploads/");
  assert.equal(codeOf(answer), "503 UNAVAILABLE");
  assert.match(answer.text, /has no registry for packages; its operator can set FLOTILLA_REGISTRY/);
  assert.equal((await none.client.get("/v2/")).status, 200);
});
