/**
 * Runs the server as an unprivileged user when `flotilla up` is root: which user, which part of the data
 * directory that user owns, and in which view of the file system the server runs.
 *
 * Owns the permissions of the data directory: it belongs to root, with the sticky bit, so that the server can
 * make files there and cannot replace the node's. The server owns `postgres/`, `server/`, `registry/`,
 * `admin.key` and `secrets.key`, which only it and root can read. Files that were made as root are given to
 * the server. All steps are idempotent.
 *
 * A directory above the data or the program may be closed to others, such as a home directory. Then the
 * server gets a mount namespace in which that directory is empty except for the two. Where the host allows no
 * such namespace, the server runs as root as before, and the reason is returned.
 */
import { spawnSync } from "node:child_process";
import {
  chmodSync,
  chownSync,
  lchownSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { directoryOwner, namedUser, type User } from "@flotilla/base/directory-owner";
import { ownMessageOf } from "@flotilla/base/errors";

export interface ServerLaunch {
  /** Prefix of the server's command. */
  readonly prefix: readonly string[];
  readonly environment: Readonly<Record<string, string>>;
  /** null: the server runs as root. */
  readonly uid: number | null;
  /** Why it runs as root; null when it does not. */
  readonly reason: string | null;
}

export interface ServerLaunchFacts {
  readonly dataDirectory: string;
  /** The directories that the server's program is read from. */
  readonly programDirectories: readonly string[];
  readonly port: number;
}

const USER = "flotilla";
const PRIVILEGED_PORT_MAX = 1_023;
const OOM_PATH = "/proc/self/oom_score_adj";
const OOM_SCORE = -500;
const INSIDE = "/run/flotilla";

/** $1 uid, $2 gid, $3 capability, then closed directories, `--`, paths, `--`, the command. */
const SCRIPT = `set -e
uid=$1 gid=$2 capability=$3
shift 3
closed=
while [ "$1" != -- ]; do closed="$closed $#"; eval "closed_$#=\\$1"; shift; done
shift
if [ -n "$closed" ]; then
  mkdir -p ${INSIDE}
  mount -t tmpfs -o mode=711,size=64k tmpfs ${INSIDE}
  paths=
  while [ "$1" != -- ]; do
    paths="$paths $#"; eval "path_$#=\\$1"
    mkdir "${INSIDE}/$#"
    mount --rbind -- "$1" "${INSIDE}/$#"
    shift
  done
  for n in $closed; do eval "directory=\\$closed_$n"; mount -t tmpfs -o mode=711,size=64k tmpfs "$directory"; done
  for n in $paths; do
    eval "directory=\\$path_$n"
    mkdir -p -- "$directory"
    mount --rbind -- "${INSIDE}/$n" "$directory"
  done
  umount -l ${INSIDE}
else
  while [ "$1" != -- ]; do shift; done
fi
shift
exec setpriv --reuid="$uid" --regid="$gid" --clear-groups --no-new-privs \\
  --inh-caps="-all$capability" --ambient-caps="-all$capability" --bounding-set="-all$capability" -- "$@"`;

/** When `up` is not root, the server runs as the same user. */
export const AS_THIS_USER: ServerLaunch = { prefix: [], environment: {}, uid: null, reason: null };

/**
 * As root only. When the host runs out of memory, machines are killed before this program and its children,
 * which inherit the score. Some containers do not allow lowering it.
 */
export function endLast(): void {
  try {
    if (Number(readFileSync(OOM_PATH, "utf8")) > OOM_SCORE) writeFileSync(OOM_PATH, String(OOM_SCORE));
  } catch {}
}

/** As root only. Prepares the data directory, which exists, and determines how the server is run. */
export function serverLaunch(facts: ServerLaunchFacts): ServerLaunch {
  const { dataDirectory, programDirectories, port } = facts;
  const asRoot = (reason: string): ServerLaunch => ({ ...AS_THIS_USER, reason });
  // The owner of the database, or the user that set-up has made.
  const user = directoryOwner(join(dataDirectory, "postgres", "data")) ?? namedUser(USER);
  if (user === null) return asRoot(`there is no user ${USER}; run scripts/setup`);
  const closedProgram = programDirectories.find((path) => (statSync(path).mode & 0o005) !== 0o005);
  if (closedProgram !== undefined) return asRoot(`other users cannot read ${closedProgram}`);
  const paths = [dataDirectory, ...programDirectories];
  const closed = outermost(paths.flatMap(closedAbove));
  const namespace = closed.length === 0 ? [] : ["unshare", "--mount", "--propagation", "slave"];
  const capability = port > 0 && port <= PRIVILEGED_PORT_MAX ? ",+net_bind_service" : "";
  const parameters = [String(user.uid), String(user.gid), capability];
  const prefix = [...namespace, "sh", "-c", SCRIPT, "flotilla-server", ...parameters, ...closed, "--", ...paths, "--"];
  const before = statSync(dataDirectory);
  try {
    chownDirectory(dataDirectory, user);
  } catch (error) {
    // A user namespace without that user, or a file system without owners.
    return asRoot(`the data directory cannot belong to another user: ${ownMessageOf(error)}`);
  }
  const [program = "", ...operands] = prefix;
  const probe = spawnSync(program, [...operands, "ls", ...paths], { stdio: ["ignore", "ignore", "pipe"] });
  if (probe.status !== 0) {
    chownSync(dataDirectory, before.uid, before.gid);
    chmodSync(dataDirectory, before.mode & 0o777);
    return asRoot(
      String(probe.stderr ?? probe.error ?? "")
        .trim()
        .split("\n")
        .at(-1) ?? "",
    );
  }
  chownFiles(dataDirectory, user);
  const environment = { NODE_COMPILE_CACHE: join(dataDirectory, "server", "compiled") };
  return { prefix, environment, uid: user.uid, reason: null };
}

/** Directories above the path that other users cannot enter. */
function closedAbove(path: string): string[] {
  const closed: string[] = [];
  for (let at = dirname(path); at !== "/"; at = dirname(at)) if ((statSync(at).mode & 0o001) === 0) closed.push(at);
  return closed;
}

/** The directories that are inside none of the others. */
const outermost = (paths: readonly string[]): string[] =>
  [...new Set(paths)].filter((path) => !paths.some((other) => path.startsWith(`${other}/`)));

/** Owned by root, and open to the server's group for new files. */
function chownDirectory(dataDirectory: string, { gid }: User): void {
  chownSync(dataDirectory, 0, gid);
  chmodSync(dataDirectory, 0o1770 | (statSync(dataDirectory).mode & 0o001));
}

function chownFiles(dataDirectory: string, user: User): void {
  // Made before the server could make one there itself.
  mkdirSync(join(dataDirectory, "node"), { recursive: true, mode: 0o700 });
  for (const name of ["server", "postgres"]) mkdirSync(join(dataDirectory, name), { recursive: true, mode: 0o700 });
  const database = join(dataDirectory, "postgres");
  const files = readdirSync(database).filter((name) => name !== "data");
  for (const path of [
    join(dataDirectory, "server"),
    join(dataDirectory, "admin.key"),
    join(dataDirectory, "secrets.key"),
    ...files.map((name) => join(database, name)),
    database,
  ])
    give(path, user);
  giveRegistry(join(dataDirectory, "registry"), user);
}

/** All of it was made as root, or nothing. */
function giveRegistry(directory: string, { uid, gid }: User): void {
  if (lstatSync(directory, { throwIfNoEntry: false })?.uid !== 0) return;
  spawnSync("chown", ["--recursive", "--no-dereference", "--from=0", `${uid}:${gid}`, directory], { stdio: "ignore" });
}

/** Only root's files with a single name: in a directory of the server's, a name may lead anywhere. */
function give(path: string, { uid, gid }: User): void {
  const found = lstatSync(path, { throwIfNoEntry: false });
  if (found === undefined || found.uid !== 0 || (!found.isDirectory() && found.nlink > 1)) return;
  lchownSync(path, uid, gid);
}
