/**
 * Files and terminals of a real machine, as far as a real guest is needed: a disk that is kept, memory that
 * is not, a full disk, and a terminal that echoes.
 */
import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { after, afterEach, before, describe, test } from "node:test";
import { text } from "node:stream/consumers";
import type { Driver } from "../../node/src/driver/driver.ts";
import type { Guest, GuestExec, GuestFileRequest } from "../../node/src/guest/guest.ts";
import { until } from "../support/until.ts";
import { BOOT_DEADLINE_MS, configure, deadline, NodePlace, shell, skipReason } from "./vm-fixture.ts";

const MIB = 1024 * 1024;

const file = (guest: Guest, operation: GuestFileRequest["operation"], path: string): GuestExec =>
  guest.file({ operation, path, offset: 0, length: null, isFromEnd: false });

async function write(guest: Guest, path: string, content: string | Buffer): Promise<string> {
  const exec = file(guest, "write", path);
  exec.stdin.end(content);
  const [, stderr, { exitCode }] = await Promise.all([text(exec.stdout), text(exec.stderr), exec.exit]);
  return exitCode === 0 ? "written" : stderr;
}

/** Hash and size of the content, without its first line. */
async function read(guest: Guest, path: string): Promise<{ readonly sha256: string; readonly size: number }> {
  const exec = file(guest, "read", path);
  exec.stderr.resume();
  const hash = createHash("sha256");
  let size = 0;
  let hasHead = false;
  exec.stdout.on("data", (chunk: Buffer) => {
    const content = hasHead ? chunk : chunk.subarray(chunk.indexOf("\n") + 1);
    hasHead = true;
    size += content.byteLength;
    hash.update(content);
  });
  await exec.exit;
  return { sha256: hash.digest("hex"), size };
}

describe("files and terminals of a real machine", { skip: skipReason }, () => {
  let place: NodePlace;
  let driver: Driver;

  before(async () => {
    place = new NodePlace();
    driver = await place.driver();
  });
  afterEach(() => place.sweep());
  after(() => place[Symbol.asyncDispose]());

  test("files are transferred complete, are on the disk when that is acknowledged, and never half written", async () => {
    const machine = await place.machine("mach-files", 700_101);
    const vm = await driver.boot(place.bootOf(machine, "boot-files-1"), deadline());
    const { guest } = vm;
    await configure(guest, driver);
    const content = randomBytes(32 * MIB);
    const sha256 = createHash("sha256").update(content).digest("hex");
    assert.equal(await write(guest, "/workspace/deep/large file", content), "written");
    assert.deepEqual(await read(guest, "/workspace/deep/large file"), { sha256, size: content.byteLength });
    assert.match(await shell(guest, "busybox sha256sum '/workspace/deep/large file'"), new RegExp(`^${sha256}`));

    await shell(guest, "busybox ln -s /tmp /workspace/link && busybox mkdir /small");
    assert.equal(await write(guest, "/workspace/link/x", "x"), "memory /tmp/x");
    assert.equal(await write(guest, "/tmp/x", "x"), "written");
    await shell(guest, "busybox mount -t tmpfs -o size=1m small /small");
    assert.match(await write(guest, "/small/x", randomBytes(2 * MIB)), /^no_space /);
    assert.equal(await shell(guest, "busybox ls -A /small"), "");

    const half = file(guest, "write", "/workspace/deep/large file");
    half.stdin.write(randomBytes(MIB));
    half.stdout.resume();
    half.stderr.resume();
    assert.equal(await write(guest, "/workspace/last", "on the disk"), "written");
    // Nothing is synced: acknowledged writes must be there all the same.
    process.kill(vm.record.pid, "SIGKILL");
    await assert.rejects(half.exit);
    await vm.exited;

    const second = await driver.boot(place.bootOf(machine, "boot-files-2"), deadline());
    await configure(second.guest, driver);
    assert.equal(await shell(second.guest, "cat /workspace/last"), "on the disk");
    assert.deepEqual(await read(second.guest, "/workspace/deep/large file"), { sha256, size: content.byteLength });
    assert.equal(await shell(second.guest, "busybox ls -A /workspace/deep"), "large file\n");
    await second.kill();
  });

  test("a terminal echoes, knows its size, handles Ctrl-C, and ends with its program", async () => {
    const machine = await place.machine("mach-terminal", 700_102);
    const vm = await driver.boot(place.bootOf(machine, "boot-terminal"), deadline());
    await configure(vm.guest, driver);
    const terminal = { cols: 120, rows: 40 };
    const start = { argv: ["/bin/sh"], cwd: null, env: {}, user: null, hasStdin: true, isBackground: false };
    const exec = vm.guest.exec({ ...start, terminal });
    let seen = "";
    exec.stdout.on("data", (chunk: Buffer) => {
      seen += chunk;
    });
    const shows = (wanted: string): Promise<unknown> => {
      const isShown = (): boolean => {
        if (!seen.includes(wanted)) throw new Error(JSON.stringify(seen));
        return true;
      };
      return until(isShown, { what: JSON.stringify(wanted), deadlineMs: BOOT_DEADLINE_MS });
    };
    exec.stdin.write("busybox stty size\n");
    await shows("stty size\r\n40 120\r\n");
    exec.resize({ cols: 99, rows: 33 });
    exec.stdin.write("busybox stty size\n");
    await shows("33 99\r\n");
    // The program says itself that it runs: only then has the shell given it the terminal.
    exec.stdin.write("busybox sh -c 'echo run''ning; exec busybox sleep 600'\n");
    await shows("running\r\n");
    exec.stdin.write("\u0003");
    await shows("^C");
    exec.stdin.write("echo ended with $?\n");
    await shows("ended with 130\r\n");
    exec.stdin.write("exit 5\n");
    assert.equal((await exec.exit).exitCode, 5);
    await vm.kill();
  });
});
