/**
 * The registry when its storage is killed, stopped or full, when callers go away, when keys are revoked, and
 * while collections run all the time.
 */
import assert from "node:assert/strict";
import { rm, writeFile } from "node:fs/promises";
import { request } from "node:http";
import { join } from "node:path";
import { test } from "node:test";
import { sql } from "../src/db/database.ts";
import { until } from "../../test/support/until.ts";
import type { Client } from "./support/client.ts";
import { makeDisk } from "./support/disk.ts";
import {
  codeOf,
  digestOf,
  imageOf,
  pushBlob,
  pushImage,
  putManifest,
  randomLayer,
  registryPids,
  startRegistryServer,
  tenantWithKey,
} from "./support/oci.ts";

const server = await startRegistryServer();
const { db } = server.context;
const one = await tenantWithKey(server, "one");
const repositoryOf = (name: string) => `tenants/${one.id}/${name}`;

/** Begins a part of an upload, sends some of it, and waits until the server has it. */
async function beginPart(client: Client, path: string, bytes: Buffer, declared: number) {
  const sent = request(`${client.url}${path}`, {
    method: "PATCH",
    headers: { authorization: `Bearer ${client.key}`, "content-length": String(declared) },
  });
  const ended = new Promise<number>((resolve) => {
    sent.on("error", () => resolve(0));
    sent.on("response", (response) => {
      response.resume();
      resolve(response.statusCode ?? 0);
    });
  });
  await new Promise<void>((resolve) => void sent.write(bytes, () => resolve()));
  return { sent, ended };
}

async function beginUpload(client: Client, repository: string): Promise<string> {
  const begun = await client.call("POST", `/v2/${repository}/blobs/uploads/`);
  assert.equal(begun.status, 202, begun.text);
  return begun.headers.get("location") ?? "";
}

const offsetOf = async (client: Client, path: string): Promise<number> =>
  Number(/^0-(\d+)$/.exec((await client.get(path)).headers.get("range") ?? "")?.[1]) + 1;

test("an upload whose caller goes away in the middle continues from its offset", async () => {
  const repository = repositoryOf("cut");
  const path = await beginUpload(one.client, repository);
  const layer = randomLayer(1_000_000);
  const { sent, ended } = await beginPart(one.client, path, layer.subarray(0, 400_000), layer.length);
  sent.destroy();
  await ended;
  const offset = await offsetOf(one.client, path);
  assert.ok(offset <= 400_000, String(offset));
  const rest = await one.client.call("PATCH", path, {
    raw: layer.subarray(offset),
    headers: { "content-range": `${offset}-${layer.length - 1}`, "content-type": "application/octet-stream" },
  });
  assert.equal(rest.status, 202, rest.text);
  const done = await one.client.call("PUT", `${path}?digest=${digestOf(layer)}`);
  assert.equal(done.status, 201, done.text);
});

test("while its storage is dead the registry says so, and it serves again when that is back", async () => {
  const repository = repositoryOf("killed");
  const image = imageOf([randomLayer(100_000)]);
  await pushImage(one.client, repository, image, "v1");
  const path = await beginUpload(one.client, repository);
  const part = await beginPart(one.client, path, randomLayer(100_000), 200_000);
  const pid = await until(async () => (await registryPids(server.dataDirectory))[0], { what: "the storage to run" });
  process.kill(pid, "SIGKILL");
  part.sent.end(randomLayer(100_000));
  assert.match(String(await part.ended), /^(503|0)$/);
  const refused = await until(async () => {
    const answer = await one.client.get(`/v2/${repository}/blobs/${digestOf(image.layers[0] ?? "")}`);
    return answer.status !== 200 && answer;
  });
  assert.deepEqual([codeOf(refused), refused.headers.has("retry-after")], ["503 UNAVAILABLE", true]);
  // What needs no storage is answered.
  assert.equal((await one.client.get(`/v2/${repository}/tags/list`)).status, 200);
  await until(async () => (await registryPids(server.dataDirectory)).some((other) => other !== pid));
  // The figures may still be those of before.
  await until(async () => (await one.client.get(`/v2/${repository}/manifests/v1`)).text === image.text);
  // The upload either continues where the storage has it, or is begun again.
  const status = await one.client.get(path);
  assert.ok(status.status === 204 || codeOf(status) === "404 BLOB_UPLOAD_UNKNOWN", status.text);
  await pushImage(one.client, repository, imageOf([randomLayer(10)]), "v2");
});

