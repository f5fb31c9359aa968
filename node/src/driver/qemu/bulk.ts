/**
 * The file behind a VM's bulk disk: made before the VMM is started, opened again by whoever talks to its guest.
 *
 * Always: it stands in a directory that belongs to the VMM's user, and the node agent is root, so nothing about it is
 * believed: it is opened without following a link, and must be a plain file of that user that has no other name.
 */
import { constants } from "node:fs";
import { open, rm } from "node:fs/promises";
import { join } from "node:path";
import { BULK_DISK_BYTES, BulkDisk } from "../../guest/bulk-disk.ts";
import { BULK_DEVICE } from "./argv.ts";
import type { SocketPlace } from "./sockets.ts";

export const bulkPathIn = (bootDirectory: string): string => join(bootDirectory, "bulk");

/** Sparse: takes no space until it is used. */
export async function makeBulkFile(path: string): Promise<void> {
  // Of an attempt before, by whoever ran it.
  await rm(path, { force: true });
  const handle = await open(path, "wx", 0o600);
  try {
    await handle.truncate(BULK_DISK_BYTES);
  } finally {
    await handle.close();
  }
}

/** null when the VM has none, or one that is not as it was made: files then go over the channel. */
export async function openBulkDisk({ path, uid }: SocketPlace): Promise<BulkDisk | null> {
  const flags = constants.O_RDWR | constants.O_NOFOLLOW | constants.O_NONBLOCK;
  const handle = await open(path, flags).catch(() => null);
  if (handle === null) return null;
  const stat = await handle.stat();
  if (stat.isFile() && stat.uid === uid && stat.nlink === 1 && stat.size === BULK_DISK_BYTES)
    return new BulkDisk(handle, BULK_DEVICE);
  await handle.close();
  return null;
}
