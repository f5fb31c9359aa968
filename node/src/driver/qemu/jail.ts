/**
 * The command line that puts a VMM into its jail: a launcher from util-linux, which becomes the VMM. Pure.
 *
 * A VMM has: its own user (no privileges, and none to be had), its own network namespace (nothing but its own
 * loopback), and its own mount namespace, in which the node's directory and the guest's files stand at a short,
 * traversable place, so that a data directory below a home that nobody may enter works, and socket paths stay short.
 *
 * Always: the launcher replaces itself (`exec` all the way), so the process that is spawned is the VMM, under one
 * process id and start time. No root is left in it.
 *
 * Without root the VMM runs as the caller, in a user namespace: machines are then not protected from each other's
 * VMMs, only the host from them.
 */

export interface Jail {
  /** Seen read-write below `NODE_MOUNT`. */
  readonly nodeDirectory: string;
  /** The guest's kernel and initramfs; seen read-only below `GUEST_MOUNT`. */
  readonly guestDirectory: string;
  /** null: as the caller, who is not root. */
  readonly uid: number | null;
  /** The VMM uses /dev/kvm. With root it gets one that its user may open, whatever the host's is like. */
  readonly hasKvm: boolean;
}

/** Where the jail's view is built: the first of these that holds neither directory. */
const MOUNT_POINTS = ["/mnt", "/media", "/srv"] as const;

const SCRIPT = [
  "set -e",
  "at=$1 node=$2 guest=$3 kvm=$4; shift 4",
  "mount -t tmpfs -o mode=0755,size=64k,nosuid,noexec flotilla $at",
  "mkdir $at/node $at/guest",
  // With what is mounted below it: images may lie on a disk of their own.
  'mount --rbind -o nosuid,nodev,noexec "$node" $at/node',
  // Holds a library for the VMM, so not noexec.
  'mount --bind -o ro,nosuid,nodev "$guest" $at/guest',
  'if [ "$kvm" = own ]; then mknod -m 0666 $at/kvm c 10 232; mount --bind $at/kvm /dev/kvm; fi',
  "ulimit -c 0",
  'exec "$@"',
].join("\n");

/** What the VMM sees where. */
export interface JailView {
  readonly nodeDirectory: string;
  readonly guestDirectory: string;
}

export function jailView(jail: Jail): JailView {
  const at = mountPoint(jail);
  return { nodeDirectory: `${at}/node`, guestDirectory: `${at}/guest` };
}

export function jailArgv(jail: Jail, program: string, programArgv: readonly string[]): readonly string[] {
  const namespaces = ["--mount", "--net", "--ipc", ...(jail.uid === null ? ["--user", "--map-root-user"] : [])];
  const kvm = jail.hasKvm && jail.uid !== null ? "own" : "host";
  const build = ["sh", "-c", SCRIPT, "sh", mountPoint(jail), jail.nodeDirectory, jail.guestDirectory, kvm];
  return ["unshare", ...namespaces, "--", ...build, "setpriv", ...privileges(jail), "--", program, ...programArgv];
}

function privileges(jail: Jail): readonly string[] {
  const none = ["--no-new-privs", "--inh-caps=-all", "--ambient-caps=-all", "--bounding-set=-all"];
  if (jail.uid === null) return none;
  return [`--reuid=${jail.uid}`, `--regid=${jail.uid}`, "--clear-groups", ...none];
}

function mountPoint(jail: Jail): string {
  const isAbove = (point: string, path: string): boolean => path === point || path.startsWith(`${point}/`);
  const free = MOUNT_POINTS.find(
    (point) => !isAbove(point, jail.nodeDirectory) && !isAbove(point, jail.guestDirectory),
  );
  if (free === undefined)
    throw new Error("data and cache directory together cover /mnt, /media and /srv; move one of them");
  return free;
}
