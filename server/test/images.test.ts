/**
 * Images over HTTP: what nodes have, and bringing an archive to one.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { startTestNode, TEST_JOIN_TOKEN } from "./support/node.ts";
import { startTestServer } from "./support/server.ts";

const server = await startTestServer({ joinToken: TEST_JOIN_TOKEN });
const { client } = server;

test("without a node there is nothing to list and nowhere to import to", async () => {
  assert.deepEqual((await client.get("/v1/images")).json, []);
  const answer = await client.call("POST", "/v1/images/import?reference=local/x", { raw: "bytes" });
  assert.equal(answer.status, 503);
});

test("an imported archive is an image of the node, and a machine's own images are shown", async () => {
  const node = await startTestNode(server);
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

test("an import names a node that exists, and needs a reference", async () => {
  const unknown = await client.call("POST", "/v1/images/import?reference=local/x&nodeId=nobody", { raw: "x" });
  assert.equal(unknown.status, 404);
  assert.equal((await client.call("POST", "/v1/images/import", { raw: "x" })).status, 422);
});
