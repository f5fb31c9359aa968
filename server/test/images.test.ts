/**
 * Images over HTTP: listing, fetching, uploading an archive, and what a blocked machine may not fetch.
 */
import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { fillDisk, makeDisk } from "./support/disk.ts";
import { startTestNode, TEST_JOIN_TOKEN } from "./support/node.ts";
import { startTestServer } from "./support/server.ts";
import { until } from "../../test/support/until.ts";
import { head, wire } from "../../test/support/wire.ts";

const server = await startTestServer({ joinToken: TEST_JOIN_TOKEN });
const { client } = server;
const node = await startTestNode(server);

/** Long enough for a busy host. */
const PATIENT = { deadlineMs: 60_000 };

const ended = (id: string) =>
  until(async () => {
    const operation = (await client.get(`/v1/operations/${id}`)).json;
    return operation.status !== "running" && operation;
  }, PATIENT);

/** A client of a new tenant. */
async function tenantClient(name: string): Promise<typeof client> {
  const tenant = (await client.post("/v1/tenants", { name })).json.id as string;
  const minted = await client.post("/v1/apikeys", { tenantId: tenant });
  assert.equal(minted.status, 200, minted.text);
  return client.withKey(minted.json.key);
}

test("without a node there is nothing to list, and no node to import or to fetch to", async () => {
  const { client: alone } = await startTestServer();
  assert.deepEqual((await alone.get("/v1/images")).json, []);
  const answer = await alone.call("POST", "/v1/images/import?reference=local/x", { raw: "bytes" });
  assert.equal(answer.status, 503);
  assert.equal((await alone.post("/v1/images/pull", { reference: "alpine" })).status, 503);
});

test("an imported archive is an image of the node, and a machine's own images are shown", async () => {
  const raw = new Uint8Array(3 * 1024 * 1024);
  const imported = await client.call("POST", "/v1/images/import?reference=local/tools:1", { raw });
  assert.equal(imported.status, 200, imported.text);
  assert.deepEqual([imported.json.reference, imported.json.nodeId], ["local/tools:1", node.id]);
  const all = (await client.get("/v1/images")).json;
  assert.equal(
    all.some((image: { reference: string }) => image.reference === "local/tools:1"),
    true,
  );
  const source = { type: "image", reference: "local/tools:1" };
  const { id } = (await client.post("/v1/machines", { source })).json;
  assert.deepEqual((await client.get(`/v1/machines/${id}/images`)).json, { images: [] });
  await client.post(`/v1/machines/${id}/start`);
  const { images } = (await client.get(`/v1/machines/${id}/images`)).json;
  assert.deepEqual(
    images.map((image: { reference: string }) => image.reference),
    ["local/tools:1"],
  );
});

test("a local image is removed by name, and only a local one that a node has", async () => {
  const remove = (query: string) => client.delete(`/v1/images?reference=${query}`);
  const imported = await client.call("POST", "/v1/images/import?reference=local/gone:1", { raw: "bytes" });
  assert.equal(imported.status, 200, imported.text);
  const absent = await remove("local/gone:1&nodeId=node-x");
  assert.deepEqual([absent.status, absent.headers.get("x-error-code")], [404, "not_found"]);
  assert.equal((await remove("local/gone:1")).status, 204);
  const all = (await client.get("/v1/images")).json;
  assert.equal(JSON.stringify(all).includes("local/gone"), false);
  // The node's report of the import may arrive after the removal; the report of the removal follows it.
  const again = await until(async () => {
    const answer = await remove("local/gone:1");
    return answer.status !== 204 && answer;
  });
  assert.match(again.text, /no node has the image local\/gone:1/);
  const foreign = await remove("alpine");
  assert.equal(foreign.status, 400);
  assert.match(foreign.text, /alpine is not a local image/);
  assert.equal((await remove("local/A B")).status, 400);
  const stranger = await tenantClient("remover");
  assert.equal((await stranger.delete("/v1/images?reference=local/tools:1")).status, 403);
});

