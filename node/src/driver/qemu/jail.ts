/**
 * The command line that puts a VMM into its jail: a launcher from util-linux, which becomes the VMM. Pure.
 *
 * A VMM has: its own user (no privileges, and none to be had), its own network namespace (closed, with the guest's
 * interface and the way to the host when it has a network; else nothing but its own loopback), and its own mount
 * namespace, in which the node's directory and the guest's files stand at a short, traversable place, so that a data
 * directory below a home that nobody may enter works, and socket paths stay short.
 *
 * An emulated VMM is a batch task to the host's scheduler: when its threads wake they do not interrupt whoever runs. A
 * guest's processors wake each other all the time, and each used to interrupt the one that the command ran on, and the
 * control plane; batch tasks get as much of the host's processors and take it in longer turns. On two processors an exec of
 * `true` on a guest's channel took 5.3 ms instead of 6.0 (p95 7.4 instead of 10.5) and a sixth less processor time. A nice
 * value would take processor time from guests, and counts within a session only where the kernel groups tasks so.
 *
 * Always: the launcher replaces itself (`exec` all the way), so the process that is spawned is the VMM, under one
 * process id and start time. No root is left in it, and no descriptor but its standard ones.
 *
 * Without root the VMM runs as the caller, in a user namespace: machines are then not protected from each other's
 * VMMs, only the host from them.
 */
import type { NamespaceSetup } from "../../network/rules.ts";

export interface Jail {
  /** Seen read-write below `NODE_MOUNT`. */
  readonly nodeDirectory: string;
  /** The guest's kernel and initramfs; seen read-only below `GUEST_MOUNT`. */
  readonly guestDirectory: string;
  /** null: as the caller, who is not root. */
  readonly uid: number | null;
  /** The VMM uses /dev/kvm, and emulates nothing. With root it gets one that its user may open, whatever the host's is like. */
  readonly hasKvm: boolean;
  /** null: nothing but a loopback. Otherwise takes root. */
  readonly network: NamespaceSetup | null;
  /** Files by which it joins its control groups; none where there are none. */
  readonly groups: readonly string[];
  /** It is killed when the process that starts it ends. */
  readonly diesWithStarter: boolean;
}

/** Where the jail's view is built: the first of these that holds neither directory. */
const MOUNT_POINTS = ["/mnt", "/media", "/srv"] as const;

const SCRIPT = [
  "set -e",
  "at=$1 node=$2 guest=$3 kvm=$4 groups=$5; shift 5",
  // First, so that all it ever needs is counted.
  'while [ "$groups" -gt 0 ]; do { echo 0 >"$1"; } 2>/dev/null || :; shift; groups=$((groups - 1)); done',
  "mount -t tmpfs -o mode=0755,size=64k,nosuid,noexec flotilla $at",
  "mkdir $at/node $at/guest",
  // With what is mounted below it: images may lie on a disk of their own.
  'mount --rbind -o nosuid,nodev,noexec "$node" $at/node',
  // Holds a library for the VMM, so not noexec.
  'mount --bind -o ro,nosuid,nodev "$guest" $at/guest',
  'if [ "$kvm" = own ]; then mknod -m 0666 $at/kvm c 10 232; mount --bind $at/kvm /dev/kvm; fi',
  "ulimit -c 0",
].join("\n");

const WITHOUT_NETWORK = `${SCRIPT}\nexec "$@"`;

/**
 * On the host's side: the descriptor is the way back to its namespace, and the end of a pair that an earlier VMM of this
 * user has left makes room: a namespace goes a moment after its last process.
 */
const WITH_NETWORK = [
  SCRIPT,
  "mknod -m 0666 $at/tun c 10 200; mount --bind $at/tun /dev/net/tun",
  "exec 9</proc/self/ns/net",
  'if [ -n "$1" ]; then ip link delete "$1" 2>/dev/null || :; fi; shift',
  'exec unshare --net -- "$@"',
].join("\n");

/** Inside: closed first, then its interfaces. Refusals go to the guest alone, so the kernel need not count them out. */
const NAMESPACE = [
  "set -e",
  "rules=$1 inside=$2 outside=$3; shift 3",
  "settings=/proc/sys/net",
  "if [ -e $settings/ipv6 ]; then echo 1 >$settings/ipv6/conf/all/disable_ipv6; echo 1 >$settings/ipv6/conf/default/disable_ipv6; fi",
  "echo 0 >$settings/ipv4/icmp_ratelimit",
  'if [ -n "$rules" ]; then printf %s "$rules" | nft -f -; fi',
  'printf %s "$inside" | ip -batch -',
  'if [ -n "$outside" ]; then printf %s "$outside" | nsenter --net=/proc/self/fd/9 -- ip -batch -; echo 1 >$settings/ipv4/ip_forward; fi',
  "exec 9<&-",
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
  const { network, uid } = jail;
  const kvm = jail.hasKvm && uid !== null ? "own" : "host";
  const view = [
    "sh",
    mountPoint(jail),
    jail.nodeDirectory,
    jail.guestDirectory,
    kvm,
    String(jail.groups.length),
    ...jail.groups,
  ];
  const scheduling = jail.hasKvm ? [] : ["chrt", "--batch", "0"];
  const vmm = [...scheduling, "setpriv", ...privileges(jail), "--", program, ...programArgv];
  if (network === null) {
    const namespaces = ["--mount", "--net", "--ipc", ...(uid === null ? ["--user", "--map-root-user"] : [])];
    return ["unshare", ...namespaces, "--", "sh", "-c", WITHOUT_NETWORK, ...view, ...vmm];
  }
  const { hostEnd, rules, inside, outside } = network;
  const namespace = ["sh", "-c", NAMESPACE, "sh", rules, inside, outside];
  return ["unshare", "--mount", "--ipc", "--", "sh", "-c", WITH_NETWORK, ...view, hostEnd ?? "", ...namespace, ...vmm];
}

function privileges(jail: Jail): readonly string[] {
  const none = ["--no-new-privs", "--inh-caps=-all", "--ambient-caps=-all", "--bounding-set=-all"];
  if (jail.diesWithStarter) none.push("--pdeathsig=KILL");
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
