/**
 * The command line of a VMM: converts a plan into QEMU's arguments. Pure.
 *
 * Always:
 * - only `-name`, for finding the process, identifies the machine; disk, network and configuration are given
 *   to a guest that has already booted;
 * - the disk has the stable node name `root`, so that a template can be saved with a placeholder that is
 *   replaced by a machine's disk later;
 * - the guest's power-off pauses the VMM instead of ending it, so that an agent that was not running still
 *   learns of it.
 *
 * Measured from spawn to hello (emulated, 4 processors, 8 GiB): 2.3 to 3.5 s with defaults, 2.1 to 2.3 s with
 * these options. Shared memory (memfd) instead of private costs 0.3 s, because the host gives it no huge
 * pages.
 */

import { GUEST_MAC } from "../../network/addresses.ts";

import { DISK_GB_DEFAULT } from "@flotilla/contract/limits";

export type Accelerator = "kvm" | "tcg";

/** Where the guest's memory comes from. */
export type GuestMemory =
  | { readonly kind: "private" }
  /**
   * A template's memory file: shared while the template is made, private (copy on write) when a machine
   * starts from it.
   */
  | { readonly kind: "file"; readonly path: string; readonly isShared: boolean };

/** All paths are those that the VMM sees in its jail. */
export interface VmmPlan {
  /** Contains everything needed to find the process again. */
  readonly name: string;
  /** Accelerator and processor, from tuning.ts. */
  readonly processor: readonly string[];
  /** Additional parameters of the kernel's command line. */
  readonly kernelParameters: readonly string[];
  readonly cpus: number;
  readonly memoryMb: number;
  readonly memory: GuestMemory;
  readonly kernelPath: string;
  /** null: nothing boots, because a template's state is loaded. */
  readonly initramfsPath: string | null;
  /** null: a placeholder that reads as zeros. Backing files are ordered from the nearest. */
  readonly disk: { readonly path: string; readonly backingPaths: readonly string[] } | null;
  /** The file behind the bulk disk; null: a placeholder. */
  readonly bulkPath: string | null;
  /** Contains qmp.sock and guest.sock. */
  readonly socketDirectory: string;
  /** Waits for a template's device state instead of booting. */
  readonly isIncoming: boolean;
  /** The other end of the guest's interface, in the VMM's namespace; null: the guest has none. */
  readonly tapName: string | null;
}

export const QEMU_PROGRAM = "qemu-system-x86_64";
/** The name of the virtio port on which the guest agent listens. */
const GUEST_PORT_NAME = "flotilla.agent";
/**
 * The chardev with the guest's console output: a ring buffer in QEMU's memory, so that no guest can fill the
 * host's disk.
 */
export const CONSOLE_ID = "console";
export const CONSOLE_BYTES = 65_536;
/** The block node that the guest's disk device is permanently bound to. */
export const ROOT_NODE = "root";
/** The block node of the image's file, below the disk and its layers. */
export const IMAGE_NODE = "image";
const BULK_NODE = "bulk";
/** The guest's name for its bulk disk, its second disk. */
export const BULK_DEVICE = "/dev/vdb";
/**
 * Without announcements after a restore: they would only wake the guest, and its neighbour is always the
 * same.
 */
const networkDevice = (tapName: string): readonly string[] => [
  ...["-netdev", `tap,id=net,ifname=${tapName},script=no,downscript=no,vhost=off`],
  ...["-device", `virtio-net-device,netdev=net,mac=${GUEST_MAC},guest_announce=off`],
];
/** What the disk device reads before a machine's disk is attached. Has the most common size. */
export const PLACEHOLDER = { driver: "null-co", "read-zeroes": true, size: DISK_GB_DEFAULT * 2 ** 30 } as const;

