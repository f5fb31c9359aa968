/**
 * Templates: saved VMs with a booted guest, so that a machine can start without booting. One for each size,
 * whose guest is unconfigured, and one for each image that is used often, whose guest has mounted a new disk
 * of it (docs/decisions/0009-templates.md).
 *
 * Owns `<node directory>/templates/<key>/` with `memory` (the guest's RAM, sparse), `state` (its devices),
 * `disk` (with an image) and `template.json`. The key covers everything a template depends on: kernel, agent
 * and command line (by the guest files' key and RECIPE), QEMU's version, accelerator, clock rate, size; with
 * KVM also the host's processor and kernel; with an image its file system and the disk's size.
 *
 * Always:
 * - A template contains nothing of any machine: its guest has no identity, has read no disk but one that no
 *   machine had, and its random pool is reseeded when a machine is configured (GUEST-PROTOCOL.md, configure).
 * - Memory and disk are of the same moment. A machine gets a copy of the disk, together with the memory or
 *   alone.
 * - A directory gets its name only when it is complete, and is never changed: its files belong to root and
 *   are read-only, also for VMMs (node/native/template-memory.c).
 * - There are at most TEMPLATES_MAX; the least recently used is removed. Templates with other ingredients,
 *   such as from an earlier version, are removed at start. The memory of one that running VMMs have mapped
 *   stays for as long as they do.
 *
 * A crash leaves `<key>.new`, which the next agent removes, and a VMM, which it kills.
 */
import { createHash } from "node:crypto";
import { mkdir, open, readdir, readFile, rename, rm, stat, statfs, utimes } from "node:fs/promises";
import { basename, join } from "node:path";
import { messageOf } from "@flotilla/base/errors";
import type { PreparedDisk } from "../driver.ts";
import type { Accelerator } from "./argv.ts";
import type { Launcher } from "./launcher.ts";
import { findVmms } from "./processes.ts";
import { FACTS_NAME, type Mounting, saveBooted, saveMounted, type Template, type VmSize } from "./save-template.ts";

/** What a template with a disk depends on: the image's file system below the disk, and the disk's size. */
export type MountedDisk = Pick<PreparedDisk, "bytes" | "backingPaths">;

export interface TemplatesOptions {
  readonly launcher: Launcher;
  /** Everything a template depends on, except the size. */
  readonly ingredients: string;
}

/** Increment when the way templates are made changes. */
const RECIPE = 9;
const TEMPLATES_MAX = 8;
const MIB = 2 ** 20;
/** The part of its memory that a guest has touched when it is saved: 4 % measured, doubled. */
const TOUCHED_SHARE = 0.08;
/** Space that is left for machines' disks while a template is made. */
const FREE_MB_KEPT = 256;
/** A template must be this old to be discarded because of a guest's crash. */
const FORGET_AGE_MS_MIN = 60 * 60_000;
/** After a failure no template of the same disk is made for this time. */
const RETRY_MS = 15 * 60_000;
/** A disk with more is still growing in the background when its guest is ready (guest/grow.c). */
const MOUNTED_BYTES_MAX = 256 * 2 ** 30;
/** Offset of the superblock of an ext4 file system. */
const SUPERBLOCK_AT = 1024;
const SUPERBLOCK_BYTES = 1024;

/**
 * What a template depends on besides its size, as one string. Emulated processors differ between hosts only
 * in their clock rate.
 */
export function templateIngredients(facts: {
  readonly qemuVersion: string;
  readonly guestFiles: { readonly key: string };
  readonly accelerator: Accelerator;
  readonly tscKhz: number | null;
  readonly processor: string;
  readonly hasNetwork: boolean;
}): string {
  const { qemuVersion, guestFiles, accelerator, tscKhz, processor, hasNetwork } = facts;
  const visibleProcessor = accelerator === "kvm" ? processor : null;
  return JSON.stringify([qemuVersion, guestFiles.key, accelerator, tscKhz, visibleProcessor, hasNetwork]);
}

