/**
 * The mark of a restore that has begun and not ended: `restore.pending` in the data directory.
 *
 * Always: while it exists no server starts there, because the database may be empty although machines run.
 * The restore of the same backup continues; it removes the mark when the database and the files are complete.
 */
import { open, readFile, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { syncDirectory } from "./sync-directory.ts";

const NAME = "restore.pending";

/** The hash of the backup whose restore has not ended; null: there is none. */
export async function readPending(dataDirectory: string): Promise<string | null> {
  const text = await readFile(join(dataDirectory, NAME), "utf8").catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT") return null;
    throw error;
  });
  return text === null ? null : text.trim();
}

/** Throws an Error for operators while a restore has not ended. */
export async function refusePending(dataDirectory: string): Promise<void> {
  if ((await readPending(dataDirectory)) === null) return;
  throw new Error(
    `a restore into ${dataDirectory} has not ended: run the same \`flotilla restore FILE\` again, or, to begin with another one, remove ${NAME}, secrets.key, admin.key and postgres/ there`,
  );
}

export const markPending = (dataDirectory: string, sha256: string): Promise<void> =>
  writeDurably(join(dataDirectory, NAME), `${sha256}\n`);

export async function clearPending(dataDirectory: string): Promise<void> {
  await rm(join(dataDirectory, NAME));
  await syncDirectory(dataDirectory);
}

/** Writes a file as a whole, readable by its owner only, and waits until it is on the disk. */
export async function writeDurably(path: string, content: string | Buffer): Promise<void> {
  const part = `${path}.part`;
  await using file = await open(part, "w", 0o600);
  await file.chmod(0o600);
  await file.writeFile(content);
  await file.sync();
  await rename(part, path);
  await syncDirectory(join(path, ".."));
}
