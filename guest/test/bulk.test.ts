/**
 * Files whose content goes over a disk shared with the agent: the real program with sanitizers, and a file of
 * this host in the role of the disk on both sides.
 */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, statSync, truncateSync, writeFileSync } from "node:fs";
import { open } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { BULK_DISK_BYTES, BulkDisk } from "@flotilla/node/guest/bulk-disk";
import type { GuestExec } from "@flotilla/node/guest/guest";
import { startAgent, until } from "./agent.ts";
import { makeDirectory, startSharedAgent } from "./shared-agent.ts";

const MIB = 1024 * 1024;
const isRoot = process.getuid?.() === 0;
/** One more than can use the disk at once. */
const MANY = 5;

const disk = makeDirectory("/var/tmp/flotilla-bulk-test-");
const memory = makeDirectory("/dev/shm/flotilla-bulk-test-");
const device = join(disk, "device");
const handle = await open(device, "wx+");
await handle.truncate(BULK_DISK_BYTES);
const { file } = await startSharedAgent(new BulkDisk(handle, device));

/** Both outputs and the exit code; the first line separately. */
async function outcome(exec: GuestExec) {
  const [stdout, stderr]: [Buffer[], Buffer[]] = [[], []];
  exec.stdout.on("data", (chunk: Buffer) => stdout.push(chunk));
  exec.stderr.on("data", (chunk: Buffer) => stderr.push(chunk));
  const { exitCode } = await exec.exit;
  const all = Buffer.concat(stdout);
  const end = all.indexOf("\n");
  const head = all.toString("utf8", 0, end);
  return { head, content: all.subarray(end + 1), stderr: Buffer.concat(stderr).toString(), exitCode };
}

async function write(path: string, content: Buffer) {
  const exec = file("write", path);
  exec.stdin.end(content);
  const { head, content: said, stderr, exitCode } = await outcome(exec);
  return { head, said: said.toString(), stderr, exitCode };
}

const written = { head: "ready", said: "", stderr: "", exitCode: 0 };
const spaceOf = (path: string): number => statSync(path).blocks * 512;

test("content of any size is transferred unchanged in both directions, on disks and in memory", async () => {
  for (const directory of [disk, memory])
    for (const size of [0, 1, 4096, 65_535, 65_536, 65_537, MIB - 1, MIB, MIB + 1, 9 * MIB + 777]) {
      const content = randomBytes(size);
      const path = join(directory, `new/${size}`);
      assert.deepEqual(await write(path, content), written, path);
      assert.equal(Buffer.compare(readFileSync(path), content), 0, path);
      const { head, content: back, exitCode } = await outcome(file("read", path));
      assert.match(head, new RegExp(`^f 0644 ${size} `));
      assert.deepEqual([Buffer.compare(back, content), exitCode], [0, 0], path);
    }
});

test("content that arrives in tiny chunks is assembled", async () => {
  const content = randomBytes(3 * MIB + 5);
  const exec = file("write", join(disk, "crumbs"));
  const ended = outcome(exec);
  for (let at = 0, size = 1; at < content.byteLength; at += size, size = (size * 7) % 99_991)
    exec.stdin.write(content.subarray(at, at + size));
  exec.stdin.end();
  assert.equal((await ended).exitCode, 0);
  assert.equal(Buffer.compare(readFileSync(join(disk, "crumbs")), content), 0);
});

test("parts are read at any offset and length", async () => {
  const content = randomBytes(4 * MIB + 99);
  const path = join(disk, "parts");
  writeFileSync(path, content);
  for (const [offset, length] of [
    [1, 3 * MIB],
    [4096, 2 * MIB + 1],
    [MIB + 7, 100],
    [4 * MIB, 99],
    [5 * MIB, 9],
  ] as const) {
    const part = (await outcome(file("read", path, { offset, length }))).content;
    assert.equal(Buffer.compare(part, content.subarray(offset, offset + length)), 0, `${offset}, ${length}`);
  }
  const end = (await outcome(file("read", path, { offset: 2 * MIB + 3, isFromEnd: true }))).content;
  assert.equal(Buffer.compare(end, content.subarray(-(2 * MIB + 3))), 0);
  assert.match((await outcome(file("read", "/proc/self/status"))).content.toString(), /^Name:/);
});