test("a revoked key ends its tokens, and an upload that it has begun", async () => {
  const made = await server.client.post("/v1/apikeys", {
    tenantId: one.id,
    scopes: ["machine:create", "machine:read"],
  });
  const client = one.client.withKey(made.json.key);
  const repository = repositoryOf("revoked");
  const token = await client.get(`/v2/auth?scope=repository:${repository}:pull,push`);
  const bearer = client.withKey(token.json.token);
  const path = await beginUpload(bearer, repository);
  const part = await beginPart(bearer, path, randomLayer(10_000), 1_000_000);
  const ended = part.ended.then((status) => assert.ok(status === 401 || status === 0, String(status)));
  assert.equal((await server.client.delete(`/v1/apikeys/${made.json.id}`)).status, 204);
  await ended;
  assert.equal(codeOf(await bearer.get(`/v2/${repository}/tags/list`)), "401 UNAUTHORIZED");
  assert.equal(codeOf(await bearer.get(path)), "401 UNAUTHORIZED");
  part.sent.destroy();
});

const collection = async (): Promise<string> => {
  const begun = await server.client.post("/v1/registry/collections");
  assert.equal(begun.status, 202, begun.text);
  return begun.json.id;
};

const ended = (id: string) =>
  until(async () => {
    const { json } = await server.client.get(`/v1/operations/${id}`);
    return json.status !== "running" && json;
  });

/** Ends what earlier tests have left, so that nothing seems to be pushed. */
const endLeases = () => db.execute(sql`UPDATE registry_leases SET expires_at = now() - interval '1 second'`);

test("pushes and pulls lose nothing while collections run all the time", async () => {
  await endLeases();
  const shared = randomLayer(50_000);
  const isOver = { now: false };
  let collections = 0;
  const collecting = (async () => {
    while (!isOver.now) {
      const done = await ended(await collection());
      assert.equal(done.status, "succeeded", JSON.stringify(done));
      collections += 1;
    }
  })();
  const pushing = Array.from({ length: 4 }, async (_, index) => {
    const repository = repositoryOf(`busy-${index % 2}`);
    for (let round = 0; round < 5; round += 1) {
      const token = await one.client.get(`/v2/auth?scope=repository:${repository}:pull,push,delete`);
      const client = one.client.withKey(token.json.token);
      const image = imageOf([shared, randomLayer(1_000)], { annotations: { of: `${index} ${round}` } });
      const tag = `t${index}`;
      for (const layer of image.layers) {
        const head = await client.call("HEAD", `/v2/${repository}/blobs/${digestOf(layer)}`);
        if (head.status === 404) await pushBlob(client, repository, layer);
      }
      const put = await putManifest(client, `${repository}/manifests/${tag}`, image.text);
      assert.equal(put.status, 201, put.text);
      assert.equal((await one.client.get(`/v2/${repository}/manifests/${tag}`)).text, image.text);
      if (round === 4) continue;
      const gone = await one.client.call("DELETE", `/v2/${repository}/manifests/${image.digest}`);
      assert.equal(gone.status, 202, gone.text);
    }
  });
  await Promise.all(pushing).finally(() => {
    isOver.now = true;
  });
  await collecting;
  assert.ok(collections > 0);
  for (const [index, name] of ["busy-0", "busy-1"].entries()) {
    const { text } = await one.client.get(`/v2/${repositoryOf(name)}/manifests/t${index}`);
    for (const { digest } of JSON.parse(text).layers)
      assert.equal((await one.client.get(`/v2/${repositoryOf(name)}/blobs/${digest}`)).status, 200);
  }
});

