/**
 * What a node may do with the registry: push under its lease, and read what its machines are made of.
 */
import assert from "node:assert/strict";
import { request } from "node:http";
import { text } from "node:stream/consumers";
import { join } from "node:path";
import { test } from "node:test";
import { Registry } from "../src/registry/registry.ts";
import { sql } from "../src/db/database.ts";
import { digestOf, imageOf, pushImage, randomLayer, startRegistryServer, tenantWithKey } from "./support/oci.ts";
import { RESOURCES, TEST_JOIN_TOKEN } from "./support/node.ts";

const server = await startRegistryServer({ joinToken: TEST_JOIN_TOKEN });
const { db } = server.context;
const one = await tenantWithKey(server, "one");
const registry = new Registry({
  context: server.context,
  backend: null,
  ceilingsOf: () => Promise.reject(new Error()),
});
const repositoryOf = (name: string) => `tenants/${one.id}/${name}`;

/** Registers a node of this host. Returns how it calls. */
async function playNode(id: string) {
  const body = { id, address: `unix:${join(server.dataDirectory, `${id}.sock`)}`, ...RESOURCES };
  const registered = await server.client.withKey(TEST_JOIN_TOKEN).post("/v1/nodes/register", body);
  assert.equal(registered.status, 200, registered.text);
  const { credential } = registered.json as { credential: string };
  return (method: string, path: string, bytes?: Uint8Array) =>
    new Promise<{ status: number; text: string; location: string }>((resolve, reject) => {
      const headers = { authorization: `Bearer ${credential}`, "content-type": "application/octet-stream", host: "x" };
      const sent = request({ socketPath: join(server.dataDirectory, "nodes.sock"), method, path, headers });
      sent.on("error", reject);
      sent.on("response", (answer) => {
        const { statusCode: status = 0, headers: got } = answer;
        text(answer).then((body) => resolve({ status, text: body, location: got.location ?? "" }), reject);
      });
      sent.end(bytes);
    });
}

const node = await playNode("node-a");
const other = await playNode("node-b");

test("a node pushes and reads under its lease only, and only there", async () => {
  const repository = repositoryOf("export");
  const begin = (call: typeof node, name = repository) => call("POST", `/v2/${name}/blobs/uploads/`);
  assert.equal((await begin(node)).status, 403);
  await registry.lease({ repository, holder: "op-1", nodeId: "node-a", tenantId: one.id });
  const layer = randomLayer(50_000);
  const begun = await begin(node);
  assert.equal(begun.status, 202, begun.text);
  assert.equal((await begin(other)).status, 403);
  assert.equal((await begin(node, repositoryOf("elsewhere"))).status, 403);
  assert.equal((await other("GET", begun.location)).status, 403);
  assert.equal((await node("PATCH", begun.location, layer)).status, 202);
  assert.equal((await node("PUT", `${begun.location}?digest=${digestOf(layer)}`)).status, 201);
  assert.equal((await node("HEAD", `/v2/${repository}/blobs/${digestOf(layer)}`)).status, 200);
  assert.equal((await other("HEAD", `/v2/${repository}/blobs/${digestOf(layer)}`)).status, 404);
  assert.equal((await node("DELETE", `/v2/${repository}/manifests/v1`)).status, 403);
  // A base that its tenant has is taken without sending it; another tenant's is not.
  const base = imageOf([randomLayer(100)]);
  await pushImage(one.client, repositoryOf("base"), base, "v1");
  const mount = (from: string) =>
    node("POST", `/v2/${repository}/blobs/uploads/?mount=${digestOf(base.layers[0] ?? "")}&from=${from}`);
  assert.equal((await mount(repositoryOf("base"))).status, 201);
  const two = await tenantWithKey(server, "two");
  await pushImage(two.client, `tenants/${two.id}/base`, base, "v1");
  assert.equal((await mount(`tenants/${two.id}/base`)).status, 202);
  await registry.release("op-1");
  assert.equal((await begin(node)).status, 403);
});

test("a node reads the package of a machine that is placed on it, by digest, and nothing else", async () => {
  const repository = repositoryOf("made");
  const image = imageOf([randomLayer(5_000)]);
  await pushImage(one.client, repository, image, "v1");
  const [layer = Buffer.alloc(0)] = image.layers;
  const paths = [`manifests/${image.digest}`, `blobs/${digestOf(layer)}`].map((path) => `/v2/${repository}/${path}`);
  const made = await server.client.post("/v1/machines", { source: { type: "image", reference: "local/busybox" } });
  for (const path of paths) assert.equal((await node("GET", path)).status, 404);
  await db.execute(sql`
    UPDATE machines SET node_id = 'node-a',
      source = source || jsonb_build_object('pulledAs', ${`flotilla.internal/${repository}@${image.digest}`}::text)
    WHERE id = ${made.json.id}`);
  for (const path of paths) {
    assert.equal((await node("GET", path)).status, 200);
    assert.equal((await other("GET", path)).status, 404);
  }
  // Tags are not the node's to read, nor the same digest elsewhere.
  assert.equal((await node("GET", `/v2/${repository}/manifests/v1`)).status, 404);
  assert.equal((await node("GET", `/v2/${repository}/tags/list`)).status, 404);
  assert.equal((await node("GET", `/v2/${repositoryOf("copy")}/manifests/${image.digest}`)).status, 404);
});

test("a node's credential is nothing on the public address, and keys are nothing on the node's", async () => {
  const asKey = await node("GET", "/v2/");
  assert.equal(asKey.status, 200);
  const { url } = server;
  const sent = await fetch(`${url}/v2/`, { headers: { authorization: "Bearer node_aaaa" } });
  assert.equal(sent.status, 401);
});
