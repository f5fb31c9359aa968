/**
 * The command line that puts a VMM into its jail: launchers that become the VMM, the last of them node/native/jail.c. Pure.
 *
 * A VMM has: its own user (no privileges, and none to be had), its own network namespace (closed, with the guest's
 * interface and the way to the host when it has a network; else nothing but its own loopback), its own IPC namespace,
 * limits, and a root of its own, in which there is nothing but what QEMU needs: its program, libraries and firmware, the
 * guest's kernel, five devices, the memory of its template, and the boot's directory, the only place that it can write to.
 * Files elsewhere, such as its disk, have a second name in that directory (launcher.ts).
 *
 * Always: the launcher replaces itself (`exec` all the way), so the process that is spawned is the VMM, under one
 * process id and start time. No root is left in it, and no descriptor but its standard ones.
 *
 * Without root the VMM runs as the caller, in a user namespace, and sees as little: machines are then not protected from
 * each other's VMMs by their users, only by what each can see.
 */
import type { NamespaceSetup } from "../../network/rules.ts";
import type { VmmLimits } from "./limits.ts";
import type { RuntimeFiles } from "./runtime-files.ts";

export interface Jail {
  /** The program of node/native/jail.c. */
  readonly launcher: string;
  readonly runtime: RuntimeFiles;
  /** The guest's kernel and initramfs. */
  readonly guestDirectory: string;
  /** Single files, read-only, under other names. */
  readonly files: readonly { readonly from: string; readonly to: string }[];
  /** Belongs to the VMM's user. */
  readonly bootDirectory: string;
  /** The file behind the guest's memory; null when there is none. */
  readonly memory: { readonly path: string; readonly isShared: boolean } | null;
  /** Images, where they are on a disk of their own and can have no second name; null otherwise. */
  readonly imagesDirectory: string | null;
  /** null: as the caller, who is not root. */
  readonly uid: number | null;
  /** The VMM uses /dev/kvm. With root it gets one that its user may open, whatever the host's is like. */
  readonly hasKvm: boolean;
  /** null: nothing but a loopback. Otherwise takes root. */
  readonly network: NamespaceSetup | null;
  /** Files by which it joins its control groups; none where there are none. */
  readonly groups: readonly string[];
  readonly limits: Pick<VmmLimits, "fileBytes" | "filesOpen" | "tasksMax">;
  /** All that is in its environment. */
  readonly environment: Readonly<Record<string, string>>;
  /** It is killed when the process that starts it ends. */
  readonly diesWithStarter: boolean;
  /** Steps that its accelerator needs (tuning.ts). */
  readonly moreSteps: readonly (readonly string[])[];
}

/** Where a VMM sees what. */
export const VIEW = { boot: "/boot", guest: "/guest", memory: "/memory", images: "/images" } as const;

/** The kernel's numbers of devices that every VMM has. */
const DEVICES: readonly (readonly [string, number, number])[] = [
  ["/dev/null", 1, 3],
  ["/dev/zero", 1, 5],
  ["/dev/urandom", 1, 9],
];
const KVM_DEVICE = ["/dev/kvm", 10, 232] as const;
const TUN_DEVICE = ["/dev/net/tun", 10, 200] as const;

/**
 * On the host's side: the descriptor is the way back to its namespace, and the end of a pair that an earlier VMM of this
 * user has left makes room: a namespace goes a moment after its last process.
 */
const WITH_NETWORK = [
  "set -e",
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

export function jailArgv(jail: Jail, programArgv: readonly string[]): readonly string[] {
  const { network, runtime, uid } = jail;
  const words = [jail.launcher, ...steps(jail).flat().map(String), "--", runtime.program, ...programArgv];
  if (network === null) return uid === null ? ["unshare", "--user", "--map-root-user", "--", ...words] : words;
  const { hostEnd, rules, inside, outside } = network;
  const namespace = ["sh", "-c", NAMESPACE, "sh", rules, inside, outside];
  return ["sh", "-c", WITH_NETWORK, "sh", hostEnd ?? "", ...namespace, ...words];
}

/** What the launcher is to do, as it says itself. */
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
    ["limit", "core", 0],
    ["limit", "fsize", limits.fileBytes],
    ["limit", "nofile", limits.filesOpen],
    // They count for the user, and the caller has others.
    ...(uid === null ? [] : [["limit", "nproc", limits.tasksMax]]),
    ...jail.moreSteps,
    ...(uid === null ? [] : [["user", uid]]),
    ...(jail.diesWithStarter ? [["dies"]] : []),
  ];
}
