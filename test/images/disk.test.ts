/**
 * Disk space: a disk that fills up, a cache at its limit, images that machines depend on.
 */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdtemp, rm, statfs } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { promisify } from "node:util";
import { systemClock } from "@flotilla/base/clock";
import { HOST_ARCH, pushImage } from "../support/images.ts";
import { startRegistry, type TestRegistry } from "../support/registry.ts";
import { makeTar } from "../support/tar.ts";
import { askFileSystem, left, openTestImages, skipReason } from "./fixture.ts";

const execute = promisify(execFile);
const anyArch = { arch: null, tenantId: null };
const MB = 1024 * 1024;
/**
 * Each test image uses 8 MB: 4 of content, which are known when it is pulled, and the overhead of a file
 * system as large as the default disk.
 */
const ROOM_FOR_TWO = 18 * MB;
const ROOM_FOR_ONE = 11 * MB;

let registry: TestRegistry;

before(async () => {
  registry = await startRegistry();
  for (const name of ["one", "two", "three"]) {
    const tar = makeTar([{ name: "cargo", content: randomBytes(4 * MB) }]);
    await pushImage(registry, name, [{ arch: HOST_ARCH, layers: [{ tar, compression: "none" }] }]);
  }
  const large = makeTar([{ name: "cargo", content: randomBytes(13 * MB) }]);
  await pushImage(registry, "large", [{ arch: HOST_ARCH, layers: [{ tar: large, compression: "none" }] }]);
  // Small when compressed, large when unpacked.
  const zeros = makeTar([{ name: "zeros", content: Buffer.alloc(60 * MB) }]);
  await pushImage(registry, "inflating", [{ arch: HOST_ARCH, layers: [{ tar: zeros, compression: "zstd" }] }]);
  // Small also in the plain layer.
  const sparse = makeTar([{ name: "sparse", content: "x", sparseBytes: 60 * MB }]);
  await pushImage(registry, "sparse", [{ arch: HOST_ARCH, layers: [{ tar: sparse, compression: "none" }] }]);
});
after(() => registry[Symbol.asyncDispose]());

/** A separate file system, so that no other disk fills up. */
async function smallDisk(megabytes: number): Promise<{ readonly path: string } & AsyncDisposable> {
  const path = await mkdtemp(join(tmpdir(), "flotilla-small-disk-"));
  await execute("mount", ["-t", "tmpfs", "-o", `size=${megabytes}m`, "tmpfs", path]);
  return {
    path,
    [Symbol.asyncDispose]: async () => {
      await execute("umount", [path]);
      await rm(path, { recursive: true });
    },
  };
}

