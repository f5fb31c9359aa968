/**
 * Machines whose journal is missing, damaged or of another version: with the fake driver, whose disks and VMs
 * are files.
 */
import assert from "node:assert/strict";
import { appendFile, chown, readFile, rm, truncate, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import type { Journal } from "../src/machines/journal.ts";
import { immovable, needsRoot } from "./support/immovable.ts";
import {
  listFiles,
  machineIdOf,
  machineOf,
  startTestNode,
  type TestNode,
  temporaryDirectory,
} from "./support/in-process.ts";

const A = machineIdOf("a");
const B = machineIdOf("b");
const DATA = "what the machine wrote\n";

const userOf = async (directory: string, machineId: string): Promise<number> =>
  (JSON.parse(await readFile(join(directory, "machines", machineId, "journal.json"), "utf8")) as Journal).uid;

/** How a journal is lost. */
const LOSSES: Readonly<Record<string, (path: string) => Promise<void>>> = {
  removed: (path) => rm(path),
  truncated: (path) => truncate(path, 40),
  empty: (path) => truncate(path),
  "another machine's": async (path) => {
    await writeFile(path, (await readFile(path, "utf8")).replaceAll(A, B));
  },
};

interface Left {
  readonly node: TestNode;
  readonly directory: string;
  readonly journalPath: string;
  readonly diskPath: string;
  readonly bootId: string | null;
}

/** A machine that wrote to its disk and whose agent has stopped. */
async function leaveMachine(path: string, state: "running" | "stopped"): Promise<Left> {
  const node = await startTestNode(path);
  const { bootId } = await node.want(A, 1, "running");
  if (state === "stopped") await node.want(A, 2, "stopped");
  await node.fleet.release();
  const directory = join(path, "machines", A);
  const diskPath = join(directory, "disk");
  await appendFile(diskPath, DATA);
  return { node, directory, journalPath: join(directory, "journal.json"), diskPath, bootId };
}

for (const [how, lose] of Object.entries(LOSSES)) {
  test(`a stopped machine whose journal is ${how} starts with its own disk`, async () => {
    await using directory = await temporaryDirectory();
    const { journalPath, diskPath } = await leaveMachine(directory.path, "stopped");
    await lose(journalPath);
    const node = await startTestNode(directory.path);
    const seen = node.fleet.observe(A);
    assert.deepEqual([seen.state, seen.generation], ["stopped", 0]);
    assert.match(node.events[0]?.message ?? "", /its journal .*; the machine was recovered/);
    assert.equal((await node.want(A, 3, "running")).state, "running");
    assert.ok((await readFile(diskPath, "utf8")).endsWith(DATA));
    assert.ok((await node.fleet.imagesInUse()).has(machineOf(node, A).known.journal.imageDigest ?? ""));
  });

  test(`a machine that runs while its journal is ${how} continues in the same VM`, async () => {
    await using directory = await temporaryDirectory();
    const { journalPath, diskPath, bootId } = await leaveMachine(directory.path, "running");
    await lose(journalPath);
    const node = await startTestNode(directory.path);
    assert.equal(node.adoption.swept, 0);
    const seen = node.fleet.observe(A);
    assert.deepEqual([seen.state, seen.generation, seen.bootId], ["booting", 0, bootId]);
    const again = await node.want(A, 1, "running");
    assert.deepEqual([again.state, again.bootId], ["running", bootId]);
    assert.equal((await node.want(A, 2, "stopped")).state, "stopped");
    assert.ok((await readFile(diskPath, "utf8")).endsWith(DATA));
    assert.doesNotMatch(node.logLines.join(""), /run twice/);
  });
}

test("a journal of a later version is kept as it is: its machine is failed, continues to run, and is not started", async () => {
  await using directory = await temporaryDirectory();
  const { journalPath, diskPath, bootId } = await leaveMachine(directory.path, "running");
  const later = JSON.stringify({ ...JSON.parse(await readFile(journalPath, "utf8")), version: 99 });
  await writeFile(journalPath, later);
  const node = await startTestNode(directory.path);
  assert.equal(node.adoption.swept, 0);
  const refused = await node.want(A, 2, "running");
  assert.deepEqual([refused.state, refused.generation], ["failed", 2]);
  assert.match(refused.reason ?? "", /version 99.*start the later version of Flotilla again/);
  assert.equal((await node.want(A, 3, "stopped")).state, "failed");
  assert.equal(await readFile(journalPath, "utf8"), later);
  assert.ok((await readFile(diskPath, "utf8")).endsWith(DATA));
  assert.deepEqual(
    (await node.driver.find()).map(({ record }) => record.bootId),
    [bootId],
  );
  assert.ok((await node.fleet.imagesInUse()).size > 0);

  await rm(journalPath);
  const repaired = await startTestNode(directory.path);
  const running = await repaired.want(A, 4, "running");
  assert.deepEqual([running.state, running.bootId], ["running", bootId]);
});

test("such a machine can be removed, with its VM", async () => {
  await using directory = await temporaryDirectory();
  const { journalPath } = await leaveMachine(directory.path, "running");
  await writeFile(journalPath, JSON.stringify({ version: 99 }));
  const node = await startTestNode(directory.path);
  assert.equal((await node.want(A, 2, "absent")).state, "absent");
  assert.deepEqual(await listFiles(join(directory.path, "machines")), []);
  assert.deepEqual(await node.driver.find(), []);
});

test("a machine whose journal and disk are both unusable is failed and keeps its disk, and no image is removed", async () => {
  await using directory = await temporaryDirectory();
  const { journalPath, diskPath } = await leaveMachine(directory.path, "stopped");
  await rm(journalPath);
  await writeFile(diskPath, "overwritten");
  const node = await startTestNode(directory.path);
  const refused = await node.want(A, 3, "running");
  assert.equal(refused.state, "failed");
  assert.match(refused.reason ?? "", /its disk does not name its image; restore the journal/);
  assert.equal(await readFile(diskPath, "utf8"), "overwritten");
  const digests = (await node.images.list()).map(({ digest }) => digest);
  assert.deepEqual([...(await node.fleet.imagesInUse())].toSorted(), digests.toSorted());
});

test("the user of a machine that cannot be used is free only when it is removed", { skip: needsRoot }, async () => {
  await using directory = await temporaryDirectory();
  const { journalPath, diskPath } = await leaveMachine(directory.path, "stopped");
  const { uid, ...journal } = JSON.parse(await readFile(journalPath, "utf8")) as Journal;
  await chown(diskPath, uid, uid);
  await writeFile(journalPath, JSON.stringify({ ...journal, uid, version: 99 }));
  const node = await startTestNode(directory.path);
  await node.want(B, 1, "running");
  assert.notEqual(await userOf(directory.path, B), uid);
  await node.want(A, 3, "absent");
  await node.want(machineIdOf("c"), 1, "running");
  assert.equal(await userOf(directory.path, machineIdOf("c")), uid);
});

/** Journals whose content an agent cannot use, though they name the machine. */
const UNUSABLE: Readonly<Record<string, object>> = {
  "a boot without an id": { boot: {} },
};

for (const [what, change] of Object.entries(UNUSABLE))
  test(`a journal with ${what} fails its machine, which keeps its files, and no other`, async () => {
    await using directory = await temporaryDirectory();
    const { journalPath, diskPath, node: before } = await leaveMachine(directory.path, "running");
    const journal = JSON.parse(await readFile(journalPath, "utf8")) as Journal;
    await writeFile(journalPath, JSON.stringify({ ...journal, ...change }));
    const vms = await before.driver.find();
    const node = await startTestNode(directory.path);
    assert.deepEqual(await node.driver.find(), vms);
    assert.equal((await node.want(B, 1, "running")).state, "running");
    const refused = await node.want(A, 3, "running");
    assert.equal(refused.state, "failed");
    assert.match(refused.reason ?? "", /repair what is named here and restart the node agent/);
    assert.ok((await readFile(diskPath, "utf8")).endsWith(DATA));
    assert.equal((await node.want(A, 4, "absent")).state, "absent");
    assert.equal((await node.driver.find()).length, 1);
  });

test("what cannot be removed from a machine's directory neither fails it nor another", {
  skip: needsRoot,
}, async () => {
  await using directory = await temporaryDirectory();
  const { directory: own, journalPath } = await leaveMachine(directory.path, "stopped");
  await using _left = await immovable(join(own, "memory.new"));
  const node = await startTestNode(directory.path);
  assert.equal((await node.want(A, 3, "running")).state, "running");
  await node.want(A, 4, "stopped");
  await node.fleet.release();

  await rm(journalPath);
  await rm(join(own, "disk"));
  const after = await startTestNode(directory.path);
  assert.equal((await after.want(B, 1, "running")).state, "running");
  assert.match(after.fleet.observe(A).reason ?? "", /what is left of it cannot be removed.*repair what is named here/);
});

test("a disk that an older journal does not mention is used, not replaced", async () => {
  await using directory = await temporaryDirectory();
  const { journalPath, diskPath } = await leaveMachine(directory.path, "stopped");
  const journal = JSON.parse(await readFile(journalPath, "utf8")) as Journal;
  await writeFile(journalPath, JSON.stringify({ ...journal, hasDisk: false, imageDigest: null }));
  const node = await startTestNode(directory.path);
  assert.equal((await node.want(A, 3, "running")).state, "running");
  assert.ok((await readFile(diskPath, "utf8")).endsWith(DATA));
});

test("a disk that appears while the agent runs is not replaced by a new one", async () => {
  await using directory = await temporaryDirectory();
  const node = await startTestNode(directory.path);
  await node.want(A, 1, "stopped");
  const diskPath = join(directory.path, "machines", A, "disk");
  await writeFile(diskPath, DATA);
  const refused = await node.want(A, 2, "running");
  assert.equal(refused.state, "failed");
  assert.match(refused.reason ?? "", /a disk on the node that its journal does not know; the disk is kept/);
  assert.equal(await readFile(diskPath, "utf8"), DATA);
});