export function qemuArgv(plan: VmmPlan): readonly string[] {
  return [
    ...["-name", `guest=${escaped(plan.name)}`],
    // The threads of virtual processors are called so: `top -H` and tests see which VM executes its guest.
    // Apart, so that the name ends.
    ...["-name", "debug-threads=on"],
    ...["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"],
    ...["-action", "shutdown=pause"],
    // Allows only the system calls of a running VMM: no new programs, privileges or scheduling of other
    // processes.
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
    ...(plan.tapName === null ? [] : networkDevice(plan.tapName)),
    // The balloon is never inflated: it only reports free memory to the host, and the guest gets it back by
    // touching it.
    ...["-device", "virtio-balloon-device,free-page-reporting=on"],
    ...["-blockdev", JSON.stringify(bulkNode(plan.bulkPath)), "-device", `virtio-blk-device,drive=${BULK_NODE}`],
    ...(plan.isIncoming ? ["-incoming", "defer"] : []),
  ];
}

/**
 * Memory is not reserved, because a guest costs only what it touches: the host may run guests larger than its
 * memory.
 */
function memoryObject(plan: VmmPlan): string {
  const size = `id=m0,size=${plan.memoryMb}M,reserve=off`;
  if (plan.memory.kind === "private") return `memory-backend-ram,${size}`;
  return `memory-backend-file,${size},mem-path=${escaped(plan.memory.path)},share=${plan.memory.isShared ? "on" : "off"}`;
}

function kernelCommandLine(plan: VmmPlan): string {
  const parameters = ["console=ttyS0", "quiet", "reboot=t", "panic=-1", "no_timer_check", "tsc=reliable", "nowatchdog"];
  // A kernel patches its own code while it boots. An emulator with concurrent processors can miss such a
  // write and then run the old code forever, so the agent starts the other processors after the boot.
  // `noreplace-smp` keeps the locks in the code: with one processor they would be patched out, and patched in
  // again for the second.
  parameters.push("maxcpus=1", "noreplace-smp");
  // Removes code that every command would run through and no machine needs: a scheduling group per session,
  // and security modules without policies.
  parameters.push("noautogroup", "lsm=landlock,yama");
  return [...parameters, ...plan.kernelParameters].join(" ");
}

/**
 * A `raw` node over the node that holds the bytes: `blockdev-reopen` can replace the file below it at any
 * time.
 */
function rootNode(disk: VmmPlan["disk"]): object {
  const below = disk === null ? PLACEHOLDER : diskLayers([disk.path, ...disk.backingPaths], "disk");
  return { driver: "raw", "node-name": ROOT_NODE, discard: "unmap", file: below };
}

/** Its content is temporary, so it is never flushed. */
function bulkNode(path: string | null): object {
  const cache = { "no-flush": true };
  const file = path === null ? { ...PLACEHOLDER, size: 0 } : { driver: "file", filename: path, cache };
  return { driver: "raw", "node-name": BULK_NODE, cache, file };
}

/**
 * The block node of a disk: the writable file first, its backing files behind it. A machine's disk is a
 * qcow2. A backing file is a qcow2 if its name says so, otherwise an image's raw file system. Every backing
 * file is given explicitly, because the disk's header is not trusted.
 */
export function diskLayers(paths: readonly string[], nodeName: string): object {
  return layer(paths, { isTop: true, nodeName });
}

function layer(paths: readonly string[], { isTop, nodeName }: { isTop: boolean; nodeName: string }): object {
  const [path, ...rest] = paths;
  const access = isTop ? { discard: "unmap" } : { "read-only": true };
  const file = { driver: "file", filename: path, ...access };
  if (!isTop && !path?.endsWith(".qcow2")) return { driver: "raw", "node-name": IMAGE_NODE, ...access, file };
  const backing = rest.length === 0 ? null : layer(rest, { isTop: false, nodeName });
  return { driver: "qcow2", ...(isTop ? { "node-name": nodeName } : {}), ...access, file, backing };
}

/** QEMU's option syntax doubles commas. */
function escaped(value: string): string {
  return value.replaceAll(",", ",,");
}
