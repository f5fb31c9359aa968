/**
 * The command line that puts a VMM into its jail: launchers that replace themselves, the last of them
 * node/native/jail.c. Pure.
 *
 * A VMM gets:
 * - its own user, without privileges or a way to gain them;
 * - its own network namespace: with a network, the guest's interface and a closed uplink; otherwise only a
 *   loopback. A VMM that is to replace another one of its machine joins that one's namespace, with an
 *   interface that carries nothing yet;
 * - its own IPC namespace, and resource limits;
 * - its own root directory with only what QEMU needs: its program, libraries and firmware, the guest's
 *   kernel, five devices, the memory of its template, and the boot's directory, the only one it can write to.
 *   Files elsewhere, such as its disk, are hard-linked into that directory (launcher.ts).
 *
 * Always: every launcher uses `exec`, so the spawned process becomes the VMM, with the same process id and
 * start time. The VMM keeps no root privilege and only the standard descriptors.
 *
 * Without root the VMM runs as the caller in a user namespace with the same view. Machines are then protected
 * from each other's VMMs only by that view, not by users.
 */
import type { NamespaceJoin, NamespaceSetup } from "../../network/rules.ts";
import { inNamespaceOf } from "../../network/programs.ts";
import type { VmmLimits } from "./limits.ts";
import type { RuntimeFiles } from "./runtime-files.ts";

export interface Jail {
  /** The program of node/native/jail.c. */
  readonly launcher: string;
  readonly runtime: RuntimeFiles;
  /** The guest's kernel and initramfs. */
  readonly guestDirectory: string;
  /** Single files, mounted read-only under other names. */
  readonly files: readonly { readonly from: string; readonly to: string }[];
  /** Belongs to the VMM's user. */
  readonly bootDirectory: string;
  /** The file behind the guest's memory; null if there is none. */
  readonly memory: { readonly path: string; readonly isShared: boolean } | null;
  /**
   * The directory of images if it is on another file system, where hard links are impossible; null otherwise.
   */
  readonly imagesDirectory: string | null;
  /** null: run as the caller, who is not root. */
  readonly uid: number | null;
  /**
   * Whether the VMM uses /dev/kvm. As root it gets one that its user may open, whatever the host's
   * permissions.
   */
  readonly hasKvm: boolean;
  /** null: only a loopback. Otherwise requires root. */
  readonly network: NamespaceSetup | NamespaceJoin | null;
  /** The `cgroup.procs` files of its control groups; may be empty. */
  readonly groups: readonly string[];
  readonly limits: Pick<VmmLimits, "fileBytes" | "filesOpen" | "tasksMax">;
  /** Its whole environment. */
  readonly environment: Readonly<Record<string, string>>;
  /** Whether it is killed when the process that started it ends. */
  readonly diesWithParent: boolean;
  /** Additional steps for its accelerator (tuning.ts). */
  readonly moreSteps: readonly (readonly string[])[];
}

/** The paths in the jail. */
export const VIEW = { boot: "/boot", guest: "/guest", memory: "/memory", images: "/images" } as const;

/** The device numbers of the devices that every VMM has. */
const DEVICES: readonly (readonly [string, number, number])[] = [
  ["/dev/null", 1, 3],
  ["/dev/zero", 1, 5],
  ["/dev/urandom", 1, 9],
];
const KVM_DEVICE = ["/dev/kvm", 10, 232] as const;
const TUN_DEVICE = ["/dev/net/tun", 10, 200] as const;

/**
 * On the host's side. Descriptor 9 refers to the host's namespace. An earlier VMM of this user may still hold
 * its veth pair, because a namespace disappears shortly after its last process; it is deleted, and with it
 * the connections that the host still has of that VMM. Whether there are any is in the program's text alone.
 */
const WITH_NETWORK = [
  "set -e",
  "exec 9</proc/self/ns/net",
  'if [ -n "$1" ]; then',
  'ip link delete "$1" 2>/dev/null || :',
  'said=$(conntrack --delete --orig-src "$2" 2>&1 >/dev/null) || :',
  'case $said in *"have been deleted"*) ;; *) echo "$said" >&2; exit 1 ;; esac',
  "fi; shift 2",
  'exec unshare --net -- "$@"',
].join("\n");

