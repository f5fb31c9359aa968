/**
 * Files in the agent from a host's view: the real program with sanitizers, on directories of this host.
 */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  statfsSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import type { GuestFileRequest } from "@flotilla/node/guest/guest";
import { outcome, request, startAgent, until } from "./agent.ts";
import { makeDirectory, startSharedAgent } from "./shared-agent.ts";

const TMPFS = 0x01021994;
const MIB = 1024 * 1024;

/** On a disk, to distinguish it from paths in memory. */
const disk = makeDirectory("/var/tmp/flotilla-files-test-");
const memory = makeDirectory("/dev/shm/flotilla-files-test-");
const { guest, file } = await startSharedAgent();
const isRoot = process.getuid?.() === 0;
const skip = isRoot ? false : "mounting and changing owners requires root";

async function write(path: string, content: string | Buffer) {
  const exec = file("write", path);
  exec.stdin.end(content);
  return await outcome(exec);
}

const written = { stdout: "ready\n", stderr: "", exitCode: 0 };
const read = async (path: string, more: Partial<GuestFileRequest> = {}) => {
  const { stdout, stderr, exitCode } = await outcome(file("read", path, more));
  const [head = "", ...content] = stdout.split("\n");
  return { head, content: content.join("\n"), stderr, exitCode };
};
const failsWith = async (result: Promise<{ stderr: string; exitCode: number }>, word: string): Promise<void> => {
  const { stderr, exitCode } = await result;
  assert.deepEqual([stderr.split(" ")[0], exitCode], [word, 1], stderr);
};

test("a written file exists, with its parent directories, and is read back with its size", async () => {
  const path = join(disk, "a/b/c.txt");
  assert.deepEqual(await write(path, "content\n"), written);
  assert.equal(readFileSync(path, "utf8"), "content\n");
  const { head, content, exitCode } = await read(path);
  assert.match(head, /^f 0644 8 \d{13}$/);
  assert.deepEqual([content, exitCode], ["content\n", 0]);
  assert.deepEqual(await write(path, ""), written);
  assert.equal((await read(path)).head.split(" ")[2], "0");
});

test("names may contain anything except a slash", async () => {
  for (const name of ["two parts", "-rf", "größe 📦", "100%", "%2e", "new\nline", "'\"$x`\\", "..."]) {
    const path = join(disk, "odd", name);
    assert.deepEqual(await write(path, name), written, name);
    assert.equal(readFileSync(path, "utf8"), name);
    assert.equal((await read(path)).content, name);
  }
  const { stdout } = await outcome(file("list", join(disk, "odd")));
  const names = stdout
    .slice(stdout.indexOf("\n") + 1)
    .split("\0")
    .filter((_, index) => index % 2 === 1);
  assert.deepEqual(names.sort(), readdirSync(join(disk, "odd")).sort());
});

test("parts are read from either end, and nothing beyond the end", async () => {
  const path = join(disk, "digits");
  writeFileSync(path, "0123456789");
  const part = async (more: Partial<GuestFileRequest>) => (await read(path, more)).content;
  assert.equal(await part({ offset: 3, length: 4 }), "3456");
  assert.equal(await part({ offset: 7 }), "789");
  assert.equal(await part({ offset: 4, isFromEnd: true }), "6789");
  assert.equal(await part({ offset: 40, isFromEnd: true }), "0123456789");
  assert.equal(await part({ offset: 10 }), "");
  assert.equal(await part({ offset: 2 ** 52 }), "");
  assert.match((await read("/proc/self/status", { offset: 0, length: 5 })).content, /^Name:$/);
});

test("a replaced file's mode and owner are kept", { skip }, async () => {
  const path = join(disk, "tool");
  writeFileSync(path, "old");
  chownSync(path, 1234, 2345);
  chmodSync(path, 0o4751);
  assert.deepEqual(await write(path, "new"), written);
  const { mode, uid, gid } = statSync(path);
  assert.deepEqual([mode & 0o7777, uid, gid], [0o4751, 1234, 2345]);
});

test("new files and directories belong to the machine's user", { skip }, async () => {
  await guest.configure({
    hostname: "box",
    machineId: "0123456789abcdef0123456789abcdef",
    now: 1_700_000_000_000,
    entropy: new Uint8Array(32),
    env: {},
    workdir: "/",
    user: "1234:2345",
    rootDevice: null,
    rootBytes: null,
    nameservers: [],
    address: null,
  });
  assert.deepEqual(await write(join(disk, "own/deep/file"), "x"), written);
  for (const path of ["own", "own/deep", "own/deep/file"]) {
    const { uid, gid } = statSync(join(disk, path));
    assert.deepEqual([uid, gid], [1234, 2345], path);
  }
});

test("the old file remains until the new one is complete, and a cancelled write leaves nothing", async () => {
  const path = join(disk, "atomic/file");
  assert.deepEqual(await write(path, "old"), written);
  const exec = file("write", path);
  let said = "";
  exec.stdout.on("data", (chunk: Buffer) => {
    said += chunk;
  });
  await until(() => said === "ready\n");
  exec.stdin.write(randomBytes(MIB));
  assert.equal(readFileSync(path, "utf8"), "old");
  exec.kill();
  assert.equal((await exec.exit).exitCode, 137);
  assert.equal(readFileSync(path, "utf8"), "old");
  assert.deepEqual(readdirSync(join(disk, "atomic")), ["file"]);
});

