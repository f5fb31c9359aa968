/**
 * Makes the files of a template in a directory: boots a guest, or restores one and mounts a new disk, and
 * saves it.
 *
 * Owns the directory until it resolves, and the VMM in it, whose boot directory is `boot`. template.ts owns
 * the directory's name, and removes it when this rejects.
 *
 * Always: when it resolves, the VMM has ended, and every file is on the disk, belongs to root and is
 * read-only.
 */
import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { constants, createWriteStream } from "node:fs";
import { chmod, chown, copyFile, mkdir, open, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { join } from "node:path";
import { pipeline } from "node:stream/promises";
import { promisify } from "node:util";
import { orAborted } from "@flotilla/base/abort";
import { messageOf } from "@flotilla/base/errors";
import type { Guest } from "../../guest/guest.ts";
import { loadAdjustedMs } from "../../host/load-adjusted-timeout.ts";
import { syncToDisk } from "../../host/sync-to-disk.ts";
import type { PreparedDisk } from "../driver.ts";
import { assertTimer, GuestTimerError, TEMPLATE_TOLERANCES, withGoodTimer } from "./guest-timer.ts";
import { VIEW } from "./jail.ts";
import { type Launcher, NOBODY_UID } from "./launcher.ts";
import { AGENT_COMMAND, placeholderConfiguration } from "./placeholder-machine.ts";
import type { Qmp } from "./qmp.ts";
import { announceSize } from "./root-disk.ts";
import { connectWhenReady } from "./sockets.ts";
import type { Tuning } from "./tuning.ts";
import type { Vmm } from "./vmm.ts";

const STATE_BYTES_MAX = 16 * 2 ** 20;
const MAKE_DEADLINE_MS = 120_000;
const POLL_MS = 5;
/**
 * Commands run in the guest before it is saved, so that the template contains the kernel's allocations for
 * them.
 */
const WARM_UP_COMMANDS = 3;

/** The part of a machine's size that a template depends on. */
export interface VmSize {
  readonly cpus: number;
  readonly memoryMb: number;
}

export interface Template {
  readonly directory: string;
  readonly memoryPath: string;
  readonly statePath: string;
  /**
   * A disk that its guest has mounted, of the same moment as the memory; a machine gets a copy. null: it has
   * none.
   */
  readonly diskPath: string | null;
}

export interface Saving {
  readonly launcher: Launcher;
  /** Exists already, and is empty. */
  readonly directory: string;
  readonly size: VmSize;
  readonly signal: AbortSignal;
}

/** A template's guest that mounts a disk before it is saved. */
export interface Mounting {
  /** The template without a disk that it begins with. */
  readonly base: Template;
  /** Never used; it is copied. */
  readonly disk: PreparedDisk;
  readonly rootDevice: string | null;
  readonly tuning: Pick<Tuning, "inBackground">;
}

/**
 * Boots a guest whose memory is a file, and saves it; boots again where its kernel has mismeasured its timer.
 */
export function saveBooted(saving: Saving): Promise<void> {
  const options = { tolerances: TEMPLATE_TOLERANCES, log: saving.launcher.log };
  return withGoodTimer((timerTolerance) => saveOneBoot(saving, timerTolerance), options);
}

async function saveOneBoot(
  { launcher, directory, size, signal: callerSignal }: Saving,
  timerTolerance: number,
): Promise<void> {
  const memoryPath = join(directory, "memory");
  // What a boot before this one left.
  for (const path of [memoryPath, join(directory, "boot")]) await rm(path, { recursive: true, force: true });
  await writeFile(memoryPath, "", { mode: 0o600 });
  await withVmm({ launcher, directory, size, signal: callerSignal }, null, async (vmm, place, signal) => {
    const qmp = await launcher.control(vmm, place, signal);
    const guest = await launcher.guest(place, signal);
    assertTimer(guest.hello, { rightKhz: launcher.timerKhz, tolerance: timerTolerance });
    // The address is the same in all machines, so the network stays up in the template.
    const facts = { rootDevice: null, rootBytes: 0, user: "", ...launcher.guestAddressing };
    await orAborted(guest.warmUp(placeholderConfiguration(facts, { now: launcher.clock.now(), digit: "0" })), signal);
    for (let count = 0; count < WARM_UP_COMMANDS; count += 1) await runQuietly(guest, signal);
    guest.close();
    return qmp;
  });
}

/**
 * Restores a guest of a template, which mounts a copy of a new disk, and saves both: memory and disk are of
 * the same moment. Only the shell of the image runs, without its scripts and unable to write files
 * (guest/warm.c): what it left would be the same in all machines.
 */
export async function saveMounted(saving: Saving, { base, disk, rootDevice, tuning }: Mounting): Promise<void> {
  const { launcher, directory } = saving;
  const diskPath = join(directory, "disk");
  // Holes of the memory remain holes.
  await promisify(execFile)("cp", ["--sparse=always", base.memoryPath, join(directory, "memory")]);
  await chmod(join(directory, "memory"), 0o600);
  await copyFile(disk.path, diskPath);
  await withVmm(saving, { ...disk, path: diskPath }, async (vmm, place, signal) => {
    const qmp = await launcher.control(vmm, place, signal);
    await tuning.inBackground(vmm, async () => {
      await restore(qmp, { launcher, template: base, ...place, signal });
      await announceSize(qmp, disk.bytes);
      const guest = await launcher.guest(place, signal);
      const facts = { rootDevice, rootBytes: disk.bytes, user: disk.user, ...launcher.guestAddressing };
      const configuration = placeholderConfiguration(facts, { now: launcher.clock.now(), digit: "0" });
      await orAborted(guest.configure(configuration), signal);
      await orAborted(guest.warmUp(configuration), signal);
      // Otherwise each machine would write the same again.
      await orAborted(guest.sync(), signal);
      guest.close();
    });
    return qmp;
  });
}

type Place = Parameters<Launcher["control"]>[1];

/** Starts the template's VMM, has `work` bring its guest into the state to save, and saves it. */
async function withVmm(
  { launcher, directory, size, signal: callerSignal }: Saving,
  disk: PreparedDisk | null,
  work: (vmm: Vmm, place: Place, signal: AbortSignal) => Promise<Qmp>,
): Promise<void> {
  const memoryPath = join(directory, "memory");
  const place = { bootDirectory: join(directory, "boot"), uid: NOBODY_UID - 1 };
  await mkdir(place.bootDirectory, { mode: 0o700 });
  await launcher.makeReachable(place.uid, [memoryPath], []);
  const vmm = await launcher.spawn({
    machineId: "template",
    bootId: `boot-${randomBytes(16).toString("hex")}`,
    ...place,
    ...size,
    memory: { kind: "file", path: memoryPath, isShared: true },
    diskPath: disk?.path ?? null,
    diskBytes: disk?.bytes ?? 0,
    backingPaths: disk?.backingPaths ?? [],
    isIncoming: disk !== null,
  });
  const late = timeoutOf(launcher, loadAdjustedMs(MAKE_DEADLINE_MS));
  const signal = AbortSignal.any([callerSignal, endOf(vmm.exited), late]);
  try {
    const qmp = await orAborted(work(vmm, place, signal), signal);
    await qmp.execute("stop");
    await saveState(qmp, { launcher, ...place, statePath: join(directory, "state"), signal });
  } catch (error) {
    if (error instanceof GuestTimerError) throw error;
    const output = await vmm.lastOutputIfAny();
    throw output === null ? error : new Error(`${messageOf(error)}; last output of the VM: ${output}`);
  } finally {
    await vmm.kill();
  }
  await rm(place.bootDirectory, { recursive: true });
  const facts = { ...size, rootPath: disk?.backingPaths[0] ?? null };
  await writeFile(join(directory, FACTS_NAME), JSON.stringify(facts));
  await protect(directory, launcher.isRoot);
}

/** What a template was made of, beside it. */
export const FACTS_NAME = "template.json";

async function protect(directory: string, isRoot: boolean): Promise<void> {
  for (const name of await readdir(directory)) {
    const path = join(directory, name);
    await syncToDisk(path);
    if (isRoot) await chown(path, 0, 0);
    await chmod(path, 0o444);
  }
  await chmod(directory, 0o711);
}

interface SavingState {
  readonly launcher: Launcher;
  readonly bootDirectory: string;
  readonly uid: number;
  readonly statePath: string;
  readonly signal: AbortSignal;
}

/**
 * QEMU writes the devices' state to a socket of ours. The memory needs no copy, because it is shared with its
 * file.
 */
async function saveState(qmp: Qmp, { launcher, bootDirectory, uid, statePath, signal }: SavingState): Promise<void> {
  const socketPath = join(bootDirectory, "state.sock");
  const directory = await open(bootDirectory, constants.O_RDONLY | constants.O_DIRECTORY);
  // Through a descriptor, because the directory's path may exceed the limit of a socket address.
  const server = createServer({ pauseOnConnect: true });
  try {
    server.listen(`/proc/self/fd/${directory.fd}/state.sock`);
    await once(server, "listening", { signal });
    await launcher.makeReachable(uid, [socketPath], []);
    const received = once(server, "connection", { signal }).then(async ([socket]) => {
      await pipeline(socket, createWriteStream(statePath, { mode: 0o600 }), { signal });
    });
    received.catch(() => {});
    await qmp.execute("migrate-set-capabilities", { capabilities: [IGNORE_SHARED] });
    await qmp.execute("migrate", { uri: `unix:${join(VIEW.boot, "state.sock")}` });
    await received;
    for (;;) {
      const { status } = (await qmp.execute("query-migrate")) as { readonly status?: string };
      if (status === "completed") break;
      if (status === "failed" || status === "cancelled") throw new Error(`saving the guest's state ${status}`);
      await launcher.clock.sleep(POLL_MS, signal);
      signal.throwIfAborted();
    }
    const { size } = await stat(statePath);
    if (size === 0 || size > STATE_BYTES_MAX) throw new Error(`the saved state has ${size} bytes`);
  } finally {
    server.close();
    await directory.close();
  }
}

const IGNORE_SHARED = { capability: "x-ignore-shared", state: true };

/** Loads a template's state into a VMM that waits for it, and resumes the guest. */
export async function restore(qmp: Qmp, { template, ...loading }: Restoring): Promise<void> {
  // Small, and in the page cache.
  const state = await readFile(template.statePath);
  await qmp.execute("migrate-set-capabilities", { capabilities: [IGNORE_SHARED] });
  await loadState(qmp, state, loading);
  await qmp.execute("cont");
}

/**
 * Loads the state of a guest's devices into a VMM that waits for it. Returns the VMM's status: it does not
 * run yet.
 */
export async function loadState(
  qmp: Qmp,
  state: Buffer,
  { launcher, bootDirectory, uid, signal }: Loading,
): Promise<string | undefined> {
  const name = "incoming.sock";
  const socketPath = join(bootDirectory, name);
  await qmp.execute("migrate-incoming", { uri: `unix:${join(VIEW.boot, name)}` });
  const socket = await connectWhenReady({ path: socketPath, uid: launcher.uidOf({ uid }) }, launcher.clock, signal);
  socket.on("error", () => {}); // The VMM's exit reports the reason.
  socket.end(state);
  for (;;) {
    const { status } = (await qmp.execute("query-status")) as { readonly status?: string };
    if (status !== "inmigrate") {
      await rm(socketPath, { force: true });
      return status;
    }
    await launcher.clock.sleep(1, signal);
    signal.throwIfAborted();
  }
}

interface Restoring extends Loading {
  readonly template: Template;
}

interface Loading {
  readonly launcher: Launcher;
  readonly bootDirectory: string;
  readonly uid: number;
  readonly signal: AbortSignal;
}

async function runQuietly(guest: Guest, signal: AbortSignal): Promise<void> {
  const exec = guest.exec(AGENT_COMMAND);
  exec.stdout.resume();
  exec.stderr.resume();
  await orAborted(exec.exit, signal);
}

function endOf(exited: Promise<{ readonly detail: string }>): AbortSignal {
  const controller = new AbortController();
  void exited.then(({ detail }) => controller.abort(new Error(detail)));
  return controller.signal;
}

function timeoutOf(launcher: Launcher, ms: number): AbortSignal {
  const controller = new AbortController();
  launcher.clock.timer(ms, () => controller.abort(new Error(`no answer within ${Math.round(ms / 1000)} s`)));
  return controller.signal;
}
