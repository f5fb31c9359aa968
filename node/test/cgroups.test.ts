/**
 * Control groups of this host, in whichever version it has: created with limits, joined, filled, and removed.
 */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { availableParallelism, totalmem } from "node:os";
import { dirname, join } from "node:path";
import { text } from "node:stream/consumers";
import { after, test } from "node:test";
import { systemClock } from "@flotilla/base/clock";
import { type Controller, limitFiles, nodeFiles, shareFile } from "../src/host/cgroup-layout.ts";
import { type Cgroups, openCgroups, readCgroupLayout } from "../src/host/cgroups.ts";
import { makeLog } from "../src/log.ts";
import { temporaryDirectory } from "./support/in-process.ts";

const log = makeLog({ level: "silent", clock: systemClock });
const directory = await temporaryDirectory();
const cgroups =
  process.getuid?.() === 0 ? await openCgroups({ nodeDirectory: directory.path, clock: systemClock, log }) : null;
const skip = cgroups === null && "this host does not permit creating control groups";
after(() => directory[Symbol.asyncDispose]());

const { version, trees } = (await readCgroupLayout()) ?? { version: 2 as const, trees: new Map<Controller, string>() };
/** The kernel counts memory in these. */
const PAGE_BYTES = 4096;
const limits = { memoryBytes: 64 * 2 ** 20, cpus: 1, tasksMax: 16 };
/** Joins the groups given as arguments, reports it, and runs the line in FLOTILLA_LINE. */
const MEMBER = 'for f; do echo 0 >"$f" || exit 9; done; echo joined; eval "$LINE"';

async function member(paths: readonly string[], line: string) {
  const child = spawn("sh", ["-c", MEMBER, "sh", ...paths], { env: { PATH: "/usr/bin:/bin", LINE: line } });
  const exit = once(child, "exit");
  await once(child.stdout, "data");
  return { child, exit };
}

/** The value the kernel has for a file in the group's directory; null if there is no such file. */
function kept(paths: readonly string[], controller: Controller, name: string): string | null {
  const tree = trees.get(controller);
  const directory = paths
    .map((path) => dirname(path))
    .find((path) => tree !== undefined && path.startsWith(`${tree}/`));
  const path = join(directory ?? "", name);
  return directory !== undefined && existsSync(path) ? readFileSync(path, "utf8").trim() : null;
}

test("the kernel stores each limit of a group and of the node's group", { skip }, async () => {
  const group = await (cgroups as Cgroups).make("boot-limits", limits);
  const host = { memoryBytes: totalmem(), processors: availableParallelism() };
  const nodePaths = group.procsPaths.map((path) => dirname(path));
  const asked = [
    ...limitFiles(version, limits).map((file) => ({
      ...file,
      seen: kept(group.procsPaths, file.controller, file.name),
    })),
    ...nodeFiles(version, host).map((file) => ({ ...file, seen: kept(nodePaths, file.controller, file.name) })),
  ];
  for (const { controller, name, value, seen } of asked) {
    // Which files for disk weights exist depends on the kernel. Their values start with "default".
    if (seen === null && (!trees.has(controller) || controller === "io")) continue;
    const missing = Number(value) - Number(/\d+$/.exec(seen ?? "")?.[0]);
    assert.ok(missing >= 0 && missing < PAGE_BYTES, `${name}: ${seen} instead of ${value}`);
    if (controller !== "memory") assert.equal(missing, 0, `${name}: ${seen} instead of ${value}`);
  }
  await group.remove();
});

test("a background group runs only on idle processors until it gets its normal share", { skip }, async (context) => {
  if (!trees.has("cpu")) return context.skip("this host has no control groups for processors");
  const group = await (cgroups as Cgroups).make("boot-share", limits);
  const { child, exit } = await member(group.procsPaths, "exec sleep 60");
  const share = shareFile(version, limits.cpus);
  const isMember = (): boolean =>
    (kept(group.procsPaths, "cpu", "cgroup.procs") ?? "").split("\n").includes(String(child.pid));
  // In version 1 it is outside all groups until then; in version 2 its group has the least weight.
  await group.share(child.pid ?? 0, "background");
  assert.equal(isMember(), version === 2);
  if (version === 2) assert.equal(kept(group.procsPaths, "cpu", share.name), "1");
  await group.share(child.pid ?? 0, "normal");
  assert.ok(isMember());
  assert.equal(kept(group.procsPaths, "cpu", share.name), share.value);
  child.kill("SIGKILL");
  await exit;
  await group.remove();
});

test("a group at its limit of tasks starts no more", { skip }, async (context) => {
  if (!trees.has("pids")) return context.skip("this host has no control groups for tasks");
  const group = await (cgroups as Cgroups).make("boot-tasks", limits);
  const line = `i=0; while [ $i -lt ${limits.tasksMax + 4} ]; do sleep 60 >/dev/null 2>&1 & i=$((i + 1)); done; echo all`;
  const { child, exit } = await member(group.procsPaths, line);
  const said = await text(child.stderr);
  assert.match(said, /fork/i);
  await exit;
  for (const pid of (kept(group.procsPaths, "pids", "cgroup.procs") ?? "").split("\n").filter(Boolean)) {
    process.kill(Number(pid), "SIGKILL");
  }
  await group.remove();
});

test("a process that needs more memory than its group has is killed, and the group reports why", { skip }, async () => {
  const groups = cgroups as Cgroups;
  const group = await groups.make("boot-full", limits);
  assert.equal(await group.hasRunOutOfMemory(), false);
  const { exit } = await member(group.procsPaths, "x=$(head -c 200000000 /dev/zero | tr '\\0' x)");
  assert.deepEqual(await exit, [null, "SIGKILL"]);
  assert.equal(await group.hasRunOutOfMemory(), true);
  // Like a later agent, which did not create the group.
  await groups.find("boot-full").remove();
  for (const path of group.procsPaths) assert.ok(!existsSync(dirname(path)), path);
});

test("a sweep removes abandoned groups and no others", { skip }, async () => {
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

test("a repeated boot gets a group although the first attempt left one", { skip }, async () => {
  const groups = cgroups as Cgroups;
  await groups.make("boot-again", limits);
  const group = await groups.make("boot-again", limits);
  for (const path of group.procsPaths) assert.ok(existsSync(path), path);
  await group.remove();
});

test("a VM that is prepared in the background has the least disk weight until a machine uses it", {
  skip,
}, async (t) => {
  const group = await (cgroups as Cgroups).make("boot-weight", limits);
  try {
    const paths = group.procsPaths.flatMap((path) =>
      ["io.weight", "io.bfq.weight", "blkio.bfq.weight"].map((name) => join(dirname(path), name)).filter(existsSync),
    );
    if (paths.length === 0) return t.skip("this kernel does not weight disk requests");
    const { child, exit } = await member(group.procsPaths, "exec sleep 60");
    const weights = () => paths.map((path) => Number(/\d+/.exec(readFileSync(path, "utf8"))?.[0]));
    assert.ok(weights().every((weight) => weight === 100));
    await group.share(child.pid ?? 0, "background");
    assert.ok(weights().every((weight) => weight === 1));
    await group.share(child.pid ?? 0, "normal");
    assert.ok(weights().every((weight) => weight === 100));
    child.kill("SIGKILL");
    await exit;
  } finally {
    await group.remove();
  }
});
