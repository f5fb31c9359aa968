/**
 * The files that an emulated host boots from: its disk, its kernel and first program, and a disk with this
 * checkout.
 *
 * Owns `<cache>/kvm-host/`: a disk for each kernel and list of packages, made once (test/kvm/make-disk) and
 * never written again: each host writes to an overlay file. The rest is made for each run, because it
 * contains the checkout.
 */
import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { stripTypeScriptTypes } from "node:module";
import { basename, join } from "node:path";
import { promisify } from "node:util";
import { ensureGuestFiles } from "../../node/src/driver/qemu/guest-files.ts";
import {
  type ArchiveEntry,
  DIRECTORY_MODE,
  FILE_MODE,
  inLoadOrder,
  moduleDependencies,
  PROGRAM_MODE,
  writeCpio,
} from "../../node/src/driver/qemu/initramfs.ts";

export interface HostFiles {
  readonly kernelPath: string;
  readonly initramfsPath: string;
  /** Shared by all hosts; read only. */
  readonly diskPath: string;
  /** The checkout and the files that set-up has made; read only. */
  readonly checkoutPath: string;
}

const ROOT = join(import.meta.dirname, "../..");
const run = promisify(execFile);
const PACKAGES = [
  "busybox-static",
  "conntrack",
  "e2fsprogs",
  "gcc",
  "iproute2",
  "kmod",
  "libc6-dev",
  "nftables",
  "procps",
  "qemu-system-x86",
  "qemu-utils",
  "umoci",
  "xz-utils",
] as const;
/** Needed until the disk is mounted; all other modules are loaded from there. */
const MODULES = ["virtio_pci", "virtio_blk"] as const;
/** Parts of node_modules that only checks and compilers need. */
const UNUSED = /\/node_modules\/(@biomejs|@?oxlint|@types|@?typescript|node-linux-[^/]+\/(include|share))/;
/** Raise it when the way the disk is made changes. */
const RECIPE = "1";

/**
 * Makes what is missing in `directory` and in the cache. Takes two minutes the first time, seconds
 * afterwards.
 */
export async function makeHostFiles(directory: string, cacheDirectory: string): Promise<HostFiles> {
  const guest = await ensureGuestFiles({ cacheDirectory, repositoryDirectory: ROOT });
  const kernel = join(cacheDirectory, "guest", "kernel", guest.kernelVersion);
  const key = createHash("sha256").update([RECIPE, guest.kernelVersion, ...PACKAGES].join(" "));
  const diskPath = join(cacheDirectory, "kvm-host", `disk-${key.digest("hex").slice(0, 16)}`);
  const initramfsPath = join(directory, "initramfs");
  const checkoutPath = join(directory, "checkout");
  if (!existsSync(diskPath)) {
    const make = join(import.meta.dirname, "make-disk");
    await run(make, [guest.kernelVersion, join(kernel, "modules"), diskPath, ...PACKAGES]);
  }
  writeFileSync(initramfsPath, makeInitramfs(join(kernel, "modules"), join(cacheDirectory, "images", "busybox")));
  await makeCheckout(checkoutPath, cacheDirectory, [
    basename(guest.directory),
    `kernel/${guest.kernelVersion}/vmlinuz`,
  ]);
  return { kernelPath: join(kernel, "vmlinuz"), initramfsPath, diskPath, checkoutPath };
}

function makeInitramfs(modulesDirectory: string, busyboxPath: string): Buffer {
  const files = readdirSync(modulesDirectory, { recursive: true, encoding: "utf8" });
  const read = (name: string): Buffer => {
    const file = files.find((path) => basename(path).replaceAll("-", "_") === `${name}.ko`);
    if (file === undefined) throw new Error(`no module ${name} in ${modulesDirectory}`);
    return readFileSync(join(modulesDirectory, file));
  };
  const names = inLoadOrder(MODULES, (name) => moduleDependencies(read(name)));
  const entries: ArchiveEntry[] = [
    { name: "bin", mode: DIRECTORY_MODE },
    { name: "bin/busybox", mode: PROGRAM_MODE, data: readFileSync(busyboxPath) },
    { name: "dev", mode: DIRECTORY_MODE },
    { name: "init", mode: PROGRAM_MODE, data: readFileSync(join(import.meta.dirname, "first-init")) },
    { name: "modules", mode: DIRECTORY_MODE },
    ...names.map((name) => ({ name: `modules/${name}.ko`, mode: FILE_MODE, data: read(name) })),
    { name: "modules.list", mode: FILE_MODE, data: Buffer.from(names.map((name) => `${name}\n`).join("")) },
  ];
  return writeCpio(entries);
}

/**
 * A file system with `checkout/`, as it is now, and `cache/`, the part of the cache directory that machines
 * need.
 */
async function makeCheckout(path: string, cacheDirectory: string, guestNames: readonly string[]): Promise<void> {
  const tree = `${path}.tree`;
  const isUsed = (source: string): boolean => !UNUSED.test(source) && basename(source) !== ".git";
  cpSync(ROOT, join(tree, "checkout"), { recursive: true, verbatimSymlinks: true, filter: isUsed });
  stripTypes(join(tree, "checkout"));
  const agents = readdirSync(join(cacheDirectory, "guest")).filter((name) => name.startsWith("agent-"));
  for (const name of [...guestNames, ...agents].map((each) => `guest/${each}`).concat("images/busybox")) {
    mkdirSync(join(tree, "cache", name, ".."), { recursive: true });
    cpSync(join(cacheDirectory, name), join(tree, "cache", name), { recursive: true });
  }
  await run("truncate", ["--size=2G", path]);
  await run("mke2fs", ["-q", "-t", "ext4", "-d", tree, "-E", "lazy_itable_init=1,root_owner=0:0", "-m", "0", path]);
  rmSync(tree, { recursive: true });
}

/**
 * Node strips types with a WebAssembly program, which takes an emulated processor seconds for each process,
 * and which the emulated V8 sometimes ends with a failed internal check. So types are stripped here, and
 * test/kvm/stripped.mjs loads the results.
 */
function stripTypes(checkout: string): void {
  for (const entry of readdirSync(checkout, { withFileTypes: true })) {
    const path = join(checkout, entry.name);
    if (entry.isDirectory() && entry.name !== "node_modules") stripTypes(path);
    if (!entry.isFile() || !entry.name.endsWith(".ts") || entry.name.endsWith(".d.ts")) continue;
    writeFileSync(path, stripTypeScriptTypes(readFileSync(path, "utf8")));
  }
}