test("a link is followed and kept; a dangling link creates its target", async () => {
  mkdirSync(join(disk, "links"));
  writeFileSync(join(disk, "links/real"), "old");
  symlinkSync("real", join(disk, "links/link"));
  symlinkSync("../links/./later", join(disk, "links/dangling"));
  assert.deepEqual(await write(join(disk, "links/link"), "new"), written);
  assert.deepEqual(await write(join(disk, "links/dangling"), "made"), written);
  assert.equal(readlinkSync(join(disk, "links/link")), "real");
  assert.equal(readFileSync(join(disk, "links/real"), "utf8"), "new");
  assert.equal(readFileSync(join(disk, "links/later"), "utf8"), "made");
  symlinkSync("loop", join(disk, "links/loop"));
  await failsWith(write(join(disk, "links/loop"), "x"), "refused");
});

test("a link from the disk into memory is refused for writing, but a path in memory is accepted", async (t) => {
  if (statfsSync("/dev/shm").type !== TMPFS || statfsSync(disk).type === TMPFS) return t.skip("no such file systems");
  mkdirSync(join(disk, "to"));
  symlinkSync(memory, join(disk, "to/memory"));
  symlinkSync(join(memory, "file"), join(disk, "to/file"));
  symlinkSync("memory/deep", join(disk, "to/twice"));
  for (const path of ["to/memory/x", "to/memory/new/x", "to/file", "to/twice", "to/memory"])
    await failsWith(write(join(disk, path), "x"), "memory");
  assert.deepEqual(readdirSync(memory), []);
  assert.deepEqual(await write(join(memory, "plain"), "x"), written);
  symlinkSync("plain", join(memory, "inside"));
  assert.deepEqual(await write(join(memory, "inside"), "y"), written);
  assert.equal((await read(join(disk, "to/memory/plain"))).content, "y");
  symlinkSync(join(disk, "from-memory"), join(memory, "out"));
  assert.deepEqual(await write(join(memory, "out"), "z"), written);
});

test("a failure has an error code", async () => {
  mkdirSync(join(disk, "full/of"), { recursive: true });
  writeFileSync(join(disk, "plain"), "x");
  execFileSync("mkfifo", [join(disk, "fifo")]);
  await failsWith(read(join(disk, "none")), "not_found");
  await failsWith(read(join(disk, "full")), "is_directory");
  await failsWith(read(join(disk, "plain/x")), "not_directory");
  await failsWith(read(join(disk, "fifo")), "not_regular");
  await failsWith(write(join(disk, "full"), "x"), "is_directory");
  await failsWith(write("/", "x"), "is_directory");
  await failsWith(write(join(disk, "plain/x"), "x"), "not_directory");
  await failsWith(write(join(disk, "fifo"), "x"), "not_regular");
  await failsWith(write(join(disk, "n".repeat(256)), "x"), "name_too_long");
  await failsWith(write(`/${"n/".repeat(2100)}`, "x"), "name_too_long");
  await failsWith(outcome(file("list", join(disk, "plain"))), "not_directory");
  await failsWith(outcome(file("list", join(disk, "none"))), "not_found");
  await failsWith(outcome(file("remove", join(disk, "none"))), "not_found");
  await failsWith(outcome(file("remove", join(disk, "full"))), "not_empty");
  await failsWith(outcome(file("stat", join(disk, "none"))), "not_found");
});

test("files, links and empty directories are removed", async () => {
  symlinkSync("/etc/passwd", join(disk, "link"));
  for (const path of ["plain", "link", "full/of", "full"]) {
    assert.equal((await outcome(file("remove", join(disk, path)))).exitCode, 0);
    assert.equal(existsSync(join(disk, path)), false);
  }
  assert.equal(existsSync("/etc/passwd"), true);
});

test("a full file system refuses the file, says whether it is in memory, and leaves nothing of it", {
  skip,
}, async (t) => {
  const small = join(disk, "small");
  mkdirSync(small);
  execFileSync("mount", ["-t", "tmpfs", "-o", "size=1m", "test", small]);
  t.after(() => execFileSync("umount", [small]));
  assert.deepEqual((await write(join(small, "large"), randomBytes(3 * MIB))).stderr, "no_space memory");
  assert.deepEqual(readdirSync(small), []);
  assert.deepEqual(await write(join(small, "fits"), randomBytes(MIB / 2)), written);
});

test("64 MiB are transferred unchanged in both directions, and concurrent transfers do not block each other", async () => {
  const content = randomBytes(64 * MIB);
  const hash = (bytes: Buffer): string => createHash("sha256").update(bytes).digest("hex");
  const path = join(disk, "large");
  assert.deepEqual(await write(path, content), written);
  assert.equal(hash(readFileSync(path)), hash(content));
  const exec = file("read", path);
  const chunks: Buffer[] = [];
  exec.stdout.on("data", (chunk: Buffer) => chunks.push(chunk));
  exec.stderr.resume();
  await exec.exit;
  const all = Buffer.concat(chunks);
  assert.equal(hash(all.subarray(all.indexOf("\n") + 1)), hash(content));
  const slow = Array.from({ length: 100 }, () => file("read", path));
  assert.deepEqual(await write(join(disk, "beside"), "x"), written);
  for (const each of slow) each.kill();
  await Promise.all(slow.map(({ exit }) => exit));
});

test("a guest that shuts down accepts no more files", async () => {
  const closing = startAgent();
  const other = await closing.connect();
  // A slow process, so that the guest's shutdown takes time.
  const busy = other.exec(request(["sh", "-c", "trap 'sleep 2; exit' TERM; echo ready; while :; do sleep 0.05; done"]));
  await new Promise((resolve) => busy.stdout.once("data", resolve));
  busy.exit.catch(() => {});
  await other.shutDown();
  const exec = other.file({ operation: "stat", path: "/", offset: 0, length: null, isFromEnd: false });
  await assert.rejects(exec.exit, /shutting down/);
  await closing.end();
});
