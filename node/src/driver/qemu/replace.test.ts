/**
 * A VMM that cannot take over a guest is ended. Both VMMs are this process, so what is read is its memory.
 */
import assert from "node:assert/strict";
import { mkdtemp, readdir, readFile, readlink, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
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
  // The highest: above it there is little.
  const [, address] = /^([0-9a-f]+)-[0-9a-f]+ rw-p 0+ 00:00 0 +\[stack\]$/m.exec(maps) ?? [];
  assert(address !== undefined);
  return address;
}

/** Where the program's own file is mapped, which is not a template. */
async function fileMemory(): Promise<string> {
  const maps = await readFile("/proc/self/maps", "utf8");
  const [, address] = /^([0-9a-f]+)-[0-9a-f]+ \S+ \S+ \S+ [1-9]\d* +\//m.exec(maps) ?? [];
  assert(address !== undefined);
  return address;
}

/** A descriptor is closed within a few. */
const TURNS_MAX = 1_000;

/** Which of the memory and the page maps of processes this process holds open. */
async function openMemory(): Promise<string[]> {
  const links = (await readdir("/proc/self/fd")).map((fd) => readlink(`/proc/self/fd/${fd}`).catch(() => ""));
  return (await Promise.all(links)).filter((link) => /^\/proc\/\d+\/(?:mem|pagemap)$/.test(link));
}

interface Scene {
  readonly address: string;
  readonly memoryMb: number;
  readonly onKill: () => void;
  readonly directory?: string;
  readonly signal?: AbortSignal;
}

/** Replaces a VMM, which fails. */
async function replace({ address, memoryMb, onKill, ...more }: Scene): Promise<void> {
  const { directory = "/nowhere", signal = new AbortController().signal } = more;
  const record = { bootId: "boot-1", pid: process.pid, startTime: startTimeOf(process.pid) ?? 0 };
  const control = { execute: async () => `Host virtual address for 0x0 (ram) is 0x${address}\r\n` };
  const vmm = {
    record,
    control,
    exited: new Promise(() => {}),
    fence: { arm: () => Promise.reject(new Error("the VMM cannot be fenced")) },
    kill: async () => onKill(),
  };
  const launcher = {
    isRoot: true,
    clock: systemClock,
    log,
    memoryWatchPath: "/nowhere/memory-watch",
    spawn: async () => vmm,
    control: async () => control,
  };
  const boot = { bootDirectory: "/nowhere", uid: 1, memoryMb, fence: "on" };
  const request = { boot, next: boot, directory } as unknown as ReplaceRequest;
  const context = { launcher, templates: { memoryWithInode: async () => null }, signal };
  const old = { vmm, guest: {}, guestNetwork: null } as unknown as ReplacedVm;
  await replaceVm(old, request, context as unknown as LiveContext & { signal: AbortSignal });
}

/** What is closed without being awaited is closed, and not by the garbage collector. */
async function untilClosed(): Promise<void> {
  for (let turn = 0; turn < TURNS_MAX && (await openMemory()).length > 0; turn += 1) await endOfTurn();
  assert.deepEqual(await openMemory(), []);
}

const skip = process.getuid?.() !== 0;

test("a new VMM that cannot be fenced is ended, and its memory is closed", { skip }, async () => {
  const address = await anonymousMemory();
  let kills = 0;
  const onKill = (): void => void (kills += 1);
  await assert.rejects(replace({ address, memoryMb: 1, onKill }), /cannot be fenced/);
  assert.equal(kills, 1);
  await untilClosed();
});

test("the memory of a VMM that ends while it is looked at is closed", { skip }, async () => {
  const onKill = (): void => assert.fail("there is no new VMM yet");
  // No process has so much.
  const scene = { address: await anonymousMemory(), memoryMb: 2 ** 28, onKill };
  await assert.rejects(replace(scene), /the page map ends early/);
  await untilClosed();
});

test("the copy of a template whose name is gone ends with the replacement", { skip }, async () => {
  const directory = await mkdtemp(join(tmpdir(), "flotilla-replace-"));
  try {
    const onKill = (): void => assert.fail("there is no new VMM yet");
    const stopped = AbortSignal.abort(new Error("the machine is to be stopped"));
    const scene = { address: await fileMemory(), memoryMb: 1, onKill, directory, signal: stopped };
    await assert.rejects(replace(scene), { name: "AbortError" });
    assert.deepEqual(await readdir(directory), []);
  } finally {
    await rm(directory, { recursive: true });
  }
});
