/**
 * The command line of a VMM: a plan as data → QEMU's arguments. Pure.
 *
 * Always: nothing here names an identity except `-name`, which is for finding the process; a machine's disk, network
 * and configuration come to a guest that has already booted. The disk stands under the stable node name `root`, so
 * that a template can be saved over a placeholder and a machine's own file put in its place. The guest's power-off
 * pauses the VMM instead of ending it, so that a node agent that was away still learns that it was a power-off.
 *
 * Figures (emulated, 4 processors, 8 GiB, spawn to agent): plain 2.3 to 3.5 s, as below 2.1 to 2.3 s. Memory that is
 * shared (memfd) instead of private costs 0.3 s, because the host gives it no huge pages.
 */

import { GUEST_MAC, TAP_NAME } from "../../network/addresses.ts";

import { DISK_GB_DEFAULT } from "@flotilla/contract/limits";

export type Accelerator = "kvm" | "tcg";

/** Where the guest's memory comes from. */
export type GuestMemory =
  | { readonly kind: "private" }
  /** A template's memory: shared while it is being made, private (copy on write) when a machine starts from it. */
  | { readonly kind: "file"; readonly path: string; readonly isShared: boolean };

/** Paths are as the VMM sees them. */
export interface VmmPlan {
  /** Carries everything by which the process is found again. */
  readonly name: string;
  /** Accelerator and processor, as of tuning.ts. */
  readonly processor: readonly string[];
  /** Further words of the kernel's command line. */
  readonly kernelWords: readonly string[];
  readonly cpus: number;
  readonly memoryMb: number;
  readonly memory: GuestMemory;
  readonly kernelPath: string;
  /** null: nothing boots; a template's state is loaded. */
  readonly initramfsPath: string | null;
  /** null: a placeholder that reads as zeros. Backing files come nearest first. */
  readonly disk: { readonly path: string; readonly backingPaths: readonly string[] } | null;
  /** The file behind the bulk disk; null: a placeholder. */
  readonly bulkPath: string | null;
  /** Holds qmp.sock and guest.sock. */
  readonly socketDirectory: string;
  /** Wait for a template's device state instead of booting. */
  readonly isIncoming: boolean;
  /** The guest has an interface; its other end is TAP_NAME in the VMM's namespace. */
  readonly hasNetwork: boolean;
}

export const QEMU_PROGRAM = "qemu-system-x86_64";
/** The name of the virtio port on which the guest agent listens. */
const GUEST_PORT_NAME = "flotilla.agent";
/** The chardev that keeps the guest's last words: a ring in QEMU's memory, so that no guest fills the host's disk. */
export const CONSOLE_ID = "console";
export const CONSOLE_BYTES = 65_536;
/** The block node that the guest's disk device is bound to, for ever. */
export const ROOT_NODE = "root";
const BULK_NODE = "bulk";
/** What the guest calls its bulk disk: the second of its disks. */
export const BULK_DEVICE = "/dev/vdb";
/** Announcing itself after a restore would only wake the guest: its neighbour is the same everywhere. */
const NETWORK_DEVICE = [
  ...["-netdev", `tap,id=net,ifname=${TAP_NAME},script=no,downscript=no,vhost=off`],
  ...["-device", `virtio-net-device,netdev=net,mac=${GUEST_MAC},guest_announce=off`],
];
/** What the disk device reads before a machine's disk stands there. Of the size that most disks have. */
export const PLACEHOLDER = { driver: "null-co", "read-zeroes": true, size: DISK_GB_DEFAULT * 2 ** 30 } as const;

