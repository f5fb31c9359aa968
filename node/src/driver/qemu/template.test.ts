/**
 * Templates on the disk, without a VM: cleanup at start, and the space they need.
 */
import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, readdirSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { systemClock } from "@flotilla/base/clock";
import { immovable, needsRoot } from "../../../test/support/immovable.ts";
import { makeLog } from "../../log.ts";
import type { Launcher } from "./launcher.ts";
import { Templates, templateSpaceMb } from "./template.ts";

test("templates of another version and incomplete ones are removed at the start", async () => {
  const nodeDirectory = mkdtempSync(join(tmpdir(), "flotilla-templates-"));
  try {
    const templates = (ingredients: string): Templates =>
      new Templates({ launcher: { nodeDirectory } as Launcher, ingredients });
    const [earlier, now] = [templates("QEMU 1"), templates("QEMU 2")];
    for (const made of [earlier, now]) {
      mkdirSync(made.pathOf({ cpus: 1, memoryMb: 512 }), { recursive: true });
      mkdirSync(`${made.pathOf({ cpus: 4, memoryMb: 512 })}.new`, { recursive: true });
    }
    await now.open();
    assert.deepEqual(
      readdirSync(now.directory).map((name) => join(now.directory, name)),
      [now.pathOf({ cpus: 1, memoryMb: 512 })],
    );
  } finally {
    rmSync(nodeDirectory, { recursive: true });
  }
});

test("a template that cannot be removed does not end the agent's start", { skip: needsRoot }, async () => {
  const nodeDirectory = mkdtempSync(join(tmpdir(), "flotilla-templates-"));
  try {
    const warnings: string[] = [];
    const write = (line: string): void => void warnings.push(line);
    const log = makeLog({ level: "warn", clock: systemClock, write });
    const templates = new Templates({ launcher: { nodeDirectory, log } as Launcher, ingredients: "QEMU 2" });
    const [stuck, other] = ["1x512-an-earlier-one", "2x512-an-earlier-one"];
    for (const name of [stuck, other]) mkdirSync(join(templates.directory, name), { recursive: true });
    {
      await using _left = await immovable(join(templates.directory, stuck, "state"));
      await templates.open();
      assert.deepEqual(readdirSync(templates.directory), [stuck]);
    }
    assert.match(warnings.join(""), /cannot be removed.*1x512-an-earlier-one/);
  } finally {
    rmSync(nodeDirectory, { recursive: true });
  }
});

test("a template needs as much disk space as a guest of its size touches, and fits on a small disk", () => {
  assert.ok(templateSpaceMb({ memoryMb: 8192 }) < 1_000);
  assert.ok(templateSpaceMb({ memoryMb: 8192 }) > 8192 * 0.04);
  assert.ok(templateSpaceMb({ memoryMb: 65_536 }) > 65_536 * 0.04);
});

/** Templates in a temporary directory, whose VMMs cannot be started. */
async function withTemplates(work: (templates: Templates, directory: string) => Promise<void>): Promise<void> {
  const nodeDirectory = mkdtempSync(join(tmpdir(), "flotilla-templates-"));
  try {
    const makeReachable = (): Promise<never> => Promise.reject(new Error("no VMM is started here"));
    const launcher: Partial<Launcher> = { nodeDirectory, clock: systemClock, makeReachable };
    const templates = new Templates({ launcher: launcher as Launcher, ingredients: "QEMU 1" });
    await templates.open();
    await work(templates, nodeDirectory);
  } finally {
    rmSync(nodeDirectory, { recursive: true });
  }
}

const SIZE = { cpus: 1, memoryMb: 512 };

/** An image's file system, of which only the superblock matters. */
function makeImage(directory: string, content: string): string {
  const path = join(directory, "root.ext4");
  writeFileSync(path, Buffer.alloc(4096, content));
  return path;
}

/** What a finished template of a disk looks like. */
async function makeMounted(templates: Templates, rootPath: string, bytes = 2 ** 30): Promise<string> {
  const directory = await templates.mountedPathOf(SIZE, { bytes, backingPaths: [rootPath] });
  mkdirSync(directory, { recursive: true });
  for (const name of ["memory", "state", "disk"]) writeFileSync(join(directory, name), "x");
  writeFileSync(join(directory, "template.json"), JSON.stringify({ rootPath }));
  return directory;
}

test("a disk finds the template of its size and image, also after a restart, and not that of another", async () => {
  await withTemplates(async (templates, directory) => {
    const rootPath = makeImage(directory, "one");
    const disk = { bytes: 2 ** 30, backingPaths: [rootPath] };
    const made = await makeMounted(templates, rootPath);
    await templates.open();
    assert.equal((await templates.findMounted(SIZE, disk))?.diskPath, join(made, "disk"));
    assert.equal(await templates.findMounted({ ...SIZE, cpus: 2 }, disk), undefined);
    assert.equal(await templates.findMounted(SIZE, { ...disk, bytes: 2 ** 31 }), undefined);
    assert.equal(await templates.find(SIZE), undefined, "a machine with an old disk must not get it");
    rmSync(join(made, "disk"));
    assert.equal(await templates.findMounted(SIZE, disk), undefined, "it is incomplete");
  });
});

test("an image that was unpacked again has no template", async () => {
  await withTemplates(async (templates, directory) => {
    const rootPath = makeImage(directory, "one");
    await makeMounted(templates, rootPath);
    makeImage(directory, "two");
    assert.equal(await templates.findMounted(SIZE, { bytes: 2 ** 30, backingPaths: [rootPath] }), undefined);
  });
});

test("templates of removed images are removed at the start, and halves of a crash", async () => {
  await withTemplates(async (templates, directory) => {
    const rootPath = makeImage(directory, "one");
    const made = await makeMounted(templates, rootPath);
    mkdirSync(`${made}.new/boot`, { recursive: true });
    await templates.open();
    assert.deepEqual(
      readdirSync(templates.directory).map((name) => join(templates.directory, name)),
      [made],
    );
    rmSync(rootPath);
    await templates.open();
    assert.deepEqual(readdirSync(templates.directory), []);
  });
});

test("a new template takes the place of a removed image's, and then of the one that was used longest ago", async () => {
  await withTemplates(async (templates, directory) => {
    const rootPath = makeImage(directory, "one");
    const made: string[] = [];
    for (let gb = 1; gb <= 9; gb += 1) made.push(await makeMounted(templates, rootPath, gb * 2 ** 30));
    for (const [age, path] of made.entries()) utimesSync(path, 1_000 + age, 1_000 + age);
    await assert.rejects(templates.ensure(SIZE, AbortSignal.timeout(60_000)), /no VMM is started here/);
    const kept = new Set(readdirSync(templates.directory).map((name) => join(templates.directory, name)));
    assert.deepEqual(
      made.filter((path) => !kept.has(path)),
      made.slice(0, 2),
    );
    rmSync(rootPath);
    await assert.rejects(templates.ensure(SIZE, AbortSignal.timeout(60_000)), /no VMM is started here/);
    assert.deepEqual(readdirSync(templates.directory), []);
  });
});
