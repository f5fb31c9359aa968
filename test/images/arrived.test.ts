/**
 * Images that came from another node with a machine: only the registry says what an image is, so what another
 * node sent is used by machines that came with it, and by no other.
 */
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { mkdtemp, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import type { MovedImage, MovedRoot } from "@flotilla/contract/link/moves";
import { contentHash } from "@flotilla/node/images/blocks";
import type { AddedRoot } from "@flotilla/node/images/moved-roots";
import { busyboxPlatforms, pushImage } from "../support/images.ts";
import { startRegistry, type TestRegistry } from "../support/registry.ts";
import { openTestImages, skipReason } from "./fixture.ts";

const B = { arch: null, tenantId: "tenant-b" };

describe("images that came with a machine", { skip: skipReason }, () => {
  let registry: TestRegistry;
  let name: string;
  let work: string;
  let genuine: MovedImage;

  before(async () => {
    registry = await startRegistry();
    await pushImage(registry, "team/app:latest", await busyboxPlatforms());
    name = `${registry.host}/team/app`;
    work = await mkdtemp(join(tmpdir(), "flotilla-arrived-"));
    await using store = await openTestImages();
    const { digest, source, architecture, os, layerCount, configuration } = await store.images.ensure(name, B);
    genuine = { digest, source, architecture, os, layerCount, ...configuration };
  });
  after(async () => {
    await registry[Symbol.asyncDispose]();
    await rm(work, { recursive: true, force: true });
  });

  /** A file system that another node sends as that of the image. */
  async function planted(content: Buffer = randomBytes(8192)): Promise<AddedRoot> {
    const path = join(work, `root-${randomBytes(8).toString("hex")}`);
    await writeFile(path, content);
    const root: MovedRoot = {
      bytes: 8192,
      size: content.length,
      sha256: await contentHash(path, AbortSignal.timeout(10_000)),
    };
    return { image: { ...genuine, entrypoint: ["/bin/evil"], env: ["LD_PRELOAD=/evil.so"] }, root, path };
  }

  it("an image that another node sent is not the image that the registry serves by the digest it named", async () => {
    await using store = await openTestImages();
    const sent = await planted();
    const held = await store.images.addRoot(sent);
    assert.notEqual(held.digest, genuine.digest);
    const pulled = await store.images.ensure(name, B);
    assert.equal(pulled.digest, genuine.digest);
    assert.deepEqual(pulled.configuration.entrypoint, genuine.entrypoint);
    assert.notEqual((await stat(pulled.rootPath)).size, sent.root.size);
    // Nor does it lead to it by name, in a list, or by the digest that was named.
    assert.deepEqual(
      (await store.images.list("tenant-b")).map(({ digest }) => digest),
      [genuine.digest],
    );
    const other = { ...sent, root: { ...sent.root, sha256: "0".repeat(64) } };
    assert.equal(await store.images.findRoot(other.image, other.root), null);
  });

  it("machines that came with it use it, also after a restart of the agent, and move on with its first digest", async () => {
    await using store = await openTestImages();
    const sent = await planted();
    const held = await store.images.addRoot(sent);
    assert.deepEqual(await store.images.findRoot(sent.image, sent.root), held);
    const images = await store.reopen();
    assert.deepEqual(await images.findRoot(sent.image, sent.root), held);
    const image = await images.findByDigest(held.digest);
    assert.ok(image !== undefined);
    assert.deepEqual([image.arrivedAs, image.configuration.entrypoint], [genuine.digest, ["/bin/evil"]]);
    const again = await planted(await readFile(image.rootPath));
    assert.deepEqual(await images.findRoot(again.image, again.root), held, "another machine, with the same content");
    // With another configuration it is another image.
    assert.equal(await images.findRoot({ ...sent.image, entrypoint: ["/bin/sh"] }, sent.root), null);
  });

  it("machines with the same file system that come at the same time share one", async () => {
    await using store = await openTestImages();
    const content = randomBytes(8192);
    const [one, other] = [await planted(content), await planted(content)];
    const [held, same] = await Promise.all([store.images.addRoot(one), store.images.addRoot(other)]);
    assert.deepEqual(same, held);
    assert.deepEqual(await store.images.findRoot(one.image, one.root), held);
  });

  it("no file system that another node sends replaces one that is here", async () => {
    await using store = await openTestImages();
    await store.images.ensure(name, B);
    const victim = await planted();
    const held = await store.images.addRoot(victim);
    const claim = await planted();
    const lie = { ...claim, root: { ...claim.root, sha256: victim.root.sha256, size: claim.root.size + 1 } };
    await assert.rejects(store.images.addRoot(lie), /differs from what its node described/);
    await assert.rejects(store.images.addRoot({ ...lie, root: { ...lie.root, size: claim.root.size } }), /differs/);
    assert.deepEqual(await store.images.findRoot(victim.image, victim.root), held);
  });
});
