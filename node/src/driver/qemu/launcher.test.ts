/**
 * A VMM that could not be started leaves nothing.
 */
import assert from "node:assert/strict";
import { mkdir, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { systemClock } from "@flotilla/base/clock";
import type { Log } from "@flotilla/base/log";
import { FenceLease } from "../../host/fence-lease.ts";
import { type Launch, Launcher, type LauncherOptions } from "./launcher.ts";

const log: Log = { error() {}, warn() {}, info() {}, debug() {}, child: () => log };

test("the control group of a VMM that could not be started is removed", async (t) => {
  const nodeDirectory = await mkdtemp(join(tmpdir(), "flotilla-launcher-"));
  t.after(() => rm(nodeDirectory, { recursive: true }));
  const bootDirectory = join(nodeDirectory, "boot");
  await mkdir(bootDirectory);
  const groups = new Set<string>();
  const make = async (bootId: string) => {
    groups.add(bootId);
    return { procsPaths: [], remove: async () => void groups.delete(bootId) };
  };
  const options = { nodeDirectory, givenDirectory: nodeDirectory, clock: systemClock, log, network: null };
  const more = { lease: new FenceLease(systemClock), cgroups: { make }, tuning: { memoryMb: 0 } };
  const launcher = new Launcher({ ...options, ...more } as unknown as LauncherOptions);
  const launch = {
    machineId: "machine",
    bootId: "boot-1",
    bootDirectory,
    uid: process.getuid?.() ?? 0,
    cpus: 1,
    memoryMb: 128,
    memory: { kind: "private" },
    diskPath: join(bootDirectory, "bulk"),
    diskBytes: 1,
    backingPaths: [join(nodeDirectory, "image-that-is-gone")],
    isIncoming: false,
  } satisfies Launch;
  await assert.rejects(launcher.spawn(launch), /ENOENT/);
  assert.deepEqual([...groups], []);
});