export function qemuArgv(plan: VmmPlan): readonly string[] {
  return [
    ...["-name", `guest=${escaped(plan.name)}`],
    ...["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"],
    ...["-action", "shutdown=pause"],
    // No system calls but those of a running VMM: it starts nothing, gains nothing, and moves no other process.
    ...["-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"],
    ...["-machine", `microvm,acpi=on,rtc=on,ioapic2=off,memory-backend=m0`],
    ...["-bios", "qboot.rom"],
    ...["-object", memoryObject(plan)],
    ...["-m", `${plan.memoryMb}M`, "-smp", String(plan.cpus)],
    ...plan.processor,
    ...["-kernel", plan.kernelPath, ...(plan.initramfsPath === null ? [] : ["-initrd", plan.initramfsPath])],
    ...["-append", kernelCommandLine(plan)],
    ...["-chardev", `ringbuf,id=${CONSOLE_ID},size=${CONSOLE_BYTES}`, "-serial", `chardev:${CONSOLE_ID}`],
    ...["-chardev", `socket,id=qmp,path=${escaped(plan.socketDirectory)}/qmp.sock,server=on,wait=off`],
    ...["-mon", "chardev=qmp,mode=control"],
    ...["-blockdev", JSON.stringify(rootNode(plan.disk)), "-device", `virtio-blk-device,drive=${ROOT_NODE}`],
    ...["-device", "virtio-serial-device"],
    ...["-chardev", `socket,id=guest,path=${escaped(plan.socketDirectory)}/guest.sock,server=on,wait=off`],
    ...["-device", `virtserialport,chardev=guest,name=${GUEST_PORT_NAME}`],
    ...(plan.hasNetwork ? NETWORK_DEVICE : []),
    // Never asked to grow: the guest tells by it which memory is free, and gets that back by touching it.
    ...["-device", "virtio-balloon-device,free-page-reporting=on"],
    ...["-blockdev", JSON.stringify(bulkNode(plan.bulkPath)), "-device", `virtio-blk-device,drive=${BULK_NODE}`],
    ...(plan.isIncoming ? ["-incoming", "defer"] : []),
  ];
}

/** A guest costs what it touches, so its size is not reserved: a host may run guests that are larger than its own memory. */
function memoryObject(plan: VmmPlan): string {
  const size = `id=m0,size=${plan.memoryMb}M,reserve=off`;
  if (plan.memory.kind === "private") return `memory-backend-ram,${size}`;
  return `memory-backend-file,${size},mem-path=${escaped(plan.memory.path)},share=${plan.memory.isShared ? "on" : "off"}`;
}

function kernelCommandLine(plan: VmmPlan): string {
  const words = ["console=ttyS0", "quiet", "reboot=t", "panic=-1", "no_timer_check", "tsc=reliable", "nowatchdog"];
  // A kernel rewrites its own code while it boots. An emulator whose processors run at once can miss such a write and then
  // runs the old code for ever, so the agent starts the other processors when that is over. The locks stay in the code: for
  // one processor they would be taken out, and put back for the next.
  words.push("maxcpus=1", "noreplace-smp");
  // Code that every command would run through, and no machine has a use for: a scheduling group for each session, and
  // modules for policies that nobody loads.
  words.push("noautogroup", "lsm=landlock,yama");
  return [...words, ...plan.kernelWords].join(" ");
}

/** `raw` over what really holds the bytes: `blockdev-reopen` can put another file below it at any time. */
function rootNode(disk: VmmPlan["disk"]): object {
  const below = disk === null ? PLACEHOLDER : diskLayers([disk.path, ...disk.backingPaths], "disk");
  return { driver: "raw", "node-name": ROOT_NODE, discard: "unmap", file: below };
}

/** Nothing on it is worth a flush. */
function bulkNode(path: string | null): object {
  const cache = { "no-flush": true };
  const file = path === null ? { ...PLACEHOLDER, size: 0 } : { driver: "file", filename: path, cache };
  return { driver: "raw", "node-name": BULK_NODE, cache, file };
}

/**
 * A disk as QEMU is told it: the file that is written first, what it stands on behind it. A machine's own disk is a
 * qcow2; a file below it is one if it is called so, else an image's plain file system. Says every backing file itself:
 * what a disk's own header names is not believed.
 */
export function diskLayers(paths: readonly string[], nodeName: string): object {
  return layer(paths, { isTop: true, nodeName });
}

function layer(paths: readonly string[], { isTop, nodeName }: { isTop: boolean; nodeName: string }): object {
  const [path, ...rest] = paths;
  const access = isTop ? { discard: "unmap" } : { "read-only": true };
  const file = { driver: "file", filename: path, ...access };
  if (!isTop && !path?.endsWith(".qcow2")) return { driver: "raw", ...access, file };
  const backing = rest.length === 0 ? null : layer(rest, { isTop: false, nodeName });
  return { driver: "qcow2", ...(isTop ? { "node-name": nodeName } : {}), ...access, file, backing };
}

/** In QEMU's option lists a comma is written twice. */
function escaped(value: string): string {
  return value.replaceAll(",", ",,");
}
