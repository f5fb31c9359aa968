/**
 * Removes all files of a machine that is to be absent.
 *
 * Always: the journal is removed last. While it exists, a restarted agent continues the removal.
 */
import { rm, rmdir } from "node:fs/promises";
import { join } from "node:path";
import { namesIn } from "../host/names-in.ts";
import { JOURNAL_NAME } from "./paths.ts";

/** The machine must not run. Missing files are ignored. */
export async function removeMachineFiles(directory: string): Promise<void> {
  const names = await namesIn(directory);
  for (const name of names.filter((item) => item !== JOURNAL_NAME)) {
    await rm(join(directory, name), { recursive: true, force: true });
  }
  await rm(join(directory, JOURNAL_NAME), { force: true });
  await rmdir(directory).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== "ENOENT") throw error;
  });
}
