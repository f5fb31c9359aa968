/**
 * Makes changes durable (fsync).
 *
 * Always: what was synced survives a crash of the host. A new or renamed file is durable only when its
 * directory is too.
 */
import { open } from "node:fs/promises";

/**
 * Waits until the content of a file or the entries of a directory are on stable storage. Throws the system's
 * error.
 */
export async function syncToDisk(path: string): Promise<void> {
  await using file = await open(path, "r");
  await file.sync();
}
