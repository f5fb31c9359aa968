/**
 * File systems for disks that are smaller than an image's own file.
 */
import assert from "node:assert/strict";
import { mkdtemp, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { alpinePlatforms, writeLayout } from "../support/images.ts";
import { askFileSystem, checkFileSystem, openTestImages, skipReason } from "./fixture.ts";

const GIB = 2 ** 30;
let work: string;

before(async () => {
  work = await mkdtemp(join(tmpdir(), "flotilla-smaller-"));
  await writeLayout(work, await alpinePlatforms());
});
after(() => rm(work, { recursive: true }));

describe("the file system for a disk", { skip: skipReason }, () => {
  it("is the image's own when the disk is at least as large, and otherwise a smaller one, made once", async () => {
    await using store = await openTestImages();
    const image = await store.images.importArchive(work, "local/alpine");
    assert.equal(await store.images.rootFor(image, image.rootBytes), image);
    assert.equal(await store.images.rootFor(image, image.rootBytes + GIB), image);
    const [smaller, same] = await Promise.all([store.images.rootFor(image, GIB), store.images.rootFor(image, GIB)]);
    assert.equal(smaller.rootPath, same.rootPath);
    assert.equal(smaller.rootBytes, GIB);
    await checkFileSystem(smaller.rootPath);
    assert.match(await askFileSystem(smaller.rootPath, "ls -l /"), /workspace/);
    const { mtimeMs, mode } = await stat(smaller.rootPath);
    assert.equal(mode & 0o777, 0o444);
    await store.images.rootFor(image, GIB);
    assert.equal((await stat(smaller.rootPath)).mtimeMs, mtimeMs);
  });

  it("is as small as its content allows when less was requested", async () => {
    await using store = await openTestImages();
    const image = await store.images.importArchive(work, "local/alpine");
    const least = await store.images.rootFor(image, 4 * 1024 * 1024);
    assert.ok(least.rootBytes > 4 * 1024 * 1024 && least.rootBytes < GIB, `${least.rootBytes}`);
    await checkFileSystem(least.rootPath);
  });
});