test("an image that does not fit on the node's disk is refused with 507, not as the caller's mistake", async () => {
  const refused = await client.call("POST", "/v1/images/import?reference=local/too-large", { raw: "bytes" });
  assert.deepEqual([refused.status, refused.headers.get("x-error-code")], [507, "no_space"]);
  assert.match(refused.text, /the node's disk is too full: .*remove images or machines/);
});

test("an import names an existing node, and needs a reference", async () => {
  const unknown = await client.call("POST", "/v1/images/import?reference=local/x&nodeId=absent", { raw: "x" });
  assert.equal(unknown.status, 404);
  assert.equal((await client.call("POST", "/v1/images/import", { raw: "x" })).status, 422);
});

test("a failed fetch says why", async () => {
  const one = await client.post("/v1/images/pull", { reference: "team/broken", nodeId: "node-a" });
  const failed = await ended(one.json.id);
  assert.deepEqual([failed.status, failed.error], ["failed", "image team/broken has a corrupt layer"]);
});

test("a fetch names an existing node, and a reference without white space", async () => {
  assert.equal((await client.post("/v1/images/pull", { reference: "alpine", nodeId: "absent" })).status, 404);
  assert.equal((await client.post("/v1/images/pull", { reference: "two parts" })).status, 400);
});

test("a blocked machine fails with the advice to fetch its image, and starts after that", async () => {
  const source = { type: "image", reference: "team/app:v1" };
  const { id } = (await client.post("/v1/machines", { source, network: { mode: "blocked" } })).json;
  const refused = await client.post(`/v1/machines/${id}/start`);
  assert.deepEqual([refused.status, refused.headers.get("x-error-code")], [422, "image_not_cached"]);
  assert.match(
    refused.text,
    /team\/app:v1 is not cached on this node for this tenant, .*blocked.*flotilla image pull team\/app:v1/,
  );
  const { state, error } = (await client.get(`/v1/machines/${id}`)).json;
  assert.equal(state, "error");
  assert.match(error, /flotilla image pull/);
  const asked = await client.post("/v1/images/pull", { reference: "team/app:v1", nodeId: node.id });
  assert.equal((await ended(asked.json.id)).status, "succeeded");
  assert.equal((await client.post(`/v1/machines/${id}/start`)).json.state, "started");
});

test("an unavailable image is the caller's error, on every server; a failed download is retried", async () => {
  const other = await startTestServer({ databaseUrl: server.databaseUrl });
  const there = other.client.withKey(server.adminKey.key);
  const answerTo = async (reference: string, verb: string, body?: object): Promise<unknown> => {
    const { id } = (await client.post("/v1/machines", { source: { type: "image", reference } })).json;
    const answers = await Promise.all([client, there].map((who) => who.post(`/v1/machines/${id}/${verb}`, body)));
    const told = answers.map(({ status, headers }) => `${status} ${headers.get("x-error-code")}`);
    return [...new Set(told)].filter((one) => verb === "start" || one !== "409 conflict");
  };
  for (const [reference, told] of [
    ["team/slow-300-missing", "422 image_not_found"],
    ["team/secluded", "422 image_refused"],
    ["team/outlawed", "422 image_not_allowed"],
    ["team/foreign", "422 image_wrong_platform"],
    ["team/broken", "503 start_failed"],
  ] as const) {
    assert.deepEqual(await answerTo(reference, "start"), [told], reference);
    assert.deepEqual(await answerTo(reference, "exec", { command: "true" }), [told], reference);
  }
});

test("an image is fetched to a machine's own node once it has one", async () => {
  const { id } = (await client.post("/v1/machines", { source: { type: "image", reference: "local/busybox" } })).json;
  const pull = (body: object) => client.post(`/v1/machines/${id}/images/pull`, body);
  const early = await pull({ image: "team/tools" });
  assert.deepEqual([early.status, early.headers.get("x-error-code")], [409, "conflict"]);
  await client.post(`/v1/machines/${id}/start`);
  const pulled = await pull({ image: "team/tools", ociPlatform: "linux/amd64" });
  assert.deepEqual([pulled.status, pulled.json.reference], [200, "team/tools"]);
  assert.equal((await pull({ image: "team/tools", ociPlatform: "windows/amd64" })).status, 400);
  assert.equal((await pull({ image: "two parts" })).status, 400);
  const missing = await pull({ image: "team/missing" });
  assert.deepEqual([missing.status, missing.headers.get("x-error-code")], [422, "image_not_found"]);
  assert.equal((await pull({ image: "team/broken" })).status, 503);
});

test("a tenant sees the images that it fetched itself and local ones, and an admin sees all", async () => {
  const keys = await Promise.all(["one", "two"].map((name) => tenantClient(name)));
  const [one, two] = keys;
  assert.ok(one && two);
  const asked = await one.post("/v1/images/pull", { reference: "team/private:1", nodeId: node.id });
  assert.equal(asked.status, 202, asked.text);
  await until(async () => (await one.get(`/v1/operations/${asked.json.id}`)).json.status === "succeeded", PATIENT);
  const names = async (who: typeof client): Promise<readonly string[]> =>
    (await who.get("/v1/images")).json.map(({ reference }: { reference: string }) => reference);
  assert.ok((await names(one)).includes("team/private:1"));
  assert.ok((await names(client)).includes("team/private:1"));
  const others = await names(two);
  assert.ok(others.length > 0);
  assert.deepEqual(
    others.filter((name) => !name.startsWith("local/")),
    [],
  );
  const source = { type: "image", reference: "team/private:1" };
  const { id } = (await two.post("/v1/machines", { source, network: { mode: "blocked" } })).json;
  assert.match((await two.post(`/v1/machines/${id}/start`)).text, /is not cached on this node for this tenant/);
  const again = await two.post("/v1/images/pull", { reference: "team/private:1", nodeId: node.id });
  await until(async () => (await two.get(`/v1/operations/${again.json.id}`)).json.status === "succeeded", PATIENT);
  const listed = (await names(client)).filter((name) => name === "team/private:1");
  assert.deepEqual(listed, ["team/private:1"], "an admin sees an image once, however many tenants have it");
});

test("a tenant that fetches more than a server works on at once keeps no other tenant waiting", async () => {
  const greedy = await tenantClient("greedy");
  const slow = Array.from({ length: 80 }, (_, at) => `greedy/slow-120000:${at}`);
  const begun = await Promise.all(slow.map((reference) => greedy.post("/v1/images/pull", { reference })));
  assert.deepEqual([...new Set(begun.map(({ status }) => status))], [202]);
  const other = await tenantClient("modest");
  const asked = await other.post("/v1/images/pull", { reference: "modest/slow-20" });
  const quick = await until(async () => {
    const operation = (await other.get(`/v1/operations/${asked.json.id}`)).json;
    return operation.status !== "running" && operation;
  }, PATIENT);
  assert.equal(quick.status, "succeeded", quick.error);
  const states = await Promise.all(begun.map(async ({ json }) => (await greedy.get(`/v1/operations/${json.id}`)).json));
  assert.ok(states.every(({ status }) => status === "running"));
});

test("a fetch continues when the node's agent restarts during it", async () => {
  const asked = await client.post("/v1/images/pull", { reference: "team/slow-3000", nodeId: node.id });
  const step = async () => (await client.get(`/v1/operations/${asked.json.id}`)).json.steps[0];
  await until(async () => /pulling/.test((await step()).message), PATIENT);
  await node.kill();
  await until(async () => /does not answer/.test((await step()).message), PATIENT);
  await node.restart();
  assert.equal((await ended(asked.json.id)).status, "succeeded");
});

test("a fetch is an operation with a step for each node, with its progress and result", async () => {
  await startTestNode(server, "node-b");
  const asked = await client.post("/v1/images/pull", { reference: "team/slow-1500" });
  assert.equal(asked.status, 202, asked.text);
  assert.equal(asked.json.kind, "image pull");
  assert.deepEqual(asked.json.resource, {
    kind: "image",
    id: "docker.io/team/slow-1500:latest",
    name: "team/slow-1500",
  });
  await until(async () => {
    const { steps } = (await client.get(`/v1/operations/${asked.json.id}`)).json;
    return steps.every(({ message }: { message: string | null }) => /^pulling layer \d of 4/.test(message ?? ""));
  }, PATIENT);
  const done = await ended(asked.json.id);
  assert.equal(done.status, "succeeded", done.error);
  assert.deepEqual(
    done.steps.map(({ name, status }: { name: string; status: string }) => `${name}: ${status}`),
    ["pull to node-a: succeeded", "pull to node-b: succeeded"],
  );
  for (const { message } of done.steps) assert.match(message, /^sha256:[0-9a-f]{64}, 1 layer, \d+ MB/);
  const cached = (await client.get("/v1/images")).json as { reference: string; nodeId: string }[];
  assert.deepEqual(
    cached.filter(({ reference }) => reference === "team/slow-1500").map(({ nodeId }) => nodeId),
    ["node-a", "node-b"],
  );
  assert.equal((await client.get("/v1/operations")).json[0].id, asked.json.id);
  // A machine that can fetch nothing is placed on a node that has its image, however busy.
  await client.call("POST", "/v1/images/import?reference=local/only-b&nodeId=node-b", { raw: "bytes" });
  await ended((await client.post("/v1/images/pull", { reference: "team/only-a", nodeId: "node-a" })).json.id);
  for (const [reference, nodeId] of [
    ["local/only-b", "node-b"],
    ["team/only-a", "node-a"],
  ] as const) {
    for (let count = 0; count < 3; count += 1) {
      const fields = { source: { type: "image", reference }, network: { mode: "blocked" } };
      const { id } = (await client.post("/v1/machines", fields)).json;
      assert.equal((await client.post(`/v1/machines/${id}/start`)).status, 200);
      const { images } = (await client.get(`/v1/machines/${id}/images`)).json;
      assert.deepEqual(
        images.map((image: { nodeId: string }) => image.nodeId),
        [nodeId],
      );
    }
  }
  const all = await ended((await client.post("/v1/images/pull", { reference: "team/missing" })).json.id);
  assert.match(all.error, /^image team\/missing could not be pulled to 2 of 2 nodes: image .* does not exist/);
  assert.deepEqual(
    all.steps.map(({ status }: { status: string }) => status),
    ["failed", "failed"],
  );
});

test("the refusal of a large archive reaches a caller that reads nothing before it has sent all of it", {
  skip: process.getuid?.() === 0 ? false : "mounting a file system needs root",
}, async (t) => {
  const disk = makeDisk(t, "32m");
  const full = await startTestNode(server, "node-full", disk);
  fillDisk(join(disk, "filling"));
  const caller = await wire(server.url);
  caller.socket.pause();
  const path = `/v1/images/import?reference=local/large&nodeId=${full.id}`;
  const piece = Buffer.alloc(1024 ** 2);
  const pieces = 60;
  caller.send(head("POST", path, client.key, { "content-length": String(pieces * piece.byteLength) }));
  for (let sent = 1; sent < pieces; sent += 1) caller.send(piece);
  const failure = await new Promise((resolve) => caller.socket.write(piece, resolve));
  assert.equal(failure ?? null, null);
  caller.socket.resume();
  await until(() => caller.received().includes("\r\n\r\n"), { what: "an answer" });
  assert.match(caller.received(), /^HTTP\/1\.1 507 /);
  assert.match(caller.received(), /the node's disk is too full: .*remove images or machines/);
});