/** How a template is made. */
interface Making {
  readonly size: VmSize;
  /** Makes its files in a directory. */
  readonly save: (directory: string) => Promise<void>;
  readonly signal: AbortSignal;
}

/** Part of the name of a template with a disk. */
const MOUNTED = "disk-";
/** End of the name of an incomplete one. */
const NEW = ".new";
/** End of the name of one of which only the memory is left, because VMMs have it mapped. */
const OLD = ".old";
const MEMORY_NAME = "memory";

export class Templates {
  readonly directory: string;
  readonly #launcher: Launcher;
  readonly #ingredients: string;
  /** Templates being made, by key; concurrent callers share them. */
  readonly #making = new Map<string, Promise<Template>>();
  /** Monotonic milliseconds before which no template with this key is made again. */
  readonly #retryAt = new Map<string, number>();

  constructor({ launcher, ingredients }: TemplatesOptions) {
    this.directory = join(launcher.nodeDirectory, "templates");
    this.#launcher = launcher;
    this.#ingredients = ingredients;
  }

  /** Removes templates with other ingredients and what a crash left. Call before any is made. */
  async open(): Promise<void> {
    await mkdir(this.directory, { recursive: true, mode: 0o711 });
    const current = `-${this.format}`;
    for (const name of await readdir(this.directory)) {
      const isUsable = name.endsWith(current) && (await this.#hasImage(name));
      if (!isUsable) await this.#discardIfPossible(name);
    }
  }

  /** What no machine is made from keeps nothing from running. */
  async #discardIfPossible(name: string): Promise<void> {
    await this.#discard(name).catch((error: unknown) => {
      this.#launcher.log.warn({ name, reason: messageOf(error) }, "a template that is not used cannot be removed");
    });
  }

  /**
   * The template of a size; makes it, in seconds, if there is none. Rejects with the reason when that fails
   * or the first caller's signal is aborted; the VMM has ended then.
   */
  async ensure({ cpus, memoryMb }: VmSize, signal: AbortSignal): Promise<Template> {
    const size = { cpus, memoryMb };
    const found = await this.find(size);
    if (found !== undefined) return found;
    const save = (directory: string): Promise<void> =>
      saveBooted({ launcher: this.#launcher, directory, size, signal });
    return this.#share(this.#key(size), { size, save, signal });
  }

  /**
   * The template of a size whose guest has mounted such a disk; makes it in seconds if there is none.
   * Undefined when it cannot be made, which is logged: the template of the size works too. Rejects when the
   * signal is aborted.
   */
  async ensureMounted(
    { cpus, memoryMb }: VmSize,
    mounting: Mounting,
    signal: AbortSignal,
  ): Promise<Template | undefined> {
    const { disk } = mounting;
    const { clock, log } = this.#launcher;
    const size = { cpus, memoryMb };
    const found = await this.findMounted(size, disk);
    if (found !== undefined || disk.bytes > MOUNTED_BYTES_MAX) return found;
    const key = this.#key(size, await diskKey(disk));
    if (clock.monotonic() < (this.#retryAt.get(key) ?? 0)) return undefined;
    try {
      const save = (directory: string): Promise<void> =>
        saveMounted({ launcher: this.#launcher, directory, size, signal }, mounting);
      return await this.#share(key, { size, save, signal });
    } catch (error) {
      signal.throwIfAborted();
      this.#retryAt.set(key, clock.monotonic() + RETRY_MS);
      log.warn({ reason: messageOf(error) }, "an image has no template; its machines mount their disks at each start");
      return undefined;
    }
  }

  /** The template of a size whose guest has mounted such a disk, if it exists. */
  async findMounted(size: VmSize, disk: MountedDisk): Promise<Template | undefined> {
    const path = await this.mountedPathOf(size, disk).catch(() => undefined);
    return path === undefined ? undefined : this.#find(templateIn(path));
  }

  /** The directory of that template, whether or not it exists. Rejects when the image is gone. */
  async mountedPathOf(size: VmSize, disk: MountedDisk): Promise<string> {
    return join(this.directory, this.#key(size, await diskKey(disk)));
  }

  /** Concurrent callers with the same key share one attempt. */
  #share(key: string, making: Making): Promise<Template> {
    const shared = this.#making.get(key) ?? this.#make(key, making).finally(() => this.#making.delete(key));
    this.#making.set(key, shared);
    return shared;
  }

  /** The directory of a size's template, whether or not it exists. */
  pathOf(size: VmSize): string {
    return join(this.directory, this.#key(size));
  }

  /** Identifies what a saved VM depends on besides its size and disk. */
  get format(): string {
    return createHash("sha256").update(`${RECIPE} ${this.#ingredients}`).digest("hex").slice(0, 16);
  }

  /** The memory file with this inode number, if it is that of a template. */
  async memoryWithInode(inode: bigint): Promise<string | null> {
    for (const path of await this.memoryPaths())
      if ((await stat(path, { bigint: true }).catch(() => null))?.ino === inode) return path;
    return null;
  }

  /** The memory files of all templates. One may be removed at any time. */
  async memoryPaths(): Promise<readonly string[]> {
    const names = (await readdir(this.directory)).filter((name) => !name.endsWith(NEW));
    return names.map((name) => templateIn(join(this.directory, name)).memoryPath);
  }

  #key({ cpus, memoryMb }: VmSize, ofDisk?: string): string {
    return `${cpus}x${memoryMb}-${ofDisk === undefined ? "" : `${MOUNTED}${ofDisk}-`}${this.format}`;
  }

  /**
   * The template of a size if it exists or is being made, because a boot of one's own would not be faster.
   */
  async findOrAwait(size: VmSize): Promise<Template | undefined> {
    return (await this.find(size)) ?? this.#making.get(this.#key(size))?.catch(() => undefined);
  }

  /** The template of a size, if it exists. */
  find(size: VmSize): Promise<Template | undefined> {
    return this.#find(templateIn(this.pathOf(size)));
  }

  async #find(template: Template): Promise<Template | undefined> {
    const { memoryPath, statePath, diskPath } = template;
    try {
      const paths = [memoryPath, statePath, ...(diskPath === null ? [] : [diskPath])];
      const files = await Promise.all(paths.map((path) => stat(path)));
      if (files.some(({ size }) => size === 0)) return undefined;
      const now = new Date(this.#launcher.clock.now());
      await utimes(template.directory, now, now);
      return template;
    } catch {
      return undefined;
    }
  }

  /**
   * Removes the templates of a size, except those that are less than an hour old, so that guests cannot cause
   * constant remaking.
   */
  async forget({ cpus, memoryMb }: VmSize): Promise<void> {
    for (const name of await readdir(this.directory)) {
      if (!name.startsWith(`${cpus}x${memoryMb}-`) || name.endsWith(NEW) || name.endsWith(OLD)) continue;
      const directory = join(this.directory, name);
      const made = await stat(join(directory, FACTS_NAME)).catch(() => null);
      if (made === null || this.#launcher.clock.now() - made.mtimeMs < FORGET_AGE_MS_MIN) continue;
      this.#launcher.log.warn({ directory }, "removing a template, because a guest restored from it crashed");
      await this.#discard(name);
    }
  }

  /**
   * No VMM starts from it any more. The memory of running VMMs differs from its memory, which therefore keeps
   * a name until none of them has it: a removed file would use the same space.
   */
  async #discard(name: string): Promise<void> {
    const directory = join(this.directory, name);
    const memory = await stat(join(directory, MEMORY_NAME), { bigint: true }).catch(() => null);
    if (memory === null || name.endsWith(NEW) || !(await isMapped(this.#launcher.nodeDirectory, memory.ino)))
      return await rm(directory, { recursive: true, force: true });
    if (name.endsWith(OLD)) return;
    const kept = `${directory}.${memory.ino}${OLD}`;
    await rename(directory, kept);
    for (const each of await readdir(kept)) if (each !== MEMORY_NAME) await rm(join(kept, each), { force: true });
  }

  async #make(key: string, { size, save, signal }: Making): Promise<Template> {
    await this.#makeRoom(size);
    signal.throwIfAborted();
    const startedAt = this.#launcher.clock.monotonic();
    const template = templateIn(join(this.directory, key));
    const directory = template.directory + NEW;
    await rm(directory, { recursive: true, force: true });
    await mkdir(directory, { mode: 0o700 });
    try {
      await save(directory);
      await rm(template.directory, { recursive: true, force: true });
      await rename(directory, template.directory);
      const seconds = ((this.#launcher.clock.monotonic() - startedAt) / 1000).toFixed(1);
      this.#launcher.log.info({ key, seconds }, "made a template");
      return template;
    } catch (error) {
      await rm(directory, { recursive: true, force: true });
      // After a cancellation a step's own error only describes its effect; report the caller's reason.
      const reason = messageOf(signal.aborted ? signal.reason : error);
      throw new Error(`the template for ${size.cpus} processors and ${size.memoryMb} MB could not be made: ${reason}`);
    }
  }

  /**
   * Whether the image that the template's disk is based on is still on the node; true for one without a disk.
   */
  async #hasImage(name: string): Promise<boolean> {
    if (!name.includes(MOUNTED)) return true;
    try {
      const text = await readFile(join(this.directory, name, FACTS_NAME), "utf8");
      await stat((JSON.parse(text) as { readonly rootPath: string }).rootPath);
      return true;
    } catch {
      return false;
    }
  }

  async #makeRoom(size: VmSize): Promise<void> {
    const names: string[] = [];
    for (const name of await readdir(this.directory)) {
      if (name.endsWith(NEW)) continue;
      if (!name.endsWith(OLD) && (await this.#hasImage(name))) names.push(name);
      else await this.#discardIfPossible(name);
    }
    const byAge = await Promise.all(
      names.map(async (name) => ({ name, at: (await stat(join(this.directory, name))).mtimeMs })),
    );
    byAge.sort((one, two) => two.at - one.at);
    for (const { name } of byAge.slice(TEMPLATES_MAX - 1)) await this.#discard(name);
    const free = await statfs(this.directory);
    const freeMb = Math.floor((free.bavail * free.bsize) / MIB);
    const neededMb = templateSpaceMb(size);
    if (freeMb >= neededMb) return;
    throw new Error(
      `a template of ${size.memoryMb} MB needs ${neededMb} MB of the node's disk, which has ${freeMb} MB left; ` +
        "remove machines or images",
    );
  }
}

/** Space in MB that must be free before a template is made. Pure. */
export function templateSpaceMb({ memoryMb }: Pick<VmSize, "memoryMb">): number {
  return FREE_MB_KEPT + Math.ceil(memoryMb * TOUCHED_SHARE);
}

function templateIn(directory: string): Template {
  return {
    directory,
    memoryPath: join(directory, MEMORY_NAME),
    statePath: join(directory, "state"),
    diskPath: basename(directory).includes(MOUNTED) ? join(directory, "disk") : null,
  };
}

/** Whether a VMM of the node has the file mapped. */
async function isMapped(nodeDirectory: string, inode: bigint): Promise<boolean> {
  const mapping = new RegExp(`^\\S+ \\S+ \\S+ \\S+ ${inode} `, "m");
  for (const { pid } of await findVmms(nodeDirectory))
    if (mapping.test(await readFile(`/proc/${pid}/maps`, "utf8").catch(() => ""))) return true;
  return false;
}

/**
 * Identifies a disk that was never used. The file system's superblock holds its random id and the time it was
 * made: an image that was removed and unpacked again has other blocks in other places. Rejects when the image
 * is gone.
 */
async function diskKey({ bytes, backingPaths }: MountedDisk): Promise<string> {
  const [rootPath = ""] = backingPaths;
  await using file = await open(rootPath, "r");
  const superblock = Buffer.alloc(SUPERBLOCK_BYTES);
  await file.read(superblock, 0, superblock.byteLength, SUPERBLOCK_AT);
  return createHash("sha256").update(`${bytes} ${rootPath} `).update(superblock).digest("hex").slice(0, 16);
}
