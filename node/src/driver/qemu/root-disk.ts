/**
 * Replaces the files under a running guest's disk device: QEMU's block node ROOT_NODE stays, and the node below it is
 * opened again.
 */
import { diskLayers, PLACEHOLDER, ROOT_NODE } from "./argv.ts";
import type { Qmp } from "./qmp.ts";

/** The block node of the disk, below ROOT_NODE. */
const DISK_NODE = "disk";

/**
 * Attaches a disk: its file first, then its backing files, as the VMM sees them. The commands are sent together and run
 * in order.
 */
export async function attachDisk(qmp: Qmp, paths: readonly string[], bytes: number): Promise<void> {
  const options = [{ driver: "raw", "node-name": ROOT_NODE, discard: "unmap", file: DISK_NODE }];
  await Promise.all([
    qmp.execute("blockdev-add", diskLayers(paths, DISK_NODE)),
    qmp.execute("blockdev-reopen", { options }),
    qmp.execute("block_resize", { "node-name": ROOT_NODE, size: bytes }),
  ]);
}

/** Attaches the placeholder again, and closes the disk's files. */
export async function detachDisk(qmp: Qmp): Promise<void> {
  const options = [{ driver: "raw", "node-name": ROOT_NODE, file: "placeholder" }];
  await qmp.execute("blockdev-add", { ...PLACEHOLDER, "node-name": "placeholder" });
  await qmp.execute("blockdev-reopen", { options });
  await qmp.execute("blockdev-del", { "node-name": DISK_NODE });
}
