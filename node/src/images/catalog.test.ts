/**
 * Which images a catalog lists, and for whom.
 */
import assert from "node:assert/strict";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { systemClock } from "@flotilla/base/clock";
import { temporaryDirectory } from "../../test/support/in-process.ts";
import { makeLog } from "../log.ts";
import { Catalog } from "./catalog.ts";

const digestOf = (letter: string): string => `sha256:${letter.repeat(64)}`;

async function addImage(directory: string, letter: string, source: string): Promise<void> {
  const path = join(directory, "unpacked", digestOf(letter).replace(":", "-"));
  await mkdir(path, { recursive: true });
  await writeFile(join(path, "root.ext4"), "x");
  const configuration = { env: [], workdir: "/", user: "", entrypoint: [], command: [] };
  const record = { digest: digestOf(letter), source, architecture: "amd64", os: "linux", layerCount: 1 };
  await writeFile(join(path, "image.json"), JSON.stringify({ ...record, configuration, rootBytes: 1, sizeBytes: 1 }));
}

test("a tenant's list has what it fetched and local images, and an operator's has all, by reference", async () => {
  await using directory = await temporaryDirectory();
  await addImage(directory.path, "a", "docker.io/library/app");
  await addImage(directory.path, "b", "docker.io/library/old");
  await addImage(directory.path, "c", "local/own");
  await addImage(directory.path, "d", "local/replaced");
  const log = makeLog({ level: "silent", clock: systemClock });
  const catalog = new Catalog({ directory: directory.path, clock: systemClock, log });
  await catalog.open();
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
  const log = makeLog({ level: "silent", clock: systemClock });
  const opened = async (): Promise<Catalog> => {
    const catalog = new Catalog({ directory: directory.path, clock: systemClock, log });
    await catalog.open();
    return catalog;
  };
  const catalog = await opened();
  const key = { owner: null, name: "local/own:latest", arch: "amd64" };
  await Promise.all(["a", "b", "c"].map((letter) => catalog.setReference(key, digestOf(letter))));
  for (const each of [catalog, await opened()])
    assert.equal(each.find(key.name, key.arch, null)?.digest, digestOf("c"));
});
