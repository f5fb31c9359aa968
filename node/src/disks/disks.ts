/**
 * Machines' disks: one sparse file per machine with the blocks it wrote, on top of the image shared by its
 * machines.
 *
 * Owns the file at `diskPath` while it is being made; afterwards only the machine's VMM writes it. Always:
 * the file gets its name only when it is complete and synced. A crash leaves `<diskPath>.new`, which the next
 * attempt replaces. The guest grows the file system to the disk's size when it is configured.
 *
 * A VMM gets a disk's backing files on its command line. The header also names the image, by its path
 * relative to the disk: for people who use `qemu-img info`, and so that a data directory can be moved.
 */
import { createHash, randomBytes } from "node:crypto";
import { chmod, chown, copyFile, mkdir, open, rename, rm, statfs } from "node:fs/promises";
import { dirname, join, relative } from "node:path";
import type { Clock } from "@flotilla/base/clock";
import { messageOf } from "@flotilla/base/errors";
import { runTool } from "../host/out-of-memory.ts";
import { syncToDisk } from "../host/sync-to-disk.ts";
import { requireLeft, runConfined } from "../images/confine.ts";
import type { RootFile } from "../images/images.ts";

export const GIB = 2 ** 30;
const FLATTEN_MS_MAX = 10 * 60_000;
/** QEMU counts in sectors. */
const SECTOR_BYTES = 512;
/**
 * Disks grow by themselves. To keep space for the database, no new disk is made on a file system this full.
 */
const FREE_BYTES_MIN = 512 * 2 ** 20;
const FREE_SHARE_MIN = 0.025;
const FREE_SHARE_RESUMED = 0.075;

/** Makes the writable disk of a machine. */
export interface Disks {
  /**
   * Makes a file at `diskPath` on top of an image's file system, owned by `uid`. Replaces what a crash left
   * there.
   */
  make(request: {
    readonly diskPath: string;
    readonly root: RootFile;
    readonly diskGb: number;
    readonly uid: number;
  }): Promise<void>;
  /**
   * The digest of the image that a disk was made from, from the disk's header; null if it names none. A
   * hostile VMM may have written the header, so the digest is only looked up among the node's images.
   */
  digestOf(diskPath: string): Promise<string | null>;
  /**
   * The name of the file that a disk is based on, beside the image's others; null if the header names none.
   */
  rootNameOf(diskPath: string): Promise<string | null>;
  /**
   * Makes the header of a disk that came from another node name its base here. `directory`: where the disk
   * will be. The VMM gets its files on the command line, so a header that is not one of ours stays as it is.
   */
  rebase(request: { readonly diskPath: string; readonly directory: string; readonly rootPath: string }): Promise<void>;
  /**
   * Makes a disk with the content of one that is on top of layers, but on top of the image's file alone. Only
   * reads both. `directory`: an empty one, which has it then. Resolves with its path.
   */
  flatten(request: FlattenRequest): Promise<string>;
  /**
   * Writes a part of a disk to a sparse file without a format. Only reads the disk, and keeps no VMM from it.
   * Resolves with the file's path, which is below `directory`.
   */
  readPart(request: ReadPartRequest): Promise<string>;
}

export interface ReadPartRequest extends FlattenRequest {
  /** The size that the disk is known to have. The file may have another one when a VMM has changed that. */
  readonly diskBytes: number;
  /** In bytes; null: all of the disk, which takes much less time for each of its bytes that is a zero. */
  readonly part: { readonly from: number; readonly bytes: number } | null;
  readonly signal: AbortSignal;
}

export interface FlattenRequest {
  readonly diskPath: string;
  /** Nearest first. */
  readonly layerPaths: readonly string[];
  readonly root: RootFile;
  readonly directory: string;
}

/** The size in bytes: at least that of the image. */
export function diskBytes(diskGb: number, rootBytes: number): number {
  return Math.ceil(Math.max(diskGb * GIB, rootBytes) / SECTOR_BYTES) * SECTOR_BYTES;
}

/**
 * What new disks, and those that arrive from other nodes, may use; negative when the rest is for existing
 * disks, which grow, and the database.
 */
export async function bytesForNewDisks(directory: string): Promise<number> {
  const { blocks, bavail, bsize } = await statfs(directory);
  return bavail * bsize - Math.min(FREE_BYTES_MIN, blocks * bsize * FREE_SHARE_MIN);
}

