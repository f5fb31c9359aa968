/**
 * Takes the layers away that a running guest's disk is on top of: QEMU copies what they have into the disk
 * while the guest runs, down to the image's file.
 *
 * Always:
 * - The disk has the same content at every moment, and when this resolves without its layers as well.
 * - What was copied is in the disk's file when this resolves, and not only in the VMM.
 *
 * A crash of the agent leaves a job that continues in the VMM: the next agent ends it when it adopts the VM.
 * A crash of the VMM leaves a disk that needs its layers still.
 */
import { lstat, readdir, rm, stat } from "node:fs/promises";
import { dirname, join, relative } from "node:path";
import type { Clock } from "@flotilla/base/clock";
import { syncToDisk } from "../../host/sync-to-disk.ts";
import type { BootRequest } from "../driver.ts";
import { IMAGE_NODE } from "./argv.ts";
import type { Launcher } from "./launcher.ts";
import type { Qmp } from "./qmp.ts";
import { closeLayersBelow, flushDisk, topNode } from "./root-disk.ts";
import type { Vmm } from "./vmm.ts";

const JOB = "collapse";
const POLL_MS = 50;
/** Second names of disks in a boot's directory, which launcher.ts, prepared.ts and point.ts give them. */
const DISK_VIEW = /^(disk|file-\d+(\.qcow2)?|layer-[0-9a-f]{12})$/;

interface Job {
  readonly id: string;
  readonly status: string;
  readonly error?: string;
}

/** As `VmPoints.collapse`. */
export async function collapseLayers(
  vmm: Vmm,
  boot: BootRequest,
  { launcher: { clock }, signal }: { readonly launcher: Launcher; readonly signal: AbortSignal },
): Promise<void> {
  const qmp = vmm.control;
  await endCollapse(qmp, clock);
  signal.throwIfAborted();
  const node = await topNode(qmp);
  await qmp.execute("block-stream", {
    ...{ "job-id": JOB, device: node, "base-node": IMAGE_NODE, "auto-dismiss": false },
    "backing-file": relative(dirname(boot.diskPath), boot.backingPaths.at(-1) ?? ""),
  });
  try {
    await copied(qmp, clock, signal);
  } finally {
    await endCollapse(qmp, clock);
  }
  // Most of it is written here, where the guest's own writes do not wait for it.
  await syncToDisk(boot.diskPath);
  await flushDisk(qmp, node);
  await closeLayersBelow(qmp, node);
  await removeViews(boot);
}

/** Ends the copying, if there is any. What was copied stays, and the layers are needed still. */
export async function endCollapse(qmp: Qmp, clock: Clock): Promise<void> {
  for (let job = await jobOf(qmp); job !== undefined; job = await jobOf(qmp)) {
    const command = job.status === "concluded" ? "job-dismiss" : "job-cancel";
    // It may end between two commands.
    await qmp.execute(command, { id: JOB }).catch(() => undefined);
    if (command === "job-cancel") await clock.sleep(POLL_MS);
  }
}

async function copied(qmp: Qmp, clock: Clock, signal: AbortSignal): Promise<void> {
  for (;;) {
    signal.throwIfAborted();
    const job = await jobOf(qmp);
    if (job === undefined) throw new Error("the VMM has ended the copying");
    if (job.status === "concluded" && job.error === undefined) return;
    if (job.status === "concluded") throw new Error(`the VMM could not copy: ${job.error}`);
    await clock.sleep(POLL_MS, signal);
  }
}

const jobOf = async (qmp: Qmp): Promise<Job | undefined> =>
  ((await qmp.execute("query-jobs")) as readonly Job[]).find(({ id }) => id === JOB);

/** The VMM needs them no more; as long as they exist the layers take space. The directory is the VMM's. */
async function removeViews({ bootDirectory, diskPath }: BootRequest): Promise<void> {
  const { ino } = await stat(diskPath);
  for (const name of await readdir(bootDirectory)) {
    const path = join(bootDirectory, name);
    if (!DISK_VIEW.test(name) || (await lstat(path)).ino === ino) continue;
    await rm(path, { force: true }).catch(() => undefined);
  }
}
