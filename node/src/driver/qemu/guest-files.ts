/**
 * The files a guest boots from: Debian's kernel, and an initramfs with the guest agent and the kernel modules
 * it loads.
 *
 * Owns `<cache>/guest/boot-<key>/`, made from what scripts/setup has put below `<cache>/guest/`. Always: the
 * key covers everything the files are made from, and a directory gets its name only when it is complete. So
 * it is never changed, and several node agents can share the cache. A crash leaves a `.new-` directory that
 * nothing uses.
 */
import { execFile } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { existsSync } from "node:fs";
import { chmod, copyFile, mkdir, readdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { type ArchiveEntry, DIRECTORY_MODE, FILE_MODE, PROGRAM_MODE, writeCpio } from "./initramfs.ts";
import { readModules } from "./kernel-modules.ts";

export interface GuestFiles {
  /** Contains KERNEL_NAME and INITRAMFS_NAME. */
  readonly directory: string;
  /** Such as `6.1.0-40-cloud-amd64`. */
  readonly kernelVersion: string;
  readonly key: string;
}

export const KERNEL_NAME = "vmlinuz";
export const INITRAMFS_NAME = "initramfs";
/** The head of the kernel's file: all that QEMU needs for a VMM that never boots. */
export const RESTORE_KERNEL_NAME = "vmlinuz-head";
/** A library loaded into every VMM: it protects the memory of templates, and ends VMMs that are fenced. */
export const VMM_LIBRARY_NAME = "vmm.so";
/** The program that puts a VMM, or one that reads an image, into its jail. */
export const JAIL_NAME = "jail";
/** The program that says which pages of a VMM's guest have changed. */
export const MEMORY_WATCH_NAME = "memory-watch";
/** Replaces the host's file of this name, which a jail hides: says that memory may be overcommitted. */
export const OVERCOMMIT_NAME = "overcommit_memory";
/**
 * The modules for a machine's devices, and one that ends connections (guest/sockets.c). Their dependencies
 * are read from the modules themselves.
 */
const MODULES = ["virtio_mmio", "virtio_blk", "virtio_console", "virtio_net", "tcp_diag"] as const;
/** Returns memory to the host; the agent loads it when it is useful (guest/memory.c). */
const BALLOON_MODULE = "virtio_balloon";
/** Increment when the way these files are made changes. */
const RECIPE = "6";

export interface GuestFilesOptions {
  readonly cacheDirectory: string;
  /** Contains guest/: the agent is found by the hash of its sources. */
  readonly repositoryDirectory: string;
}

/** Throws with instructions when set-up has not run. */
export async function ensureGuestFiles(options: GuestFilesOptions): Promise<GuestFiles> {
  const guestCache = join(options.cacheDirectory, "guest");
  const kernelVersion = await newestKernel(join(guestCache, "kernel"));
  const kernelDirectory = join(guestCache, "kernel", kernelVersion);
  const agentName = `agent-${await agentKey(join(options.repositoryDirectory, "guest"))}`;
  const agentPath = join(guestCache, agentName, "agent");
  if (!existsSync(agentPath)) throw new Error(`no guest agent at ${agentPath}; run scripts/setup to build it`);
  const agent = await readFile(agentPath);
  const native = (...names: readonly string[]): readonly string[] =>
    names.map((name) => join(options.repositoryDirectory, "node", "native", name));
  const jailSources = native("jail.c", "filter.c", "filter.h");
  const librarySources = native("template-memory.c", "fence.c", "fence.h");
  const memoryWatchSources = native("memory-watch.c");
  const key = createHash("sha256")
    .update(`${RECIPE} ${kernelVersion} ${MODULES.join(" ")} `)
    .update(agent)
    .update(await contentOf([...librarySources, ...jailSources, ...memoryWatchSources]))
    .digest("hex")
    .slice(0, 16);
  const directory = join(guestCache, `boot-${key}`);
  if (existsSync(directory)) return { directory, kernelVersion, key };
  const unfinished = `${directory}.new-${randomBytes(4).toString("hex")}`;
  try {
    await mkdir(unfinished);
    await copyFile(join(kernelDirectory, KERNEL_NAME), join(unfinished, KERNEL_NAME));
    await writeFile(join(unfinished, INITRAMFS_NAME), await makeInitramfs(agent, join(kernelDirectory, "modules")));
    await writeFile(
      join(unfinished, RESTORE_KERNEL_NAME),
      kernelHead(await readFile(join(kernelDirectory, KERNEL_NAME))),
    );
    const library = ["-shared", "-fPIC"];
    await compile(librarySources, join(unfinished, VMM_LIBRARY_NAME), library);
    await writeFile(join(unfinished, OVERCOMMIT_NAME), "0\n");
    await compile(jailSources, join(unfinished, JAIL_NAME), []);
    await compile(memoryWatchSources, join(unfinished, MEMORY_WATCH_NAME), []);
    // VMMs read them as unprivileged users.
    for (const name of await readdir(unfinished)) await chmod(join(unfinished, name), 0o644);
    for (const program of [JAIL_NAME, MEMORY_WATCH_NAME]) await chmod(join(unfinished, program), 0o755);
    await chmod(unfinished, 0o755);
    await rename(unfinished, directory);
  } catch (error) {
    await rm(unfinished, { recursive: true, force: true });
    // Another node agent may have finished first; its result is the same.
    if (!existsSync(directory)) throw error;
  }
  return { directory, kernelVersion, key };
}

/**
 * Offsets in a bzImage: the number of sectors of its real-mode part, and of the 16-byte paragraphs that
 * follow.
 */
const SETUP_SECTORS_AT = 0x1f1;
const PARAGRAPHS_AT = 0x1f4;
const SECTOR_BYTES = 512;
const KERNEL_HEAD_BYTES = 65_536;

/** A kernel that QEMU accepts, without code beyond its head. */
function kernelHead(kernel: Buffer): Buffer {
  const head = Buffer.from(kernel.subarray(0, KERNEL_HEAD_BYTES));
  const setupBytes = (head.readUInt8(SETUP_SECTORS_AT) + 1) * SECTOR_BYTES;
  head.writeUInt32LE((KERNEL_HEAD_BYTES - setupBytes) / 16, PARAGRAPHS_AT);
  return head;
}

async function contentOf(paths: readonly string[]): Promise<Buffer> {
  return Buffer.concat(await Promise.all(paths.map((path) => readFile(path))));
}

/** `sources` may contain headers. */
async function compile(sources: readonly string[], path: string, options: readonly string[]): Promise<void> {
  const common = ["-O2", "-s", "-Wall", "-Wextra", "-Wconversion", "-Werror"];
  const compiled = sources.filter((source) => source.endsWith(".c"));
  await promisify(execFile)("cc", [...options, ...common, "-o", path, ...compiled]).catch((error: unknown) => {
    throw new Error(`${compiled.join(" and ")} could not be compiled; run scripts/setup to install a compiler`, {
      cause: error,
    });
  });
}

async function newestKernel(directory: string): Promise<string> {
  const names = await readdir(directory).catch(() => []);
  const versions = names.filter((name) => existsSync(join(directory, name, KERNEL_NAME)));
  const newest = versions.sort((one, two) => one.localeCompare(two, "en", { numeric: true })).at(-1);
  if (newest === undefined) throw new Error(`no guest kernel in ${directory}; run scripts/setup to download one`);
  return newest;
}

/**
 * The same as agent_key in scripts/setup: the sources in order of their paths, without tests and build
 * results.
 */
async function agentKey(guestDirectory: string): Promise<string> {
  const files = await readdir(guestDirectory, { recursive: true, withFileTypes: true });
  const sources = files
    .filter((entry) => entry.isFile() && (/\.[ch]$/.test(entry.name) || entry.name === "build.sh"))
    .map((entry) => join(entry.parentPath, entry.name).slice(guestDirectory.length + 1))
    .filter((path) => !path.split("/").some((part) => part === "test" || part === "build"))
    .sort((one, two) => Buffer.compare(Buffer.from(`./${one}`), Buffer.from(`./${two}`)));
  const hash = createHash("sha256");
  for (const path of sources) hash.update(await readFile(join(guestDirectory, path)));
  return hash.digest("hex").slice(0, 16);
}

async function makeInitramfs(agent: Uint8Array, modulesDirectory: string): Promise<Buffer> {
  const modules = await readModules(modulesDirectory, MODULES);
  const balloon = (await readModules(modulesDirectory, [BALLOON_MODULE])).get(BALLOON_MODULE);
  const entries: ArchiveEntry[] = [
    { name: "init", mode: PROGRAM_MODE, data: agent },
    { name: "modules", mode: DIRECTORY_MODE },
  ];
  for (const [name, data] of modules) entries.push({ name: `modules/${name}.ko`, mode: FILE_MODE, data });
  const list = [...modules.keys()].map((name) => `/modules/${name}.ko\n`).join("");
  entries.push({ name: "modules.list", mode: FILE_MODE, data: Buffer.from(list) });
  entries.push({ name: "balloon.ko", mode: FILE_MODE, data: balloon ?? Buffer.alloc(0) });
  return writeCpio(entries);
}