/**
 * Whether a machine that a full disk has paused may write again. The database's reserve, 256 MB or 5 %
 * (embedded-postgres/disk-reserve.ts of the server), is released meanwhile: what it leaves is for deleting
 * machines and images, not for a machine.
 */
export async function mayGrowAgain(directory: string): Promise<boolean> {
  const { blocks, bavail, bsize } = await statfs(directory);
  return bavail * bsize >= resumeBytes(blocks * bsize);
}

/** What must be free on a file system of this size before machines write again. Pure. */
export const resumeBytes = (bytes: number): number => Math.min(FREE_BYTES_MIN, bytes * FREE_SHARE_RESUMED);

export interface Qcow2DisksOptions {
  /** The program of node/native/jail.c. */
  readonly launcher: string;
  readonly clock: Clock;
}

export function openQcow2Disks(options: Qcow2DisksOptions): Disks {
  return {
    ...qcow2Disks,
    flatten: (request) => flatten(request, options),
    readPart: (request) => readPart(request, options),
  };
}

/** What needs no program on hostile input. */
export const qcow2Disks: Omit<Disks, "flatten" | "readPart"> = {
  async make({ diskPath, root, diskGb, uid }) {
    const directory = dirname(diskPath);
    if ((await bytesForNewDisks(directory)) < 0) {
      throw new Error("the machine's disk cannot be created: the node's disk is full; remove machines or images");
    }
    const unfinished = `${diskPath}.new`;
    try {
      await copyEmpty({ root, bytes: diskBytes(diskGb, root.rootBytes), directory, path: unfinished });
      await chmod(unfinished, 0o600);
      if (process.getuid?.() === 0) await chown(unfinished, uid, uid);
      await syncToDisk(unfinished);
      await rename(unfinished, diskPath);
    } catch (error) {
      await rm(unfinished, { force: true });
      throw new Error(`the machine's disk cannot be created: ${reason(error)}`);
    }
  },
  async digestOf(diskPath) {
    return digestInHeader(await headerOf(diskPath));
  },
  async rootNameOf(diskPath) {
    const backing = backingInHeader(await headerOf(diskPath));
    return backing === null ? null : (ROOT_NAME.exec(backing)?.[0].slice(1) ?? null);
  },
  async rebase({ diskPath, directory, rootPath }) {
    const backing = Buffer.from(relative(directory, rootPath));
    const header = await headerOf(diskPath);
    if (backingInHeader(header) === null) return;
    const at = header.readBigUInt64BE(8);
    if (at + BigInt(backing.byteLength) > BigInt(HEADER_BYTES)) return;
    const length = Buffer.alloc(4);
    length.writeUInt32BE(backing.byteLength);
    await using file = await open(diskPath, "r+");
    await file.write(backing, 0, backing.byteLength, Number(at));
    await file.write(length, 0, length.byteLength, 16);
    await file.sync();
  },
};

/** A VMM may have written anything to a disk, so the program that reads it sees only these files. */
async function flatten(
  { diskPath, layerPaths, root, directory }: FlattenRequest,
  { launcher, clock }: Qcow2DisksOptions,
): Promise<string> {
  const files = join(directory, "files");
  const made = join(files, "disk");
  await mkdir(files);
  await runTool("cp", ["--sparse=always", "--reflink=auto", diskPath, made]);
  if (process.getuid?.() === 0) await chown(made, 0, 0);
  await chmod(made, 0o600);
  const layers = namedLayers(layerPaths);
  const source = chainOf("/files/disk", layers);
  await runConfined({
    // A layer belongs to the user of the VMM that wrote it, if the point that it was for was not finished.
    ...{ launcher, directory, clock, capabilities: ["dac_override"], timeoutMs: FLATTEN_MS_MAX },
    inputs: { image: root.rootPath, ...Object.fromEntries(layers) },
    argv: ["qemu-img", "rebase", "-q", "-b", "/input/image", "-F", "raw", `json:${JSON.stringify(source)}`],
    signal: new AbortController().signal,
  });
  await requireLeft("file", made);
  await syncToDisk(made);
  return made;
}