/**
 * Inside: closed rules first, then the interfaces. Rejections go only to the guest, so the kernel need not
 * rate-limit them. It checks the sender of each packet, and so of each ARP request, which no rule sees: it
 * keeps the neighbours of all namespaces in one table, of about 1,000 entries.
 */
const NAMESPACE = [
  "set -e",
  "rules=$1 inside=$2 outside=$3; shift 3",
  "settings=/proc/sys/net",
  "if [ -e $settings/ipv6 ]; then echo 1 >$settings/ipv6/conf/all/disable_ipv6; echo 1 >$settings/ipv6/conf/default/disable_ipv6; fi",
  "echo 0 >$settings/ipv4/icmp_ratelimit",
  "echo 1 >$settings/ipv4/conf/all/rp_filter",
  'if [ -n "$rules" ]; then printf %s "$rules" | nft -f -; fi',
  'printf %s "$inside" | ip -batch -',
  'if [ -n "$outside" ]; then printf %s "$outside" | nsenter --net=/proc/self/fd/9 -- ip -batch -; echo 1 >$settings/ipv4/ip_forward; fi',
  "exec 9<&-",
  'exec "$@"',
].join("\n");

/** Steps in the namespace of the VMM that is to be replaced. */
const JOINED = [
  "set -e",
  "inside=$1 leftovers=$2; shift 2",
  "for tap in $leftovers; do ip link delete $tap 2>/dev/null || :; done",
  'printf %s "$inside" | ip -batch -',
  'exec "$@"',
].join("\n");

export function jailArgv(jail: Jail, programArgv: readonly string[]): readonly string[] {
  const { network, runtime, uid } = jail;
  const command = [jail.launcher, ...steps(jail).flat().map(String), "--", runtime.program, ...programArgv];
  if (network === null) return uid === null ? ["unshare", "--user", "--map-root-user", "--", ...command] : command;
  if (network.kind === "joined") {
    const { pid, inside, leftovers } = network;
    return [...inNamespaceOf(pid, ["sh", "-c", JOINED, "sh", inside, leftovers.join(" ")]), ...command];
  }
  const { hostEnd, machineAddress, rules, inside, outside } = network;
  const namespace = ["sh", "-c", NAMESPACE, "sh", rules, inside, outside];
  return ["sh", "-c", WITH_NETWORK, "sh", hostEnd ?? "", machineAddress ?? "", ...namespace, ...command];
}

/** The steps of the launcher, in the syntax of jail.c. */
function steps(jail: Jail): readonly (readonly (string | number)[])[] {
  const { runtime, memory, imagesDirectory, uid, limits, groups, environment } = jail;
  const read = (from: string, to = from): readonly string[] => ["read", from, to];
  const devices = [...DEVICES, ...(jail.hasKvm ? [KVM_DEVICE] : []), ...(jail.network === null ? [] : [TUN_DEVICE])];
  return [
    ...groups.map((path) => ["group", path]),
    ...(jail.network === null ? [["net"]] : []),
    ...[runtime.program, ...runtime.directories].map((path) => read(path)),
    ...runtime.links.map(({ target, path }) => ["link", target, path]),
    read(jail.guestDirectory, VIEW.guest),
    ...jail.files.map(({ from, to }) => read(from, to)),
    ["write", jail.bootDirectory, VIEW.boot],
    ...(memory === null ? [] : [[memory.isShared ? "write" : "read", memory.path, VIEW.memory]]),
    ...(imagesDirectory === null ? [] : [read(imagesDirectory, VIEW.images)]),
    ...devices.map((device) => ["node", ...device]),
    ...Object.entries(environment).map(([name, value]) => ["env", `${name}=${value}`]),
    // A limit of 0 does not keep the kernel from piping its memory to a program of the host.
    ["limit", "core", 1],
    ["limit", "fsize", limits.fileBytes],
    ["limit", "nofile", limits.filesOpen],
    // The limit counts all processes of the user, and the caller has others.
    ...(uid === null ? [] : [["limit", "nproc", limits.tasksMax]]),
    // Bounds what it can write: its disk and a few files in the directory, each up to the limit of sizes.
    ["no-files"],
    ...jail.moreSteps,
    ...(uid === null ? [] : [["user", uid]]),
    ...(jail.diesWithParent ? [["dies"]] : []),
  ];
}
