/**
 * Bases of memory: a file is found by its content alone, among templates and machines.
 */
import assert from "node:assert/strict";
import { mkdir, mkdtemp, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { contentHash } from "../images/blocks.ts";
import { MemoryBases } from "./memory-bases.ts";
import { memoryBasePathOf } from "./paths.ts";

const { signal } = new AbortController();

test("an equal file of a template or of a machine gets another name, and one that only has the size does not", async (t) => {
  const directory = await mkdtemp(join(tmpdir(), "flotilla-bases-"));
  t.after(() => rm(directory, { recursive: true }));
  const machinesDirectory = join(directory, "machines");
  const ofMachine = join(machinesDirectory, "one", "memory-base");
  await mkdir(join(machinesDirectory, "one"), { recursive: true });
  await mkdir(join(machinesDirectory, "two"));
  const template = join(directory, "template");
  await writeFile(template, Buffer.alloc(8192, 1));
  await writeFile(ofMachine, Buffer.alloc(8192, 2));
  const memory = { bases: () => Promise.resolve([join(directory, "removed"), template]) };
  const bases = new MemoryBases({ memory, machinesDirectory });
  const path = join(directory, "linked");
  const wanted = async (byte: number) => {
    const like = join(directory, "like");
    await writeFile(like, Buffer.alloc(8192, byte));
    return { bytes: 8192, size: 8192, sha256: await contentHash(like, signal) };
  };
  for (const [byte, source] of [
    [1, template],
    [2, ofMachine],
  ] as const) {
    assert.equal(await bases.linkEqual(await wanted(byte), path), true);
    assert.equal((await stat(path)).ino, (await stat(source)).ino);
  }
  assert.equal(await bases.linkEqual(await wanted(3), path), false);
  const { sha256 } = await bases.describe(memoryBasePathOf(join(machinesDirectory, "one")), {
    hasContent: true,
    signal,
  });
  assert.equal(sha256, (await wanted(2)).sha256);
});

test("a file of another machine that cannot be read keeps no machine from coming", async (t) => {
  const directory = await mkdtemp(join(tmpdir(), "flotilla-bases-"));
  t.after(() => rm(directory, { recursive: true }));
  const machinesDirectory = join(directory, "machines");
  // Can be opened, and not read.
  const unreadable = join(machinesDirectory, "one", "memory-base");
  await mkdir(unreadable, { recursive: true });
  const { size } = await stat(unreadable);
  const bases = new MemoryBases({ memory: null, machinesDirectory });
  const base = { bytes: size, size, sha256: "a".repeat(64) };
  assert.equal(await bases.linkEqual(base, join(directory, "linked")), false);
});

test("a caller that leaves does not end the hash for another one, and the next gets the same", async (t) => {
  const directory = await mkdtemp(join(tmpdir(), "flotilla-bases-"));
  t.after(() => rm(directory, { recursive: true }));
  const path = join(directory, "base");
  await writeFile(path, Buffer.alloc(4 * 2 ** 20, 1));
  const bases = new MemoryBases({ memory: null, machinesDirectory: directory });
  const leaving = new AbortController();
  const left = bases.describe(path, { hasContent: true, signal: leaving.signal });
  const stays = bases.describe(path, { hasContent: true, signal });
  leaving.abort(new Error("the caller has gone"));
  await assert.rejects(left, /the caller has gone/);
  const sha256 = await contentHash(path, signal);
  assert.equal((await stays).sha256, sha256);
  assert.equal((await bases.describe(path, { hasContent: true, signal })).sha256, sha256);
});
