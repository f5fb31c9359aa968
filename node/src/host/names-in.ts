/**
 * Lists a directory that may be missing.
 */
import { readdir } from "node:fs/promises";

/**
 * The names in it; none when it is missing. One that cannot be read is not an empty one: throws the system's
 * error.
 */
export const namesIn = (directory: string): Promise<readonly string[]> =>
  readdir(directory).catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT") return [];
    throw error;
  });
