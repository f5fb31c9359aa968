/**
 * Prepares one VM: makes its boot, directory, user and disk, and has the driver start it, within a deadline.
 *
 * Always:
 * - When it rejects, nothing of the VM is left and its user is free.
 * - The boot is live from before it has a process until it has ended, so the driver does not sweep it.
 */
import { mkdir, rm } from "node:fs/promises";
import { join } from "node:path";
import type { Clock } from "@flotilla/base/clock";
import type { Log } from "@flotilla/base/log";
import { DISK_GB_DEFAULT } from "@flotilla/contract/limits";
import { type Disks, diskBytes, GIB } from "../../disks/disks.ts";
import type { Driver, PreparedDisk, PrepareRequest } from "../../driver/driver.ts";
import { loadAdjustedMs } from "../../host/load-adjusted-timeout.ts";
import type { Images, UnpackedImage } from "../../images/images.ts";
import { makeBootId } from "../boot-vm.ts";
import { bootDirectoryName, DISK_NAME } from "../paths.ts";
import type { Kind, WaitingVm } from "./kinds.ts";

export interface PrepareVmOptions {
  /** Holds the directories of prepared VMs. */
  readonly directory: string;
  readonly driver: Driver;
  readonly images: Images;
  readonly disks: Disks;
  readonly clock: Clock;
  readonly log: Log;
  readonly users: { take(): number; free(uid: number): void };
  /** Boots that may have a VMM. */
  readonly liveBoots: Set<string>;
}

/** Long enough to make a template first. */
const PREPARE_DEADLINE_MS = 150_000;

/** A kind with this many recent starts is frequent. */
const FREQUENT_MIN = 3;

/**
 * A permanent kind is frequent once a VM waits, so that the first one on a new node does not wait for a
 * template.
 */
function isKindFrequent({ minimum, waiting, starts }: Kind): boolean {
  return starts.length >= FREQUENT_MIN || (minimum > 0 && waiting.length > 0);
}

/**
 * Undefined: the driver prepares no VMs. `scratchImage`: for the scratch disk on which a VM without a disk is
 * rehearsed.
 */
export async function prepareVm(
  kind: Kind,
  scratchImage: UnpackedImage | null,
  { signal, ...options }: PrepareVmOptions & { readonly signal: AbortSignal },
): Promise<WaitingVm | undefined> {
  const { directory, driver, clock, log, liveBoots, users } = options;
  const bootId = makeBootId();
  const bootDirectory = join(directory, bootDirectoryName(bootId));
  const uid = users.take();
  liveBoots.add(bootId);
  const deadline = new AbortController();
  const late = (): void => deadline.abort(new Error("preparing took too long"));
  const timer = clock.timer(loadAdjustedMs(PREPARE_DEADLINE_MS), late);
  try {
    await mkdir(bootDirectory, { mode: 0o700 });
    const startedAt = clock.monotonic();
    const { cpus, memoryMb, image, diskGb } = kind;
    const isFrequent = isKindFrequent(kind);
    const makeDisk = (from: UnpackedImage, gb: number) => makeDiskIn(bootDirectory, { ...options, from, gb, uid });
    const disk = image && (await makeDisk(image, diskGb));
    const makeScratchDisk = scratchImage && (() => makeDisk(scratchImage, DISK_GB_DEFAULT));
    const request: PrepareRequest = { bootId, bootDirectory, cpus, memoryMb, uid, disk, isFrequent, makeScratchDisk };
    const vm = await driver.prepare?.(request, AbortSignal.any([deadline.signal, signal]));
    if (vm === undefined) return undefined;
    log.debug({ boot: bootId, ms: Math.round(clock.monotonic() - startedAt) }, "a VM was prepared");
    return { vm, diskPath: disk?.path ?? null };
  } catch (error) {
    liveBoots.delete(bootId);
    users.free(uid);
    await rm(bootDirectory, { recursive: true, force: true });
    throw error;
  } finally {
    timer.cancel();
  }
}

async function makeDiskIn(
  bootDirectory: string,
  {
    images,
    disks,
    from,
    gb,
    uid,
  }: Pick<PrepareVmOptions, "images" | "disks"> & { from: UnpackedImage; gb: number; uid: number },
): Promise<PreparedDisk> {
  const root = await images.rootFor(from, gb * GIB);
  const path = join(bootDirectory, DISK_NAME);
  await disks.make({ diskPath: path, root, diskGb: gb, uid });
  const { user } = from.configuration;
  return { path, backingPaths: [root.rootPath], bytes: diskBytes(gb, root.rootBytes), user };
}
