/**
 * A VMM that cannot take over a guest is ended. Both VMMs are this process, so what is read is its memory.
 */
import assert from "node:assert/strict";
import { readdir, readFile } from "node:fs/promises";
import { test } from "node:test";
import type { Log } from "@flotilla/base/log";
import { endOfTurn, systemClock } from "@flotilla/base/clock";
import type { ReplaceRequest } from "../driver.ts";
import type { LiveContext } from "./live.ts";
import { startTimeOf } from "./processes.ts";
import { replaceVm, type ReplacedVm } from "./replace.ts";

const log: Log = { error() {}, warn() {}, info() {}, debug() {}, child: () => log };

/** Where memory without a file is mapped. */
async function anonymousMemory(): Promise<string> {
  const maps = await readFile("/proc/self/maps", "utf8");
  const [, address] = /^([0-9a-f]+)-[0-9a-f]+ rw-p 0+ 00:00 0 *$/m.exec(maps) ?? [];
  assert(address !== undefined);
  return address;
}

const descriptors = async (): Promise<number> => (await readdir("/proc/self/fd")).length;

test("a new VMM that cannot be fenced is ended, and its memory is closed", {
  skip: process.getuid?.() !== 0,
}, async () => {
  const address = await anonymousMemory();
  const record = { bootId: "boot-1", pid: process.pid, startTime: startTimeOf(process.pid) ?? 0 };
  const control = { execute: async () => `Host virtual address for 0x0 (ram) is 0x${address}\r\n` };
  let kills = 0;
  const vmm = {
    record,
    control,
    exited: new Promise(() => {}),
    fence: { arm: () => Promise.reject(new Error("the VMM cannot be fenced")) },
    kill: async () => {
      kills += 1;
    },
  };
  const launcher = {
    isRoot: true,
    clock: systemClock,
    log,
    memoryWatchPath: "/nowhere/memory-watch",
    spawn: async () => vmm,
    control: async () => control,
  };
  const boot = { bootDirectory: "/nowhere", uid: 1, memoryMb: 1, fence: "on" };
  const request = { boot, next: boot, directory: "/nowhere" } as unknown as ReplaceRequest;
  const context = { launcher, templates: {}, signal: new AbortController().signal };
  const old = { vmm, guest: {}, guestNetwork: null } as unknown as ReplacedVm;
  const before = await descriptors();
  await assert.rejects(
    replaceVm(old, request, context as unknown as LiveContext & { signal: AbortSignal }),
    /cannot be fenced/,
  );
  assert.equal(kills, 1);
  // The old VMM's memory is closed without being awaited.
  while ((await descriptors()) !== before) await endOfTurn();
});
