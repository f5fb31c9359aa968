/**
 * Files that cannot be removed, as on a disk with errors, for tests that run as root.
 */
import { execFile } from "node:child_process";
import { writeFile } from "node:fs/promises";
import { promisify } from "node:util";

/** Why such a test is skipped; false: it is not. */
export const needsRoot = process.getuid?.() !== 0 && "only root may change a file's owner or flags";

/** Makes one, which can be removed when this is disposed of. */
export async function immovable(path: string): Promise<AsyncDisposable> {
  const flag = async (change: string): Promise<void> => void (await promisify(execFile)("chattr", [change, path]));
  await writeFile(path, "");
  await flag("+i");
  return { [Symbol.asyncDispose]: () => flag("-i") };
}
