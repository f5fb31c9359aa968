/**
 * Gives a machine's boot its VM: one that waits prepared, else one that the driver starts.
 *
 * Always: a prepared VM that was taken is either the machine's when this resolves, or has ended.
 */
import { randomBytes } from "node:crypto";
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { messageOf } from "@flotilla/base/errors";
import type { Log } from "@flotilla/base/log";
import type { MachineSpec } from "@flotilla/contract/link";
import { diskBytes } from "../disks/disks.ts";
import type { BootRequest, Driver, PreparedVm, Vm } from "../driver/driver.ts";
import type { RootFile } from "../images/images.ts";
import { bootDirectoryName, bootsPathOf, diskPathOf } from "./paths.ts";

export interface BootVmOptions {
  readonly driver: Driver;
  readonly log: Log;
  readonly prepared: PreparedVm | undefined;
  /** What must be on the disk before the VM is the machine's: the journal that names it. */
  readonly saved: Promise<void>;
  readonly signal: AbortSignal;
}

/** The boot's directory is made here. Rejects as `Driver.boot` does, and when the signal is aborted before. */
export async function bootVm(request: BootRequest, options: BootVmOptions): Promise<Vm> {
  const { driver, log, prepared, saved, signal } = options;
  try {
    await mkdir(request.bootDirectory, { recursive: true, mode: 0o700 });
    await saved;
    signal.throwIfAborted();
  } catch (error) {
    await prepared?.discard();
    throw error;
  }
  if (prepared !== undefined) {
    try {
      return await prepared.start(request);
    } catch (error) {
      log.warn({ reason: messageOf(error) }, "a prepared VM could not be used; the machine boots without");
      await prepared.discard();
      await mkdir(request.bootDirectory, { recursive: true, mode: 0o700 });
    }
  }
  return driver.boot(request, signal);
}

export interface BootFacts {
  readonly spec: MachineSpec;
  /** The machine's own. */
  readonly directory: string;
  readonly bootId: string;
  /** What the machine's disk stands on; null when that is not to be found any more. */
  readonly root: RootFile | null;
  readonly uid: number;
}

/** What the driver is asked for. */
export function bootRequest({ spec, directory, bootId, root, uid }: BootFacts): BootRequest {
  const { machineId, cpus, memoryMb, diskGb, network, ports } = spec;
  return {
    machineId,
    bootId,
    bootDirectory: join(bootsPathOf(directory), bootDirectoryName(bootId)),
    cpus,
    memoryMb,
    diskPath: diskPathOf(directory),
    diskBytes: diskBytes(diskGb, root?.rootBytes ?? 0),
    backingPaths: root === null ? [] : [root.rootPath],
    uid,
    network,
    publishedPorts: ports.map(({ port }) => port),
  };
}

/** A new boot's id. */
export function makeBootId(): string {
  return `boot-${randomBytes(16).toString("hex")}`;
}
