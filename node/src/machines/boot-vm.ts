/**
 * Gets the VM for a machine's boot: a prepared one, or one that the driver starts.
 *
 * Always: when this resolves, a prepared VM that was taken is the machine's or has ended.
 */
import { randomBytes } from "node:crypto";
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { messageOf } from "@flotilla/base/errors";
import type { Log } from "@flotilla/base/log";
import type { MachineSpec } from "@flotilla/contract/link/link";
import { diskBytes } from "../disks/disks.ts";
import type { BootRequest, Driver, PreparedVm, Vm } from "../driver/driver.ts";
import type { RootFile } from "../images/images.ts";
import { bootDirectoryName, bootsPathOf, diskPathOf } from "./paths.ts";

export interface BootVmOptions {
  readonly driver: Driver;
  readonly log: Log;
  readonly prepared: PreparedVm | undefined;
  /**
   * Resolves when the journal that names the boot is on the disk. The VM becomes the machine's after that.
   */
  readonly saved: Promise<void>;
  readonly signal: AbortSignal;
}

/**
 * Makes the boot's directory, then the VM. A machine whose journal is lost is recovered with the VM of which
 * it has a directory, so a VM that is not its own has none yet. Rejects as `Driver.boot` does, and when the
 * signal is aborted before.
 */
export async function bootVm(request: BootRequest, options: BootVmOptions): Promise<Vm> {
  const { driver, log, prepared, saved, signal } = options;
  try {
    await saved;
    signal.throwIfAborted();
    await mkdir(request.bootDirectory, { recursive: true, mode: 0o700 });
  } catch (error) {
    await prepared?.discard();
    throw error;
  }
  if (prepared !== undefined) {
    try {
      return await prepared.start(request);
    } catch (error) {
      log.warn({ reason: messageOf(error) }, "a prepared VM could not be used; the machine boots without it");
      await prepared.discard();
      await mkdir(request.bootDirectory, { recursive: true, mode: 0o700 });
    }
  }
  return driver.boot(request, signal);
}

export interface BootFacts {
  readonly spec: MachineSpec;
  /** The machine's directory. */
  readonly directory: string;
  readonly bootId: string;
  /** The file that the machine's disk is based on; null when it is missing. */
  readonly root: RootFile | null;
  /** The files between the machine's disk and that, nearest first. */
  readonly layerPaths: readonly string[];
  readonly uid: number;
}

/** The request to the driver. */
export function bootRequest({ spec, directory, bootId, root, layerPaths, uid }: BootFacts): BootRequest {
  const { machineId, cpus, memoryMb, diskGb, network, ports } = spec;
  return {
    machineId,
    bootId,
    bootDirectory: join(bootsPathOf(directory), bootDirectoryName(bootId)),
    cpus,
    memoryMb,
    diskPath: diskPathOf(directory),
    diskBytes: diskBytes(diskGb, root?.rootBytes ?? 0),
    backingPaths: root === null ? [] : [...layerPaths, root.rootPath],
    uid,
    network,
    publishedPorts: ports.map(({ port }) => port),
  };
}

/** A new boot's id. */
export function makeBootId(): string {
  return `boot-${randomBytes(16).toString("hex")}`;
}
