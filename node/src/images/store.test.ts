/**
 * What a collection removes while machines ask for images, and while another one runs; and of what failed
 * pulls have left.
 */
import assert from "node:assert/strict";
import { access, mkdir, readdir, rm, utimes, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { systemClock } from "@flotilla/base/clock";
import { until } from "../../../test/support/until.ts";
import { temporaryDirectory } from "../../test/support/in-process.ts";
import { makeLog } from "../log.ts";
import type { UnpackedImage } from "./images.ts";
import { openImages } from "./store.ts";

const YEAR_MS = 365 * 24 * 60 * 60_000;
const digestOf = (letter: string): string => `sha256:${letter.repeat(64)}`;
const nameOf = (letter: string): string => `docker.io/library/${letter}:latest`;

/** An image and a reference to it. That of a later letter was used later; all were used last year. */
async function addImage(directory: string, letter: string, name = nameOf(letter)): Promise<string> {
  const digest = digestOf(letter);
  const path = join(directory, "unpacked", digest.replace(":", "-"));
  await mkdir(path, { recursive: true });
  await writeFile(join(path, "root.ext4"), "x");
  const configuration = { env: [], workdir: "/", user: "", entrypoint: [], command: [] };
  const source = name.replace(/:[^:]*$/, "");
  const facts = { digest, source, architecture: "amd64", os: "linux", layerCount: 1, exposedPort: null };
  await writeFile(join(path, "image.json"), JSON.stringify({ ...facts, configuration, rootBytes: 1, sizeBytes: 100 }));
  const usedAt = (systemClock.now() - YEAR_MS) / 1000 + letter.charCodeAt(0);
  await utimes(join(path, "image.json"), usedAt, usedAt);
  await mkdir(join(directory, "references"), { recursive: true });
  const reference = { owner: null, name, arch: "amd64", digest };
  await writeFile(join(directory, "references", `${letter}.json`), JSON.stringify(reference));
  return join(path, "root.ext4");
}

const open = (directory: string, used: readonly string[] = [], cacheBytesMax = 0) =>
  openImages({
    // Nothing is unpacked.
    launcher: "/bin/false",
    ...{ directory, cacheDirectory: directory, arch: "amd64", cacheBytesMax },
    ...{ allowedRegistries: [], mirrors: new Map(), insecureRegistries: [], credentialsPath: null },
    digestsInUse: () => Promise.resolve(new Set(used.map(digestOf))),
    clock: systemClock,
    log: makeLog({ level: "silent", clock: systemClock }),
  });

test("an image that a machine asks for while others are being removed stays", async () => {
  await using directory = await temporaryDirectory();
  await addImage(directory.path, "a");
  const rootPath = await addImage(directory.path, "b");
  await using images = await open(directory.path);
  const asked: Promise<UnpackedImage>[] = [];
  // When the first one is being removed.
  images.watch(() => asked.push(images.ensure(nameOf("b"), { arch: null, tenantId: null })));
  assert.deepEqual(await images.collect(), { removed: 1, freedBytes: 100 });
  assert.deepEqual(
    (await Promise.all(asked)).map((image) => image.rootPath),
    [rootPath],
  );
  await access(rootPath);
  assert.equal(await images.findByDigest(digestOf("a")), undefined);
});

test("an image that a machine begins to use while others are being removed stays", async () => {
  await using directory = await temporaryDirectory();
  await addImage(directory.path, "a");
  const rootPath = await addImage(directory.path, "b");
  const used: string[] = [];
  await using images = await open(directory.path, used);
  // When the first one is being removed.
  images.watch(() => used.push("b"));
  assert.deepEqual(await images.collect(), { removed: 1, freedBytes: 100 });
  await access(rootPath);
  assert.notEqual(await images.findByDigest(digestOf("b")), undefined);
});

test("room is made by images that no machine uses, also by ones that were used later", async () => {
  await using directory = await temporaryDirectory();
  const rootPath = await addImage(directory.path, "a");
  await addImage(directory.path, "b");
  await using images = await open(directory.path, ["a"], 100);
  assert.deepEqual(await images.collect(), { removed: 1, freedBytes: 100 });
  await access(rootPath);
});

test("a local image is never removed for others, because no registry has it", async () => {
  await using directory = await temporaryDirectory();
  const rootPath = await addImage(directory.path, "a", "local/tools:latest");
  await addImage(directory.path, "b");
  await using images = await open(directory.path);
  assert.deepEqual(await images.collect(), { removed: 1, freedBytes: 100 });
  assert.equal((await images.find("local/tools", null))?.rootPath, rootPath);
  assert.deepEqual(await images.collect(), { removed: 0, freedBytes: 0 });
});

test("a local image is removed by its name, at once or when no machine uses it any more", async () => {
  await using directory = await temporaryDirectory();
  await addImage(directory.path, "a", "local/tools:1");
  const rootPath = await addImage(directory.path, "b", "local/used:latest");
  const used = ["b"];
  await using images = await open(directory.path, used);
  await images.removeLocal("local/tools:1");
  assert.equal(await images.findByDigest(digestOf("a")), undefined);
  await images.removeLocal("local/used");
  assert.equal(await images.find("local/used", null), undefined);
  await access(rootPath);
  await images.removeLocal("local/never");
  await assert.rejects(images.removeLocal("alpine"), /^Error: docker.io\/library\/alpine:latest is not a local image/);
  used.pop();
  assert.deepEqual(await images.collect(), { removed: 1, freedBytes: 100 });
  await using again = await open(directory.path);
  assert.deepEqual(await again.list(), []);
});

test("a local image that was removed while a machine used it goes with the machine, also when there is room", async () => {
  await using directory = await temporaryDirectory();
  await addImage(directory.path, "a", "local/tools:1");
  const kept = await addImage(directory.path, "b", "local/kept:1");
  const replaced = await addImage(directory.path, "c");
  await rm(join(directory.path, "references", "c.json"));
  const used = ["a"];
  await using images = await open(directory.path, used, 1e9);
  await images.removeLocal("local/tools:1");
  assert.deepEqual(await images.collect(), { removed: 0, freedBytes: 0 });
  used.pop();
  assert.deepEqual(await images.collect(), { removed: 1, freedBytes: 100 });
  for (const rootPath of [kept, replaced]) await access(rootPath);
});

test("the removal of a local image removes neither what another name means nor what has no name", async () => {
  await using directory = await temporaryDirectory();
  const named = await addImage(directory.path, "a", "local/tools:1");
  const ofTenant = { owner: "one", name: nameOf("x"), arch: "amd64", digest: digestOf("a") };
  await writeFile(join(directory.path, "references", "x.json"), JSON.stringify(ofTenant));
  const unnamed = await addImage(directory.path, "b");
  await rm(join(directory.path, "references", "b.json"));
  await using images = await open(directory.path);
  await images.removeLocal("local/tools:1");
  assert.equal((await images.find(nameOf("x"), null, "one"))?.rootPath, named);
  for (const rootPath of [named, unnamed]) await access(rootPath);
});

test("images above the limit are removed while the node runs, without a pull", async () => {
  await using directory = await temporaryDirectory();
  for (const letter of ["a", "b"]) await addImage(directory.path, letter);
  await using images = await open(directory.path);
  images.keepCollecting();
  await until(async () => (await images.list()).length === 0, { what: "both to be removed" });
});

test("of two collections at once each image is removed by one", async () => {
  await using directory = await temporaryDirectory();
  for (const letter of ["a", "b", "c"]) await addImage(directory.path, letter);
  await using images = await open(directory.path);
  const both = await Promise.all([images.collect(), images.collect()]);
  assert.equal(both[0].removed + both[1].removed, 3);
  assert.deepEqual(await images.list(), []);
});

/** What pulls have left, by their names and how many minutes ago. Each takes a block of the disk. */
async function addLeftovers(directory: string, leftovers: Readonly<Record<string, number>>): Promise<void> {
  await mkdir(join(directory, "blobs"), { recursive: true });
  for (const [name, minutes] of Object.entries(leftovers)) {
    const path = join(directory, "blobs", name);
    await writeFile(path, "x");
    const at = (systemClock.now() - minutes * 60_000) / 1000;
    await utimes(path, at, at);
  }
}

test("what failed pulls have left is removed after a day, also when the node is never started again", async () => {
  await using directory = await temporaryDirectory();
  await using images = await open(directory.path, [], 1e9);
  await addLeftovers(directory.path, { whole: 25 * 60, "half.partial": 25 * 60, "new.partial": 60 });
  await images.collect();
  assert.deepEqual(await readdir(join(directory.path, "blobs")), ["new.partial"]);
});

test("what failed pulls have left counts as images do, and goes with them: least recently used first", async () => {
  await using directory = await temporaryDirectory();
  await addImage(directory.path, "a");
  await using images = await open(directory.path, [], 10_000);
  await addLeftovers(directory.path, { whole: 30, "half.partial": 20, "new.partial": 10 });
  assert.equal((await images.collect()).removed, 2);
  assert.deepEqual(await images.list(), []);
  assert.deepEqual((await readdir(join(directory.path, "blobs"))).toSorted(), ["half.partial", "new.partial"]);
});