describe("a full disk", { skip: skipReason }, () => {
  it("is reported before anything is fetched when the image cannot fit, and nothing is left behind", async () => {
    await using disk = await smallDisk(10);
    await using store = await openTestImages({ directory: join(disk.path, "images") });
    await assert.rejects(
      store.images.ensure(`${registry.host}/one`, anyArch),
      /cannot be pulled: the node's disk is too full: \d+ MB are missing.*remove images or machines to make room$/,
    );
    assert.deepEqual(await left(store.directory, "blobs"), []);
    assert.deepEqual(await left(store.directory, "work"), []);
  });

  it("during the work ends it with the same text, frees all space, and a later try succeeds", async () => {
    await using disk = await smallDisk(100);
    await using store = await openTestImages({ directory: join(disk.path, "images") });
    const before = await statfs(disk.path);
    await assert.rejects(store.images.ensure(`${registry.host}/inflating`, anyArch), /the node's disk is too full/);
    assert.deepEqual(await left(store.directory, "blobs"), []);
    assert.deepEqual(await left(store.directory, "work"), []);
    const used = Number(before.bfree) - Number((await statfs(disk.path)).bfree);
    assert.ok(used < 10, `${used} blocks are still taken`);
    assert.equal((await store.images.ensure(`${registry.host}/one`, anyArch)).layerCount, 1);
  });
});

describe("a layer with a sparse file that is larger than the disk", { skip: skipReason }, () => {
  it("is refused before the file is written", async () => {
    await using disk = await smallDisk(50);
    await using store = await openTestImages({ directory: join(disk.path, "images") });
    await assert.rejects(store.images.ensure(`${registry.host}/sparse`, anyArch), /too full: \d+ MB are missing/);
  });

  it("is written where there is room for it, and takes none in the image", async () => {
    await using store = await openTestImages();
    const image = await store.images.ensure(`${registry.host}/sparse`, anyArch);
    assert.match(await askFileSystem(image.rootPath, "stat /sparse"), /Size: 62914560/);
    assert.ok(image.sizeBytes < 20 * MB);
  });
});

describe("the limit of the cache", { skip: skipReason }, () => {
  /** A clock that a test can set ahead, because images are not collected directly after their use. */
  function shiftedClock() {
    const shift = { ms: 0 };
    return { shift, clock: { ...systemClock, now: () => systemClock.now() + shift.ms } };
  }

  it("removes the least recently used image for a new one, and never one in use", async () => {
    const { shift, clock } = shiftedClock();
    const used = new Set<string>();
    const digestsInUse = () => Promise.resolve(used);
    await using store = await openTestImages({ cacheBytesMax: ROOM_FOR_TWO, clock, digestsInUse });
    const one = await store.images.ensure(`${registry.host}/one`, anyArch);
    shift.ms += 10 * 60_000;
    const two = await store.images.ensure(`${registry.host}/two`, anyArch);
    shift.ms += 10 * 60_000;
    used.add(one.digest);
    await store.images.ensure(`${registry.host}/three`, anyArch);
    assert.notEqual(await store.images.findByDigest(one.digest), undefined);
    assert.equal(await store.images.findByDigest(two.digest), undefined);
    assert.equal(await store.images.find(`${registry.host}/two`, null), undefined);
    assert.equal((await left(store.directory, "unpacked")).length, 2);
  });

  it("removes no image for one that does not fit without all of them", async () => {
    const { shift, clock } = shiftedClock();
    await using store = await openTestImages({ cacheBytesMax: ROOM_FOR_ONE, clock });
    const one = await store.images.ensure(`${registry.host}/one`, anyArch);
    shift.ms += 10 * 60_000;
    await assert.rejects(
      store.images.ensure(`${registry.host}/large`, anyArch),
      /disk is too full: \d+ MB are missing/,
    );
    assert.equal((await store.images.find(`${registry.host}/one`, null))?.digest, one.digest);
    assert.equal((await store.images.ensure(`${registry.host}/two`, anyArch)).layerCount, 1);
  });

  it("refuses an image when all others are in use", async () => {
    const { shift, clock } = shiftedClock();
    const used = new Set<string>();
    const digestsInUse = () => Promise.resolve(used);
    await using store = await openTestImages({ cacheBytesMax: ROOM_FOR_ONE, clock, digestsInUse });
    used.add((await store.images.ensure(`${registry.host}/one`, anyArch)).digest);
    shift.ms += 10 * 60_000;
    await assert.rejects(
      store.images.ensure(`${registry.host}/two`, anyArch),
      /disk is too full.* within the limit for images/,
    );
  });

  it("when lowered is enforced by the next collection, and what it frees is counted", async () => {
    const { shift, clock } = shiftedClock();
    await using store = await openTestImages({ clock });
    const one = await store.images.ensure(`${registry.host}/one`, anyArch);
    await store.images.ensure(`${registry.host}/two`, anyArch);
    const images = await store.reopen({ cacheBytesMax: ROOM_FOR_ONE });
    assert.deepEqual(await images.collect(), { removed: 0, freedBytes: 0 }, "both were just used");
    shift.ms += 10 * 60_000;
    assert.deepEqual(await images.collect(), { removed: 1, freedBytes: one.sizeBytes });
    assert.equal(await images.findByDigest(one.digest), undefined);
    assert.equal((await images.list()).length, 1);
    for (const part of ["unpacked", "references"]) assert.equal((await left(store.directory, part)).length, 1, part);
    assert.deepEqual(await left(store.directory, "work"), []);
  });
});
