/**
 * Replaces the files under a running guest's disk device: QEMU's block node ROOT_NODE stays, and the node
 * below it is opened again. Also makes the disk of a guest that mounted it before it was saved.
 */
import { chmod, chown, copyFile, rename, rm } from "node:fs/promises";
import { syncToDisk } from "../../host/sync-to-disk.ts";
import { diskLayers, PLACEHOLDER, ROOT_NODE } from "./argv.ts";
import type { Qmp } from "./qmp.ts";

/** The block node of the disk, below ROOT_NODE. */
const DISK_NODE = "disk";

/**
 * Attaches a disk: its file first, then its backing files, as the VMM sees them. The commands are sent
 * together and run in order.
 */
export async function attachDisk(qmp: Qmp, paths: readonly string[], bytes: number): Promise<void> {
  const options = [{ driver: "raw", "node-name": ROOT_NODE, discard: "unmap", file: DISK_NODE }];
  await Promise.all([
    qmp.execute("blockdev-add", diskLayers(paths, DISK_NODE)),
    qmp.execute("blockdev-reopen", { options }),
    announceSize(qmp, bytes),
  ]);
}

/** Notifies a running guest of its disk's size, which was another one when its state was saved. */
export async function announceSize(qmp: Qmp, bytes: number): Promise<void> {
  await qmp.execute("block_resize", { "node-name": ROOT_NODE, size: bytes });
}

/** Attaches the placeholder again, and closes the disk's files. */
export async function detachDisk(qmp: Qmp): Promise<void> {
  const options = [{ driver: "raw", "node-name": ROOT_NODE, file: "placeholder" }];
  await qmp.execute("blockdev-add", { ...PLACEHOLDER, "node-name": "placeholder" });
  await qmp.execute("blockdev-reopen", { options });
  await qmp.execute("blockdev-del", { "node-name": DISK_NODE });
}

/**
 * Replaces a disk that was never used with the disk of a template. A crash leaves either of them, complete,
 * and `<path>.new`: both hold the image's files and nothing else.
 */
export async function copyDisk(
  from: string,
  { path, uid }: { readonly path: string; readonly uid: number },
  isRoot: boolean,
): Promise<void> {
  const unfinished = `${path}.new`;
  try {
    await copyFile(from, unfinished);
    await chmod(unfinished, 0o600);
    if (isRoot) await chown(unfinished, uid, uid);
    await syncToDisk(unfinished);
    await rename(unfinished, path);
  } catch (error) {
    await rm(unfinished, { force: true });
    throw error;
  }
}
