/**
 * The minimum: QEMU booting the same kernel, initramfs and agent with the driver's own arguments, from spawn to the
 * agent's hello; and the guest channel of a running machine, without Flotilla in between.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readdir, readFile, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { systemClock } from "@flotilla/base/clock";
import { parseSettings } from "@flotilla/contract/settings";
import type { DriverFacts } from "../../node/src/driver/driver.ts";
import { type Accelerator, QEMU_PROGRAM, qemuArgv } from "../../node/src/driver/qemu/argv.ts";
import { bulkPathIn, openBulkDisk } from "../../node/src/driver/qemu/bulk.ts";
import { ensureGuestFiles, INITRAMFS_NAME, KERNEL_NAME } from "../../node/src/driver/qemu/guest-files.ts";
import { qemuFacts } from "../../node/src/driver/qemu/index.ts";
import { connectWhenReady } from "../../node/src/driver/qemu/sockets.ts";
import { emulationTuning } from "../../node/src/driver/qemu/tcg/tuning.ts";
import { KVM_TUNING } from "../../node/src/driver/qemu/tuning.ts";
import { connectGuest } from "../../node/src/guest/client.ts";
import type { Guest } from "../../node/src/guest/guest.ts";
import { tscKhzIn } from "../../node/src/host/processor.ts";
import { makeLog } from "../../node/src/log.ts";
import { monotonic } from "./clock.ts";

const { cacheDirectory } = parseSettings(["cacheDirectory"], process.env);
const BOOT_DEADLINE_MS = 60_000;
/** The digits of a boot's id that name its directory. */
const BOOT_NAME_LENGTH = 12;

/** How this host runs machines, as the node agent would choose. */
export async function vmFacts(): Promise<DriverFacts> {
  const log = makeLog({ level: "silent", clock: systemClock });
  return await qemuFacts({ cacheDirectory, accelerator: "auto", clock: systemClock, log });
}

/** Boots a VM and ends it; milliseconds from spawn to the agent's hello. */
export async function bareBootMs(size: { cpus: number; memoryMb: number }, accelerator: Accelerator): Promise<number> {
  const directory = await mkdtemp(path.join(tmpdir(), "flotilla-bare-"));
  const repositoryDirectory = path.resolve(import.meta.dirname, "../..");
  const guestFiles = await ensureGuestFiles({ cacheDirectory, repositoryDirectory });
  const tscKhz = tscKhzIn(await readFile("/proc/cpuinfo", "utf8"));
  const tuning = accelerator === "kvm" ? KVM_TUNING : emulationTuning({ tscKhz, clock: systemClock });
  const argv = qemuArgv({
    ...size,
    name: "bare",
    ...tuning,
    memory: { kind: "private" },
    kernelPath: path.join(guestFiles.directory, KERNEL_NAME),
    initramfsPath: path.join(guestFiles.directory, INITRAMFS_NAME),
    disk: null,
    bulkPath: null,
    socketDirectory: directory,
    isIncoming: false,
    tapName: null,
  });
  const startedAt = monotonic();
  const child = spawn(QEMU_PROGRAM, argv, { stdio: ["ignore", "ignore", "inherit"] });
  const ended = once(child, "exit");
  try {
    const place = { path: path.join(directory, "guest.sock"), uid: process.getuid?.() ?? 0 };
    const signal = AbortSignal.timeout(BOOT_DEADLINE_MS);
    const channel = await connectWhenReady(place, systemClock, signal);
    const guest = await connectGuest(channel, { helloTimeoutMs: BOOT_DEADLINE_MS, signal });
    const tookMs = monotonic() - startedAt;
    guest.close();
    return tookMs;
  } finally {
    child.kill("SIGKILL");
    await ended;
    await rm(directory, { recursive: true, force: true });
  }
}

/** The channel of a boot below the data directory, while no node agent holds it. */
export async function channelBelow(dataDirectory: string, bootId: string): Promise<Guest> {
  const names = await readdir(dataDirectory, { recursive: true });
  const home = bootId.slice("boot-".length, "boot-".length + BOOT_NAME_LENGTH);
  const [socket] = names.filter((name) => name.endsWith(`/${home}/guest.sock`));
  if (home === "" || socket === undefined) throw new Error(`no machine runs as "${bootId}" below ${dataDirectory}`);
  const place = path.join(dataDirectory, socket);
  const { uid } = await stat(place);
  const channel = await connectWhenReady({ path: place, uid }, systemClock, AbortSignal.timeout(BOOT_DEADLINE_MS));
  const bulk = await openBulkDisk({ path: bulkPathIn(path.dirname(place)), uid });
  return await connectGuest(channel, { helloTimeoutMs: BOOT_DEADLINE_MS, bulk });
}