/** As `flatten`, what reads the disk sees only these files. */
async function readPart(
  { diskPath, layerPaths, root, directory, part, signal }: ReadPartRequest,
  { launcher, clock }: Qcow2DisksOptions,
): Promise<string> {
  const made = join(directory, "files", "part");
  const layers = namedLayers(layerPaths);
  const whole = chainOf("/input/disk", layers);
  const source = part === null ? whole : { driver: "raw", offset: part.from, size: part.bytes, file: whole };
  // With `-U` it takes no lock that would keep a VMM from the disk.
  const argv = ["qemu-img", "convert", "-U", "-q", "-O", "raw", "-S", "4k", `json:${JSON.stringify(source)}`];
  await runConfined({
    ...{ launcher, directory, clock, capabilities: ["dac_override"], timeoutMs: FLATTEN_MS_MAX, signal },
    inputs: { image: root.rootPath, disk: diskPath, ...Object.fromEntries(layers) },
    argv: [...argv, "/files/part"],
  });
  await requireLeft("file", made);
  return made;
}

const namedLayers = (layerPaths: readonly string[]): readonly (readonly [string, string])[] =>
  layerPaths.map((path, index) => [`layer-${index}`, path] as const);

/** A disk on top of layers and the image, as confined programs name them: what headers say is not used. */
function chainOf(disk: string, layers: readonly (readonly [string, string])[]): object {
  const image = { driver: "raw", "read-only": true, file: { driver: "file", filename: "/input/image" } };
  return [disk, ...layers.map(([name]) => `/input/${name}`)].reduceRight<object>(
    (backing, filename) => ({ driver: "qcow2", file: { driver: "file", filename }, backing }),
    image,
  );
}

async function headerOf(diskPath: string): Promise<Buffer> {
  await using file = await open(diskPath, "r");
  const { buffer, bytesRead } = await file.read(Buffer.alloc(HEADER_BYTES), 0, HEADER_BYTES, 0);
  return buffer.subarray(0, bytesRead);
}

/** Larger than the header of a disk made here. */
const HEADER_BYTES = 4096;
const QCOW2_MAGIC = 0x51_46_49_fb;

/** The end of the path of a file that disks are based on. */
const ROOT_NAME = /\/root(-[0-9a-z]{1,40})?\.ext4$/;

/** The image's digest from the first bytes of a qcow2 file: part of the backing file's path. Pure. */
export function digestInHeader(header: Buffer): string | null {
  const hex = /\/sha256-([0-9a-f]{64})\/root[^/]*$/.exec(backingInHeader(header) ?? "")?.[1];
  return hex === undefined ? null : `sha256:${hex}`;
}

function backingInHeader(header: Buffer): string | null {
  if (header.byteLength < 20 || header.readUInt32BE(0) !== QCOW2_MAGIC) return null;
  const at = header.readBigUInt64BE(8);
  const length = header.readUInt32BE(16);
  if (at === 0n || at + BigInt(length) > BigInt(header.byteLength)) return null;
  return header.toString("utf8", Number(at), Number(at) + length);
}

interface Empty {
  readonly root: RootFile;
  readonly bytes: number;
  /** The disk's final directory: its header names the image relative to it. */
  readonly directory: string;
  readonly path: string;
}

/**
 * An empty disk is the same file for all machines with the same image and size. It is made once, stored
 * beside the image, removed with it, and then copied, which takes 1 ms where qemu-img takes 20.
 */
async function copyEmpty({ root, bytes, directory, path }: Empty): Promise<void> {
  const backing = relative(directory, root.rootPath);
  const name = createHash("sha256").update(`${bytes} ${backing}`).digest("hex").slice(0, 16);
  const empty = join(dirname(root.rootPath), `empty-${name}.qcow2`);
  try {
    return await copyFile(empty, path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
  }
  await rm(path, { force: true });
  await runQemuImg(["create", "-q", "-f", "qcow2", "-u", "-b", backing, "-F", "raw", path, `${bytes}`]);
  const unfinished = `${empty}.${randomBytes(4).toString("hex")}`;
  await copyFile(path, unfinished);
  await syncToDisk(unfinished);
  await rename(unfinished, empty);
}

/** With `-u` qemu-img does not open the image, which is ours and known to be valid. */
async function runQemuImg(argv: readonly string[]): Promise<void> {
  await runTool("qemu-img", argv);
}

function reason(error: unknown): string {
  const { code, stderr } = error as { readonly code?: unknown; readonly stderr?: unknown };
  if (code === "ENOENT") return "qemu-img is not installed; run scripts/setup";
  const text = typeof stderr === "string" && stderr.trim() !== "" ? stderr.trim() : messageOf(error);
  const isFull = code === "ENOSPC" || code === "EDQUOT" || /No space left|Disk quota/.test(text);
  return isFull ? "the node's disk is full; remove machines or images" : (text.split("\n").at(-1) ?? text);
}
