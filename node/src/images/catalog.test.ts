/**
 * Which images a catalog lists and for whom, and which references it keeps.
 */
import assert from "node:assert/strict";
import { mkdir, readdir, rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { systemClock } from "@flotilla/base/clock";
import { temporaryDirectory } from "../../test/support/in-process.ts";
import { makeLog } from "../log.ts";
import { Catalog } from "./catalog.ts";
import { REFERENCES_PER_OWNER } from "./images.ts";

const digestOf = (letter: string): string => `sha256:${letter.repeat(64)}`;

async function addImage(directory: string, letter: string, source: string): Promise<void> {
  const path = join(directory, "unpacked", digestOf(letter).replace(":", "-"));
  await mkdir(path, { recursive: true });
  await writeFile(join(path, "root.ext4"), "x");
  const configuration = { env: [], workdir: "/", user: "", entrypoint: [], command: [] };
  const record = {
    digest: digestOf(letter),
    source,
    architecture: "amd64",
    os: "linux",
    layerCount: 1,
    exposedPort: null,
  };
  await writeFile(join(path, "image.json"), JSON.stringify({ ...record, configuration, rootBytes: 1, sizeBytes: 1 }));
}

async function openCatalog(directory: string): Promise<Catalog> {
  const log = makeLog({ level: "silent", clock: systemClock });
  const catalog = new Catalog({ directory, clock: systemClock, log });
  await catalog.open();
  return catalog;
}

test("a tenant's list has what it fetched and local images, and an operator's has all, by reference", async () => {
  await using directory = await temporaryDirectory();
  await addImage(directory.path, "a", "docker.io/library/app");
  await addImage(directory.path, "b", "docker.io/library/old");
  await addImage(directory.path, "c", "local/own");
  await addImage(directory.path, "d", "local/replaced");
  const catalog = await openCatalog(directory.path);
  await catalog.setReference({ owner: "one", name: "docker.io/library/app:1", arch: "amd64" }, digestOf("a"));
  await catalog.setReference({ owner: "two", name: "docker.io/library/app:2", arch: "amd64" }, digestOf("a"));
  await catalog.setReference({ owner: null, name: "local/own:latest", arch: "amd64" }, digestOf("c"));
  const listed = (tenantId?: string) =>
    catalog.list(tenantId).map((image) => [image.reference, image.digest.at(-1), image.tenantId]);
  const own = ["local/own:latest", "c", null];
  const replaced = [`local/replaced@${digestOf("d")}`, "d", null];
  assert.deepEqual(listed("one"), [["docker.io/library/app:1", "a", "one"], own, replaced]);
  assert.deepEqual(listed("three"), [own, replaced]);
  const unnamed = [`docker.io/library/old@${digestOf("b")}`, "b", null];
  const ofTenants = [
    ["docker.io/library/app:1", "a", "one"],
    ["docker.io/library/app:2", "a", "two"],
  ];
  assert.deepEqual(listed(), [...ofTenants, unnamed, own, replaced]);
});

test("of writes of a reference at once none fails, and the last one counts, also after a restart", async () => {
  await using directory = await temporaryDirectory();
  for (const letter of ["a", "b", "c"]) await addImage(directory.path, letter, "local/own");
  const opened = () => openCatalog(directory.path);
  const catalog = await opened();
  const key = { owner: null, name: "local/own:latest", arch: "amd64" };
  await Promise.all(["a", "b", "c"].map((letter) => catalog.setReference(key, digestOf(letter))));
  for (const each of [catalog, await opened()])
    assert.equal(each.find(key.name, key.arch, null)?.digest, digestOf("c"));
});

test("a tenant at its limit of references loses one with the next, and neither the operator nor another tenant does", async () => {
  await using directory = await temporaryDirectory();
  await addImage(directory.path, "a", "docker.io/library/app");
  const references = join(directory.path, "references");
  await mkdir(references);
  const write = (name: string, owner: string | null): Promise<void> =>
    writeFile(
      join(references, `${owner}-${name}.json`),
      JSON.stringify({ owner, name, arch: "amd64", digest: digestOf("a") }),
    );
  for (const owner of ["one", "two", null])
    for (let n = 0; n < (owner === "one" ? REFERENCES_PER_OWNER : 2); n += 1) await write(`app:${n}`, owner);
  const catalog = await openCatalog(directory.path);
  const countOf = (owner: string | null): number =>
    catalog.list().filter(({ tenantId, reference }) => tenantId === owner && reference.startsWith("app:")).length;
  await catalog.setReference({ owner: null, name: "app:new", arch: "amd64" }, digestOf("a"));
  await catalog.setReference({ owner: "one", name: "app:0", arch: "amd64" }, digestOf("a"));
  assert.deepEqual([countOf("one"), countOf("two"), countOf(null)], [REFERENCES_PER_OWNER, 2, 3]);
  await catalog.setReference({ owner: "two", name: "app:new", arch: "amd64" }, digestOf("a"));
  await catalog.setReference({ owner: "one", name: "app:new", arch: "amd64" }, digestOf("a"));
  assert.deepEqual([countOf("one"), countOf("two"), countOf(null)], [REFERENCES_PER_OWNER, 3, 3]);
  assert.equal(catalog.find("app:new", "amd64", "one")?.digest, digestOf("a"));
});

test("an image is removed with its references and no other's, and a reference whose image is gone with the next start", async () => {
  await using directory = await temporaryDirectory();
  for (const letter of ["a", "b"]) await addImage(directory.path, letter, "docker.io/library/app");
  const catalog = await openCatalog(directory.path);
  for (const [owner, letter] of [
    ["one", "a"],
    ["two", "a"],
    ["three", "b"],
  ] as const)
    await catalog.setReference({ owner, name: "app:1", arch: "amd64" }, digestOf(letter));
  assert.deepEqual(
    ["one", "two", "three"].map((owner) => catalog.hasReference(owner, digestOf("a"))),
    [true, true, false],
  );
  await catalog.remove(digestOf("a"), join(directory.path, "trash"));
  const found = (of: Catalog) => ["one", "two", "three"].map((owner) => of.find("app:1", "amd64", owner)?.digest);
  for (const each of [catalog, await openCatalog(directory.path)])
    assert.deepEqual(found(each), [undefined, undefined, digestOf("b")]);
  assert.equal((await readdir(join(directory.path, "references"))).length, 1);
  await rm(join(directory.path, "unpacked"), { recursive: true });
  assert.deepEqual(found(await openCatalog(directory.path)), [undefined, undefined, undefined]);
  assert.deepEqual(await readdir(join(directory.path, "references")), []);
});

test("an image whose file does not have the size that it was unpacked to, or another digest's, is not used and stays", async () => {
  await using directory = await temporaryDirectory();
  for (const letter of ["a", "c", "d"]) await addImage(directory.path, letter, "docker.io/library/app");
  const unpacked = join(directory.path, "unpacked");
  const pathOf = (letter: string): string => join(unpacked, digestOf(letter).replace(":", "-"));
  await writeFile(join(pathOf("a"), "root.ext4"), "longer");
  await rename(pathOf("d"), pathOf("b"));
  const catalog = await openCatalog(directory.path);
  assert.deepEqual(
    catalog.images().map(({ digest }) => digest),
    [digestOf("c")],
  );
  assert.equal((await readdir(unpacked)).length, 3);
});
