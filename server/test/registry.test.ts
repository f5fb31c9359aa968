/**
 * The registry of packages over Debian's docker-registry: what clients push and pull, and what tenants see of
 * each other.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { sql } from "../src/db/database.ts";
import {
  codeOf,
  digestOf,
  imageOf,
  OCI_INDEX,
  pushBlob,
  pushImage,
  putManifest,
  randomLayer,
  startRegistryServer,
  tenantWithKey,
} from "./support/oci.ts";

const server = await startRegistryServer();
const one = await tenantWithKey(server, "one");
const two = await tenantWithKey(server, "two");
const repositoryOf = ({ id }: { readonly id: string }, name: string) => `tenants/${id}/${name}`;

test("an image that was pushed is pulled as it was, by tag and by digest", async () => {
  const repository = repositoryOf(one, "web");
  const image = imageOf([randomLayer(300_000), randomLayer(10)]);
  await pushImage(one.client, repository, image, "v1");
  for (const target of ["v1", image.digest]) {
    const got = await one.client.get(`/v2/${repository}/manifests/${target}`);
    assert.deepEqual([got.status, got.text, got.headers.get("docker-content-digest")], [200, image.text, image.digest]);
    const head = await one.client.call("HEAD", `/v2/${repository}/manifests/${target}`);
    assert.deepEqual([head.status, head.headers.get("content-length")], [200, String(image.text.length)]);
  }
  const [layer = Buffer.alloc(0)] = image.layers;
  const url = `${server.url}/v2/${repository}/blobs/${digestOf(layer)}`;
  const headers = { authorization: `Bearer ${one.client.key}` };
  const blob = await fetch(url, { headers });
  assert.deepEqual(Buffer.from(await blob.arrayBuffer()), layer);
  const part = await fetch(url, { headers: { ...headers, range: "bytes=10-19" } });
  assert.deepEqual([part.status, Buffer.from(await part.arrayBuffer())], [206, layer.subarray(10, 20)]);
  const head = await one.client.call("HEAD", `/v2/${repository}/blobs/${digestOf(layer)}`);
  assert.deepEqual([head.status, head.headers.get("content-length")], [200, String(layer.length)]);
  assert.deepEqual((await one.client.get(`/v2/${repository}/tags/list`)).json, { name: repository, tags: ["v1"] });
});

test("another tenant gets for each guess what a missing repository gets", async () => {
  const repository = repositoryOf(one, "private");
  const image = imageOf([randomLayer(1_000)]);
  await pushImage(one.client, repository, image, "v1");
  const [layer = Buffer.alloc(0)] = image.layers;
  const guesses = ["manifests/v1", `manifests/${image.digest}`, `blobs/${digestOf(layer)}`, "tags/list"];
  for (const method of ["GET", "HEAD"])
    for (const guess of guesses) {
      const found = await two.client.call(method, `/v2/${repository}/${guess}`);
      const missing = await two.client.call(method, `/v2/${repositoryOf(one, "never")}/${guess}`);
      assert.equal(found.status, missing.status);
      assert.equal(found.text.replaceAll("private", "never"), missing.text);
      if (method === "GET") assert.match(codeOf(found), /^404 NAME_UNKNOWN|^405/);
    }
  const own = repositoryOf(two, "web");
  for (const guess of [`manifests/${image.digest}`, `blobs/${digestOf(layer)}`])
    assert.match(codeOf(await two.client.get(`/v2/${own}/${guess}`)), /^404 (MANIFEST|BLOB)_UNKNOWN/);
  // Not by a mount, and not by a manifest that names it.
  const mount = await two.client.call("POST", `/v2/${own}/blobs/uploads/?mount=${digestOf(layer)}&from=${repository}`);
  assert.equal(mount.status, 202);
  await pushBlob(two.client, own, Buffer.from("{}"));
  assert.equal(codeOf(await putManifest(two.client, `${own}/manifests/v1`, image.text)), "404 MANIFEST_BLOB_UNKNOWN");
  for (const [method, path] of [
    ["POST", "blobs/uploads/"],
    ["DELETE", "manifests/v1"],
  ] as const)
    assert.equal(codeOf(await two.client.call(method, `/v2/${repository}/${path}`)), "403 DENIED");
  assert.equal(codeOf(await putManifest(two.client, `${repository}/manifests/v2`, image.text)), "403 DENIED");
});

test("an upload of one tenant is not found by another, and not in another repository", async () => {
  const begun = await one.client.call("POST", `/v2/${repositoryOf(one, "up")}/blobs/uploads/`);
  const id = begun.headers.get("docker-upload-uuid");
  for (const [client, repository] of [
    [two.client, repositoryOf(two, "up")],
    [one.client, repositoryOf(one, "other")],
  ] as const)
    for (const method of ["GET", "PATCH", "PUT", "DELETE"])
      assert.equal(
        codeOf(await client.call(method, `/v2/${repository}/blobs/uploads/${id}?digest=${digestOf("")}`)),
        "404 BLOB_UPLOAD_UNKNOWN",
      );
  const path = `/v2/${repositoryOf(one, "up")}/blobs/uploads/${id}`;
  assert.equal((await one.client.get(path)).status, 204);
  assert.equal((await one.client.call("DELETE", path)).status, 204);
  assert.equal((await one.client.get(path)).status, 404);
});

test("the library is read by all and written by operators", async () => {
  const image = imageOf([randomLayer(100)]);
  assert.equal(codeOf(await one.client.call("POST", "/v2/library/base/blobs/uploads/")), "403 DENIED");
  await pushImage(server.client, "library/base", image, "12");
  const got = await one.client.get("/v2/library/base/manifests/12");
  assert.equal(got.text, image.text);
  assert.equal(codeOf(await one.client.call("DELETE", "/v2/library/base/manifests/12")), "403 DENIED");
  // A blob of it is taken without sending it.
  const [layer = Buffer.alloc(0)] = image.layers;
  const mount = `/v2/${repositoryOf(one, "from-base")}/blobs/uploads/?mount=${digestOf(layer)}&from=library/base`;
  assert.equal((await one.client.call("POST", mount)).status, 201);
});

test("a part that does not begin at the offset is refused with the offset, and the upload continues", async () => {
  const repository = repositoryOf(one, "parts");
  const layer = randomLayer(100_000);
  const begun = await one.client.call("POST", `/v2/${repository}/blobs/uploads/`);
  const path = begun.headers.get("location") ?? "";
  const send = (from: number, to: number) =>
    one.client.call("PATCH", path, {
      raw: layer.subarray(from, to),
      headers: { "content-range": `${from}-${to - 1}`, "content-type": "application/octet-stream" },
    });
  const first = await send(0, 40_000);
  assert.deepEqual([first.status, first.headers.get("range")], [202, "0-39999"]);
  const wrong = await send(50_000, 100_000);
  assert.deepEqual([wrong.status, wrong.headers.get("range")], [416, "0-39999"]);
  const status = await one.client.get(path);
  assert.deepEqual([status.status, status.headers.get("range")], [204, "0-39999"]);
  assert.equal((await send(40_000, 100_000)).status, 202);
  const bad = await one.client.call("PUT", `${path}?digest=${digestOf("other")}`);
  assert.equal(codeOf(bad), "400 DIGEST_INVALID");
  assert.equal((await one.client.get(path)).status, 404);
});

test("what is not a manifest, or names what is not there, is refused with the reason", async () => {
  const repository = repositoryOf(one, "bad");
  const layer = randomLayer(50);
  const image = imageOf([layer]);
  for (const [text, type, code] of [
    ["not json", undefined, "400 MANIFEST_INVALID"],
    ["[]", undefined, "400 MANIFEST_INVALID"],
    ["{}", undefined, "400 MANIFEST_INVALID"],
    [image.text, "application/json", "400 MANIFEST_INVALID"],
    [image.text, "application/vnd.docker.distribution.manifest.v1+json", "400 MANIFEST_INVALID"],
    [image.text, undefined, "404 MANIFEST_BLOB_UNKNOWN"],
    [
      JSON.stringify({ schemaVersion: 2, manifests: [{ digest: digestOf("x"), size: 1 }] }),
      OCI_INDEX,
      "404 MANIFEST_BLOB_UNKNOWN",
    ],
    [`{"schemaVersion":2,"config":${"[".repeat(50_000)}`, undefined, "400 MANIFEST_INVALID"],
  ] as const)
    assert.equal(
      codeOf(await putManifest(one.client, `${repository}/manifests/v1`, text, type)),
      code,
      text.slice(0, 60),
    );
  for (const bytes of image.layers) await pushBlob(one.client, repository, bytes);
  const lying = image.text.replace('"size":50', '"size":1');
  assert.equal(codeOf(await putManifest(one.client, `${repository}/manifests/v1`, lying)), "400 MANIFEST_INVALID");
  const other = `${repository}/manifests/${digestOf("other")}`;
  assert.equal(codeOf(await putManifest(one.client, other, image.text)), "400 DIGEST_INVALID");
  assert.equal((await putManifest(one.client, `${repository}/manifests/${image.digest}`, image.text)).status, 201);
});

test("a deleted manifest and a deleted tag are missing at once, and an index keeps what it names", async () => {
  const repository = repositoryOf(one, "gone");
  const image = imageOf([randomLayer(50)]);
  await pushImage(one.client, repository, image, "v1");
  await putManifest(one.client, `${repository}/manifests/v2`, image.text);
  const path = `/v2/${repository}/manifests`;
  assert.equal((await one.client.call("DELETE", `${path}/v2`)).status, 202);
  assert.deepEqual(
    [(await one.client.get(`${path}/v2`)).status, (await one.client.get(`${path}/v1`)).status],
    [404, 200],
  );
  const part = {
    mediaType: "application/vnd.oci.image.manifest.v1+json",
    digest: image.digest,
    size: image.text.length,
  };
  const index = JSON.stringify({ schemaVersion: 2, mediaType: OCI_INDEX, manifests: [part] });
  assert.equal((await putManifest(one.client, `${repository}/manifests/all`, index, OCI_INDEX)).status, 201);
  assert.equal((await one.client.call("DELETE", `${path}/${image.digest}`)).status, 409);
  assert.equal((await one.client.call("DELETE", `${path}/${digestOf(index)}`)).status, 202);
  assert.equal((await one.client.call("DELETE", `${path}/${image.digest}`)).status, 202);
  for (const target of ["all", "v1", image.digest])
    assert.equal((await one.client.get(`${path}/${target}`)).status, 404);
  assert.equal((await one.client.call("DELETE", `${path}/v1`)).status, 404);
  // Pushed again it is back.
  await pushImage(one.client, repository, image, "v1");
  assert.equal((await one.client.get(`${path}/v1`)).text, image.text);
});

test("a caller without a key learns where tokens are made, and a token is for what it was asked for", async () => {
  const repository = repositoryOf(one, "tokens");
  const stranger = await server.client.withKey(null).get(`/v2/${repository}/tags/list`);
  assert.equal(codeOf(stranger), "401 UNAUTHORIZED");
  const challenge = stranger.headers.get("www-authenticate") ?? "";
  const { host } = new URL(server.url);
  assert.equal(
    challenge,
    `Bearer realm="${server.url}/v2/auth",service="${host}",scope="repository:${repository}:pull"`,
  );
  const tokenOf = async (scope: string, authorization = `Bearer ${one.client.key}`) => {
    const query = new URLSearchParams({ service: host, scope });
    const made = await server.client.withKey(null).get(`/v2/auth?${query}`, { headers: { authorization } });
    assert.equal(made.status, 200, made.text);
    assert.equal(made.json.token, made.json.access_token);
    assert.equal(made.json.expires_in, 900);
    return server.client.withKey(made.json.token);
  };
  const basic = `Basic ${Buffer.from(`anyone:${one.client.key}`).toString("base64")}`;
  const pusher = await tokenOf(`repository:${repository}:pull,push`, basic);
  const image = imageOf([randomLayer(50)]);
  await pushImage(pusher, repository, image, "v1");
  const reader = await tokenOf(`repository:${repository}:pull`);
  assert.equal((await reader.get(`/v2/${repository}/manifests/v1`)).status, 200);
  assert.equal(codeOf(await reader.call("POST", `/v2/${repository}/blobs/uploads/`)), "401 UNAUTHORIZED");
  assert.equal(codeOf(await pusher.get(`/v2/${repositoryOf(one, "other")}/tags/list`)), "401 UNAUTHORIZED");
  const foreign = await tokenOf(`repository:${repositoryOf(two, "web")}:pull,push`);
  assert.equal(codeOf(await foreign.get(`/v2/${repositoryOf(two, "web")}/tags/list`)), "404 NAME_UNKNOWN");
  const changed = server.client.withKey(`${pusher.key?.slice(0, -2)}AA`);
  assert.equal(codeOf(await changed.get(`/v2/${repository}/tags/list`)), "401 UNAUTHORIZED");
  const refused = await server.client.withKey(null).get("/v2/auth", { headers: { authorization: "Basic YTpi" } });
  assert.equal(codeOf(refused), "401 UNAUTHORIZED");
  assert.equal(codeOf(await pusher.get("/v2/auth")), "403 DENIED");
});

test("a key needs the scope of what it does", async () => {
  const reader = await tenantWithKey(server, "reader", { scopes: ["machine:read"] });
  const repository = repositoryOf(reader, "web");
  assert.equal(codeOf(await reader.client.call("POST", `/v2/${repository}/blobs/uploads/`)), "403 DENIED");
  assert.equal(codeOf(await reader.client.call("DELETE", `/v2/${repository}/manifests/v1`)), "403 DENIED");
  const blind = await tenantWithKey(server, "blind", { scopes: ["usage:read"] });
  assert.equal(codeOf(await blind.client.get(`/v2/${repositoryOf(blind, "web")}/tags/list`)), "403 DENIED");
  assert.equal(codeOf(await one.client.get("/v2/_catalog")), "403 DENIED");
});

test("a plan's ceiling is named before anything is stored above it", async () => {
  const plan = await server.client.post("/v1/plans", { name: "small", maxPackageGb: 0 });
  assert.equal(plan.status, 201, plan.text);
  const small = await tenantWithKey(server, "small", { planId: plan.json.id });
  const refused = await small.client.call("POST", `/v2/${repositoryOf(small, "web")}/blobs/uploads/`);
  assert.equal(codeOf(refused), "403 DENIED");
  assert.match(refused.text, /your small plan allows 0 GB of packages, 0.00 GB are in use/);
});

test("an upload that grows above the ceiling is ended with the figures, whatever it declared", async () => {
  const plan = await server.client.post("/v1/plans", { name: "one GB", maxPackageGb: 1 });
  const small = await tenantWithKey(server, "nearly-full", { planId: plan.json.id });
  const repository = repositoryOf(small, "web");
  await server.context.db.execute(sql`
    INSERT INTO registry_loose_blobs (repository, digest, tenant_id, bytes, uploaded_at)
    VALUES (${repository}, ${digestOf("held")}, ${small.id}, ${1024 ** 3 - 100_000}, now())`);
  const begin = async () =>
    (await small.client.call("POST", `/v2/${repository}/blobs/uploads/`)).headers.get("location") ?? "";
  const declared = await begin();
  const early = await small.client.call("PATCH", declared, { raw: randomLayer(200_000) });
  assert.equal(codeOf(early), "403 DENIED");
  assert.equal((await small.client.get(declared)).headers.get("range"), "0-0");
  const path = await begin();
  const body = new ReadableStream({
    start(controller) {
      for (let index = 0; index < 4; index += 1) controller.enqueue(randomLayer(50_000));
      controller.close();
    },
  });
  const headers = { authorization: `Bearer ${small.client.key}` };
  const sent = await fetch(`${server.url}${path}`, { method: "PATCH", headers, body, duplex: "half" });
  assert.equal(sent.status, 403);
  assert.match(await sent.text(), /your one GB plan allows 1 GB of packages, 1.00 GB are in use/);
  assert.equal(codeOf(await small.client.get(path)), "404 BLOB_UPLOAD_UNKNOWN");
  await pushBlob(small.client, repository, randomLayer(90_000));
});

test("hostile paths and headers are refused, and nothing fails", async () => {
  const repository = repositoryOf(one, "web");
  for (const [method, path] of [
    ["GET", "/v2/%2e%2e%2fv1/machines"],
    ["GET", "/v2/tenants/%2e%2e/x/manifests/v1"],
    ["GET", `/v2/${repository}/manifests/..`],
    ["GET", `/v2/${repository}/manifests/%00`],
    ["GET", `/v2/${repository}/manifests/%ff`],
    ["GET", `/v2/${repository}/blobs/sha256:abc`],
    ["GET", `/v2/${"a/".repeat(2_000)}x/tags/list`],
    ["GET", `/v2/${repository}/tags/list?n=-1`],
    ["DELETE", `/v2/${repository}/blobs/${digestOf("")}`],
    ["PUT", `/v2/${repository}/blobs/uploads/..`],
    ["PATCH", `/v2/${repository}/manifests/v1`],
    ["POST", `/v2/${repository}/blobs/uploads/?mount=${digestOf("")}&from=../../etc`],
  ] as const) {
    const { status, text } = await one.client.call(method, path);
    assert.ok(status === 202 || (status >= 400 && status < 500), `${method} ${path}: ${status} ${text}`);
  }
});