test("transfers beyond the disk's windows go over the channel, and all arrive", async () => {
  const content = randomBytes(6 * MIB);
  const paths = Array.from({ length: MANY }, (_, index) => join(disk, `many-${index}`));
  for (const found of await Promise.all(paths.map((path) => write(path, content)))) assert.deepEqual(found, written);
  for (const found of await Promise.all(paths.map((path) => outcome(file("read", path)))))
    assert.equal(Buffer.compare(found.content, content), 0);
});

test("a cancelled write leaves nothing, and its window is used by others", async () => {
  mkdirSync(join(disk, "given-up"));
  for (let round = 0; round < MANY; round++) {
    const exec = file("write", join(disk, "given-up/file"));
    exec.stdin.write(randomBytes(8 * MIB));
    exec.stdout.resume();
    exec.stderr.resume();
    await exec.pid;
    exec.kill();
    assert.equal((await exec.exit).exitCode, 137);
  }
  assert.deepEqual(readdirSync(join(disk, "given-up")), []);
  await until(() => spaceOf(device) === 0);
  assert.deepEqual(await write(join(disk, "given-up/file"), randomBytes(3 * MIB)), written);
});

test("the shared disk takes no space once no transfer is running", async () => {
  assert.deepEqual(await write(join(disk, "space"), randomBytes(12 * MIB)), written);
  // It is emptied in two steps: truncated, and then extended again.
  await until(() => spaceOf(device) === 0 && statSync(device).size === BULK_DISK_BYTES);
});

test("a slow reader blocks only its own file", async () => {
  const path = join(disk, "slow");
  const content = randomBytes(24 * MIB);
  writeFileSync(path, content);
  const exec = file("read", path);
  exec.stderr.resume();
  exec.stdout.once("readable", () => undefined);
  assert.deepEqual(await write(join(disk, "beside"), randomBytes(5 * MIB)), written);
  assert.ok(exec.stdout.readableLength < 2 * MIB, `${exec.stdout.readableLength} bytes wait`);
  const chunks: Buffer[] = [];
  exec.stdout.on("data", (chunk: Buffer) => chunks.push(chunk));
  assert.equal((await exec.exit).exitCode, 0);
  const all = Buffer.concat(chunks);
  assert.equal(Buffer.compare(all.subarray(all.indexOf("\n") + 1), content), 0);
});

test("a file that shrinks while it is read fails", async () => {
  const path = join(disk, "shrinks");
  writeFileSync(path, Buffer.alloc(64 * MIB));
  const exec = file("read", path);
  exec.stdout.once("readable", () => truncateSync(path, MIB));
  await until(() => statSync(path).size === MIB);
  const { stderr, exitCode } = await outcome(exec);
  assert.deepEqual([stderr.split(" ")[0], exitCode], ["changed", 1]);
});

test("a full disk refuses the file and leaves nothing of it", {
  skip: isRoot ? false : "mounting requires root",
}, async (t) => {
  const small = join(disk, "small");
  mkdirSync(small);
  execFileSync("mount", ["-t", "tmpfs", "-o", "size=2m", "test", small]);
  t.after(() => execFileSync("umount", [small]));
  const { stderr, exitCode } = await write(join(small, "large"), randomBytes(12 * MIB));
  assert.deepEqual([stderr.split(" ")[0], exitCode], ["no_space", 1]);
  assert.deepEqual(readdirSync(small), []);
});

test("a missing shared disk is reported", async () => {
  const other = startAgent();
  const again = await open(device, "r+");
  const connected = await other.connect(other.socket, new BulkDisk(again, join(disk, "none")));
  const exec = connected.file({ operation: "write", path: join(disk, "x"), offset: 0, length: null, isFromEnd: false });
  exec.stdin.end("x");
  const { stderr, exitCode } = await outcome(exec);
  assert.deepEqual([stderr, exitCode], ["refused the bulk disk cannot be opened", 1]);
  await other.end();
});
