/**
 * The file behind a VM's bulk disk: created before the VMM starts, and opened by each connection to the
 * guest.
 *
 * Always: its directory belongs to the VMM's user while the node agent is root, so nothing about the file is
 * trusted: it is opened without following links, and must be a regular file of that user without other names.
 */
import { constants } from "node:fs";
import { open, rm } from "node:fs/promises";
import { join } from "node:path";
import { BULK_DISK_BYTES, BulkDisk } from "../../guest/bulk-disk.ts";
import { BULK_DEVICE } from "./argv.ts";
import type { SocketPath } from "./sockets.ts";

export const bulkPathIn = (bootDirectory: string): string => join(bootDirectory, "bulk");

/** Sparse: uses no space until it is written. */
export async function makeBulkFile(path: string): Promise<void> {
  // May exist from an earlier attempt, with any owner.
  await rm(path, { force: true });
  const handle = await open(path, "wx", 0o600);
  try {
    await handle.truncate(BULK_DISK_BYTES);
  } finally {
    await handle.close();
  }
}

/** null if the VM has no bulk disk or the file was tampered with; files then go over the channel. */
export async function openBulkDisk({ path, uid }: SocketPath): Promise<BulkDisk | null> {
  const flags = constants.O_RDWR | constants.O_NOFOLLOW | constants.O_NONBLOCK;
  const handle = await open(path, flags).catch(() => null);
  if (handle === null) return null;
  const stat = await handle.stat();
  if (stat.isFile() && stat.uid === uid && stat.nlink === 1 && stat.size === BULK_DISK_BYTES)
    return new BulkDisk(handle, BULK_DEVICE);
  await handle.close();
  return null;
}
