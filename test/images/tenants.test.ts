/**
 * Images fetched by one tenant are not another's: not by name, not in a list, and not by a manifest alone.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { after, before, beforeEach, describe, it } from "node:test";
import { type FaultyProxy, startFaultyProxy } from "../support/faulty-proxy.ts";
import { alpinePlatforms, busyboxPlatforms, pushImage } from "../support/images.ts";
import { startRegistry, type TestRegistry } from "../support/registry.ts";
import { until } from "../support/until.ts";
import { openTestImages, skipReason } from "./fixture.ts";

const A = { arch: null, tenantId: "tenant-a" };
const B = { arch: null, tenantId: "tenant-b" };

describe("tenants of one node", { skip: skipReason }, () => {
  let registry: TestRegistry;
  let proxy: FaultyProxy;

  before(async () => {
    registry = await startRegistry();
    await pushImage(registry, "team/app:latest", await busyboxPlatforms());
    proxy = await startFaultyProxy(registry.url);
  });
  beforeEach(() => {
    proxy.behave = () => ({ kind: "pass" });
  });
  after(async () => {
    await proxy[Symbol.asyncDispose]();
    await registry[Symbol.asyncDispose]();
  });

  it("a cached image is used by another tenant only when the registry gives it to that tenant too", async () => {
    await using store = await openTestImages();
    const name = `${proxy.host}/team/app`;
    await store.images.ensure(name, A);
    assert.equal(await store.images.find(name, null, "tenant-b"), undefined);
    proxy.behave = () => ({ kind: "status", status: 401 });
    await assert.rejects(store.images.ensure(name, B), /needs credentials/);
    await assert.rejects(store.images.ensure(name, { arch: null, tenantId: null }), /needs credentials/);
    // The tenant that has it continues to use it without a request.
    await store.images.ensure(name, A);
  });

  it("a second tenant to whom the registry gives it needs no second download", async () => {
    await using store = await openTestImages();
    const name = `${proxy.host}/team/app`;
    const first = await store.images.ensure(name, A);
    const earlier = proxy.seen.length;
    assert.equal((await store.images.ensure(name, B)).rootPath, first.rootPath);
    assert.ok(proxy.seen.slice(earlier).every(({ path }) => path.includes("/manifests/")));
  });

  it("tenants that fetch an image at the same time each ask the registry for it", async () => {
    await using store = await openTestImages();
    const name = `${proxy.host}/team/app`;
    await Promise.all([store.images.ensure(name, A), store.images.ensure(name, B)]);
    for (const { tenantId } of [A, B])
      assert.equal((await store.images.find(name, null, tenantId))?.tenantId, tenantId);
  });

  it("a list shows a tenant its own and local images, and the operator all", async () => {
    await using store = await openTestImages();
    await store.images.ensure(`${proxy.host}/team/app`, A);
    assert.deepEqual(
      (await store.images.list("tenant-a")).map(({ reference, tenantId }) => [reference, tenantId]),
      [[`${proxy.host}/team/app:latest`, "tenant-a"]],
    );
    assert.deepEqual(await store.images.list("tenant-b"), []);
    assert.equal((await store.images.list()).length, 1);
    const images = await store.reopen();
    assert.deepEqual(await images.list("tenant-b"), []);
    assert.equal((await images.list("tenant-a")).length, 1);
  });

  it("the manifest of an image from another repository is not enough: its layers must come from there too", async () => {
    await using store = await openTestImages();
    await store.images.ensure(`${registry.host}/team/app`, A);
    // A registry with the manifest of the image and none of its content.
    proxy.behave = ({ path }) => (path.includes("/blobs/") ? { kind: "status", status: 404 } : { kind: "pass" });
    await assert.rejects(store.images.ensure(`${proxy.host}/team/app`, B), /does not exist/);
    proxy.behave = () => ({ kind: "pass" });
    assert.equal((await store.images.ensure(`${proxy.host}/team/app`, B)).layerCount, 1);
  });

  it("a tag means to each tenant what it meant when that tenant fetched it", async () => {
    await using moving = await startRegistry();
    await pushImage(moving, "app:latest", await busyboxPlatforms());
    await using store = await openTestImages();
    const name = `${moving.host}/app`;
    const old = await store.images.ensure(name, A);
    await pushImage(moving, "app:latest", await alpinePlatforms());
    assert.notEqual((await store.images.ensure(name, B)).digest, old.digest);
    assert.equal((await store.images.ensure(name, A)).digest, old.digest);
  });
});

it("a tenant has a bounded number of manifests read at the same time, and others need not wait for them", {
  skip: skipReason,
}, async () => {
  const waiting: ServerResponse[] = [];
  let most = 0;
  const server = createServer(({ url = "" }, response) => {
    if (url.includes("/other/")) return void response.writeHead(404).end();
    most = Math.max(most, waiting.push(response));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const host = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  await using store = await openTestImages({ stallTimeoutMs: 60_000 });
  const pull = (name: string, tenantId: string) =>
    assert.rejects(store.images.ensure(`${host}/${name}`, { arch: null, tenantId }), /does not exist/);
  const own = Array.from({ length: 20 }, (_, index) => pull(`own/v${index}`, "tenant-a"));
  await until(() => waiting.length >= 8, { what: "eight requests" });
  await pull("other/app", "tenant-b");
  for (let answered = 0; answered < 20; answered += 1) {
    const response = await until(() => waiting.shift(), { what: "a request" });
    response.writeHead(404).end();
  }
  await Promise.all(own);
  server.close();
  assert.equal(most, 8);
});
