/**
 * Control groups of this host: made with limits, joined, full, and removed again.
 */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { after, test } from "node:test";
import { systemClock } from "../src/clock.ts";
import { type Cgroups, openCgroups } from "../src/host/cgroups.ts";
import { makeLog } from "../src/log.ts";
import { temporaryDirectory } from "./support/in-process.ts";

const log = makeLog({ level: "silent", clock: systemClock });
const directory = await temporaryDirectory();
const cgroups =
  process.getuid?.() === 0 ? await openCgroups({ nodeDirectory: directory.path, clock: systemClock, log }) : null;
const skip = cgroups === null && "this host lets us make no control groups";
after(() => directory[Symbol.asyncDispose]());

const limits = { memoryBytes: 64 * 2 ** 20, cpus: 1, tasksMax: 16 };
/** Joins the groups in its arguments, says so, and runs the line in FLOTILLA_LINE. */
const MEMBER = 'for f; do echo 0 >"$f" || exit 9; done; echo joined; eval "$LINE"';

async function member(paths: readonly string[], line: string) {
  const child = spawn("sh", ["-c", MEMBER, "sh", ...paths], { env: { PATH: "/usr/bin:/bin", LINE: line } });
  const exit = once(child, "exit");
  await once(child.stdout, "data");
  return { child, exit };
}

test("a process that needs more memory than its group has is ended, and the group says why", { skip }, async () => {
  const groups = cgroups as Cgroups;
  const group = await groups.make("boot-full", limits);
  assert.equal(await group.hasRunOutOfMemory(), false);
  const { exit } = await member(group.procsPaths, "x=$(head -c 200000000 /dev/zero | tr '\\0' x)");
  assert.deepEqual(await exit, [null, "SIGKILL"]);
  assert.equal(await group.hasRunOutOfMemory(), true);
  // As a later agent does it, which has not made it.
  await groups.find("boot-full").remove();
  for (const path of group.procsPaths) assert.ok(!existsSync(dirname(path)), path);
});

test("a sweep removes groups that are left over and no others", { skip }, async () => {
  const groups = cgroups as Cgroups;
  const left = await groups.make("boot-left", limits);
  const used = await groups.make("boot-used", limits);
  const { child, exit } = await member(used.procsPaths, "exec sleep 60");
  await groups.sweep();
  for (const path of left.procsPaths) assert.ok(!existsSync(path), path);
  for (const path of used.procsPaths) assert.ok(existsSync(path), path);
  child.kill("SIGKILL");
  await exit;
  await used.remove();
});

test("a boot that is begun again gets a group although the first attempt left its own", { skip }, async () => {
  const groups = cgroups as Cgroups;
  await groups.make("boot-again", limits);
  const group = await groups.make("boot-again", limits);
  for (const path of group.procsPaths) assert.ok(existsSync(path), path);
  await group.remove();
});

test("a VM that is prepared in the background has the least weight at the disks until it is taken", {
  skip,
}, async (t) => {
  const group = await (cgroups as Cgroups).make("boot-weight", limits);
  try {
    const paths = group.procsPaths.flatMap((path) =>
      ["io.weight", "io.bfq.weight", "blkio.bfq.weight"].map((name) => join(dirname(path), name)).filter(existsSync),
    );
    if (paths.length === 0) return t.skip("this kernel weighs no disks");
    const { child, exit } = await member(group.procsPaths, "exec sleep 60");
    const weights = () => paths.map((path) => Number(/\d+/.exec(readFileSync(path, "utf8"))?.[0]));
    assert.ok(weights().every((weight) => weight === 100));
    await group.share(child.pid ?? 0, "background");
    assert.ok(weights().every((weight) => weight === 1));
    await group.share(child.pid ?? 0, "usual");
    assert.ok(weights().every((weight) => weight === 100));
    child.kill("SIGKILL");
    await exit;
  } finally {
    await group.remove();
  }
});
