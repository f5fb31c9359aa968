/**
 * Makes the names in a directory durable: after it, files that were renamed or removed there stay so when the
 * host fails.
 */
import { open } from "node:fs/promises";

export async function syncDirectory(path: string): Promise<void> {
  await using directory = await open(path, "r");
  await directory.sync();
}