test("a collection deletes what nothing names, and nothing else", async () => {
  const repository = repositoryOf("collected");
  const kept = imageOf([randomLayer(20_000)]);
  const gone = imageOf([randomLayer(30_000)]);
  await pushImage(one.client, repository, kept, "kept");
  await pushImage(one.client, repository, gone, "gone");
  const loose = await pushBlob(one.client, repository, randomLayer(100));
  assert.equal((await one.client.call("DELETE", `/v2/${repository}/manifests/${gone.digest}`)).status, 202);
  await endLeases();
  // The sweep removes it from the storage, as soon as no push keeps it.
  await until(
    async () => (await db.queryOne(sql`SELECT FROM registry_manifests WHERE digest = ${gone.digest}`)) === undefined,
  );
  const done = await ended(await collection());
  assert.equal(done.status, "succeeded", JSON.stringify(done));
  assert.match(done.steps[1].message, /^\d+ blobs?$/);
  const status = async (digest: string) => (await one.client.get(`/v2/${repository}/blobs/${digest}`)).status;
  assert.deepEqual(
    [await status(digestOf(kept.layers[0] ?? "")), await status(digestOf(gone.layers[0] ?? "")), await status(loose)],
    [200, 404, 404],
  );
  // What was deleted can be pushed again.
  await pushImage(one.client, repository, gone, "gone");
  assert.equal(await status(digestOf(gone.layers[0] ?? "")), 200);
});

test("a collection waits for a push, and a cancelled one ends", async () => {
  const path = await beginUpload(one.client, repositoryOf("waits"));
  const id = await collection();
  const waits = await until(async () => {
    const { json } = await server.client.get(`/v1/operations/${id}`);
    return json.steps[0].status === "running" && json;
  });
  assert.equal(waits.status, "running");
  await server.client.post(`/v1/operations/${id}/cancel`);
  assert.equal((await ended(id)).status, "canceled");
  assert.equal((await one.client.get(path)).status, 204);
});

test("an abandoned upload is ended in the storage as well", async () => {
  const path = await beginUpload(one.client, repositoryOf("abandoned"));
  const id = path.split("/").at(-1) ?? "";
  await db.execute(sql`UPDATE registry_uploads SET updated_at = now() - interval '25 hours' WHERE id = ${id}`);
  await until(async () => (await one.client.get(path)).status === 404);
});

test("while its disk is nearly full uploads are refused, and what is there is read and deleted", {
  skip: process.getuid?.() === 0 ? false : "mounting a file system needs root",
}, async (t) => {
  const dataDirectory = makeDisk(t, "100m");
  const full = await startRegistryServer({ dataDirectory });
  const { client } = full;
  const image = imageOf([randomLayer(1_000_000)]);
  await pushImage(client, "library/base", image, "1");
  const path = await beginUpload(client, "library/base");
  const filled = join(dataDirectory, "filled");
  await writeFile(filled, Buffer.alloc(94 * 1024 * 1024));
  const refused = await client.call("POST", "/v2/library/base/blobs/uploads/");
  assert.deepEqual([codeOf(refused), /nearly full/.test(refused.text)], ["503 UNAVAILABLE", true]);
  const part = await client.call("PATCH", path, { raw: randomLayer(3_000_000) });
  assert.equal(codeOf(part), "503 UNAVAILABLE");
  assert.equal((await client.get("/v2/library/base/manifests/1")).text, image.text);
  await rm(filled);
  await pushBlob(client, "library/base", randomLayer(3_000_000));
  assert.equal((await client.call("DELETE", `/v2/library/base/manifests/${image.digest}`)).status, 202);
  await full.stop();
});

test("the storage ends with its server", async () => {
  const other = await startRegistryServer();
  await until(async () => (await registryPids(other.dataDirectory)).length > 0, { what: "the storage to run" });
  await other.stop();
  assert.deepEqual(await registryPids(other.dataDirectory), []);
});
