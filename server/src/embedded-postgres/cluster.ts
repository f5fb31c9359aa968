/**
 * The files of the embedded PostgreSQL's cluster: its password, and its data directory, made by initdb.
 *
 * Always: `data/` is complete or missing. It is made in a folder `init-…` and renamed; after a crash in
 * between, the next start removes the folder.
 */
import { chown, mkdir, open, readdir, readFile, rename, rm, stat, statfs, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { ownMessageOf } from "@flotilla/base/errors";
import { DatabaseFull } from "../db/database.ts";
import { type Installation, launch, linkLibraries } from "./process.ts";

export const USER = "flotilla";

interface ClusterOptions {
  /** `<data dir>/postgres`. */
  readonly directory: string;
  readonly randomBytes: (size: number) => Buffer;
  /** Aborted when this server is to stop. */
  readonly signal?: AbortSignal | undefined;
}

const passwordPath = (directory: string): string => join(directory, "password");

/** undefined: it has none yet. */
export async function readPassword(directory: string): Promise<string | undefined> {
  try {
    return (await readFile(passwordPath(directory), "utf8")).trim();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
    return undefined;
  }
}

/**
 * The password of the database, generated at the first start. Throws an Error for users when it is missing
 * later.
 */
export async function ensurePassword(options: ClusterOptions): Promise<string> {
  const path = passwordPath(options.directory);
  const known = await readPassword(options.directory);
  if (known !== undefined) return known;
  if (await exists(join(options.directory, "data", "PG_VERSION")))
    throw new Error(`${path} is missing: restore it from a backup; without it the database cannot be opened`);
  const password = options.randomBytes(32).toString("base64url");
  const temporary = `${path}.${options.randomBytes(4).toString("hex")}`;
  await writeFile(temporary, `${password}\n`, { mode: 0o600, flush: true });
  await rename(temporary, path);
  return password;
}

/** Makes the cluster beside its final place and moves it there, so that `data/` is always complete. */
export async function initialize(options: ClusterOptions, installation: Installation, password: string): Promise<void> {
  const directory = join(options.directory, `init-${options.randomBytes(4).toString("hex")}`);
  await mkdir(directory, { mode: 0o700 });
  const passwordFile = join(directory, "password");
  await writeFile(passwordFile, password, { mode: 0o600 });
  if (installation.user !== null) {
    for (const path of [directory, passwordFile]) await give(path, installation.user);
  }
  await linkLibraries(installation);
  const from = await logSize(options.directory);
  const log = await open(join(options.directory, "log"), "a", 0o600);
  try {
    const child = launch(installation, {
      program: "initdb",
      directory,
      args: (inside) => [
        `--pgdata=${inside}/data`,
        `--pwfile=${inside}/password`,
        `--username=${USER}`,
        "--auth=scram-sha-256",
        "--locale=C",
        "--encoding=UTF8",
      ],
      logFd: log.fd,
      // A terminal's Ctrl-C is for this server, which then stops PostgreSQL.
      isDetached: true,
    });
    options.signal?.addEventListener("abort", () => child.kill("SIGTERM"), { once: true });
    const code = await new Promise<number | null>((resolve, reject) => {
      child.once("error", reject);
      child.once("exit", resolve);
    });
    if (code !== 0) throw await failureInLog("making the database failed", { directory: options.directory, from });
  } finally {
    await log.close();
  }
  await rename(join(directory, "data"), join(options.directory, "data"));
  await rm(directory, { recursive: true, force: true });
}

/** Throws an Error for users, in a container or on a file system that has no such user. */
async function give(path: string, { uid, gid }: { readonly uid: number; readonly gid: number }): Promise<void> {
  await chown(path, uid, gid).catch((error: unknown) => {
    const why = `PostgreSQL cannot run as root, and user ${uid} cannot have its files (${ownMessageOf(error)})`;
    const advice = "choose a file system with owners, start Flotilla outside the user namespace, or set DATABASE_URL";
    throw new Error(`${why}; ${advice}`, { cause: error });
  });
}

/**
 * Removes folders of clusters that were not completed. An initdb whose server was killed may still write
 * there: it ends when its files are gone, but can make new ones while they are removed.
 */
export async function removeUnfinished(directory: string): Promise<void> {
  for (const name of await readdir(directory)) {
    if (!name.startsWith("init-")) continue;
    await rm(join(directory, name), { recursive: true, force: true, maxRetries: 10, retryDelay: 100 });
  }
}

/** How many bytes PostgreSQL has logged. */
export async function logSize(directory: string): Promise<number> {
  return (await stat(join(directory, "log")).catch(() => null))?.size ?? 0;
}

/** Less is left only on a full disk, where PostgreSQL may have found no room for the line that says so. */
const FULL_BYTES = 64 * 1024;
const NO_ROOM = /No space left on device|quota exceeded/i;

/** Why PostgreSQL failed, for users: what it has logged since its log had `from` bytes. */
export async function failureInLog(
  what: string,
  { directory, from }: { readonly directory: string; readonly from: number },
): Promise<Error> {
  const path = join(directory, "log");
  const text = (await readFile(path)).subarray(from).toString();
  const lines = text.trimEnd().split("\n");
  const noRoom = lines.find((each) => NO_ROOM.test(each));
  const line = noRoom ?? lines.findLast((each) => /\b(FATAL|PANIC|error):/.test(each)) ?? lines.at(-1) ?? "";
  const failure = new Error(`${what} (${line}; see ${path})`);
  const { bavail, bsize } = await statfs(directory);
  return noRoom !== undefined || bavail * bsize < FULL_BYTES ? new DatabaseFull(failure) : failure;
}

export async function exists(path: string): Promise<boolean> {
  try {
    await stat(path);
    return true;
  } catch {
    return false;
  }
}
