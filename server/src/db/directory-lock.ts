/**
 * Makes sure that one process at a time uses a data directory.
 *
 * A socket in Linux' abstract namespace, named after the directory's device and inode: the kernel drops it with the
 * process, so there is no stale lock to judge, and two processes that start together cannot both get it. It does not
 * reach across network namespaces (two containers on one directory); there PostgreSQL's own lock file still keeps
 * the data safe.
 */
import { stat } from "node:fs/promises";
import { createServer } from "node:net";

/** Returns the function that gives the directory back. Throws an Error for people when another process has it. */
export async function lockDirectory(directory: string): Promise<() => void> {
  const { dev, ino } = await stat(directory);
  const server = createServer((socket) => socket.destroy());
  await new Promise<void>((resolve, reject) => {
    server.once("error", (error: NodeJS.ErrnoException) =>
      reject(
        error.code === "EADDRINUSE"
          ? new Error(`${directory} is in use by another Flotilla; stop that one, or choose another --data-dir`)
          : error,
      ),
    );
    server.listen({ path: `\0flotilla-${dev}-${ino}` }, resolve);
  });
  server.unref();
  return () => void server.close();
}
