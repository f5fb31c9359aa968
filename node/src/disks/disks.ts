/**
 * Machines' disks: for each a sparse file with what it wrote, on top of the image that all machines of it share.
 *
 * Owns the file at `diskPath` while it is made; afterwards only the machine's VMM writes it. Always: the file has its
 * name only when it is complete and on the disk. A crash in the middle leaves `<diskPath>.new`, which the next attempt
 * replaces. The guest grows the file system to the disk's size when it is configured.
 *
 * A VMM is told the files below a disk on its command line; that the disk's header names the image, by its path from
 * the disk, is for people with `qemu-img info`, and so that a data directory can be moved.
 */
import { createHash, randomBytes } from "node:crypto";
import { chmod, chown, copyFile, open, rename, rm, statfs } from "node:fs/promises";
import { dirname, join, relative } from "node:path";
import { messageOf } from "@flotilla/base/errors";
import { runTool } from "../host/out-of-memory.ts";
import type { RootFile } from "../images/images.ts";

export const GIB = 2 ** 30;
/** QEMU counts in sectors. */
const SECTOR_BYTES = 512;
/** Machines' disks grow without being asked. So that the database keeps room beside them, none is begun on a disk this full. */
const FREE_BYTES_MIN = 512 * 2 ** 20;
const FREE_SHARE_MIN = 0.025;

/** Makes the writable disk of a machine. */
export interface Disks {
  /** A file at `diskPath` on top of an image's file system, owned by `uid`. After a crash in the middle the path may hold anything. */
  make(request: {
    readonly diskPath: string;
    readonly root: RootFile;
    readonly diskGb: number;
    readonly uid: number;
  }): Promise<void>;
  /**
   * The digest of the image that a disk was made from, as the disk's own header says; null when it does not say. The
   * header may have been written by a hostile VMM: what it names is looked for among the node's images and nowhere else.
   */
  digestOf(diskPath: string): Promise<string | null>;
}

/** At least as large as what is on it. */
export function diskBytes(diskGb: number, rootBytes: number): number {
  return Math.ceil(Math.max(diskGb * GIB, rootBytes) / SECTOR_BYTES) * SECTOR_BYTES;
}

/** Whether the file system of the directory has room only for what is there: disks that grow, and the database. */
export async function isNearlyFull(directory: string): Promise<boolean> {
  const { blocks, bavail, bsize } = await statfs(directory);
  return bavail * bsize < Math.min(FREE_BYTES_MIN, blocks * bsize * FREE_SHARE_MIN);
}

export const qcow2Disks: Disks = {
  async make({ diskPath, root, diskGb, uid }) {
    const directory = dirname(diskPath);
    if (await isNearlyFull(directory)) {
      throw new Error("the machine's disk can not be made: the node's disk is full; remove machines or images");
    }
    const unfinished = `${diskPath}.new`;
    try {
      await copyEmpty({ root, bytes: diskBytes(diskGb, root.rootBytes), directory, path: unfinished });
      await chmod(unfinished, 0o600);
      if (process.getuid?.() === 0) await chown(unfinished, uid, uid);
      await flush(unfinished);
      await rename(unfinished, diskPath);
    } catch (error) {
      await rm(unfinished, { force: true });
      throw new Error(`the machine's disk can not be made: ${reason(error)}`);
    }
  },
  async digestOf(diskPath) {
    await using file = await open(diskPath, "r");
    const { buffer, bytesRead } = await file.read(Buffer.alloc(HEADER_BYTES), 0, HEADER_BYTES, 0);
    return digestInHeader(buffer.subarray(0, bytesRead));
  },
};

/** More than the header of a disk that was made here. */
const HEADER_BYTES = 4096;
const QCOW2_MAGIC = 0x51_46_49_fb;

/** Of a qcow2 file's first bytes: which image the path of its backing file leads to. Pure. */
export function digestInHeader(header: Buffer): string | null {
  if (header.byteLength < 20 || header.readUInt32BE(0) !== QCOW2_MAGIC) return null;
  const at = header.readBigUInt64BE(8);
  const length = header.readUInt32BE(16);
  if (at + BigInt(length) > BigInt(header.byteLength)) return null;
  const backing = header.toString("utf8", Number(at), Number(at) + length);
  const hex = /\/sha256-([0-9a-f]{64})\/root[^/]*$/.exec(backing)?.[1];
  return hex === undefined ? null : `sha256:${hex}`;
}

interface Empty {
  readonly root: RootFile;
  readonly bytes: number;
  /** Where the disk will stand: its header names the image by the path from there. */
  readonly directory: string;
  readonly path: string;
}

/**
 * An empty disk is the same file for all machines of an image and a size: it is made once, beside the image and gone with
 * it, and then copied, which takes 1 ms where qemu-img takes 20.
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
  await flush(unfinished);
  await rename(unfinished, empty);
}

/** `-u` among the arguments: the image is ours and known to be sound, so it need not be opened. */
async function runQemuImg(argv: readonly string[]): Promise<void> {
  await runTool("qemu-img", argv);
}

async function flush(path: string): Promise<void> {
  const handle = await open(path, "r+");
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

function reason(error: unknown): string {
  const { code, stderr } = error as { readonly code?: unknown; readonly stderr?: unknown };
  if (code === "ENOENT") return "qemu-img is not installed; run scripts/setup";
  const words = typeof stderr === "string" && stderr.trim() !== "" ? stderr.trim() : messageOf(error);
  const isFull = code === "ENOSPC" || code === "EDQUOT" || /No space left|Disk quota/.test(words);
  return isFull ? "the node's disk is full; remove machines or images" : (words.split("\n").at(-1) ?? words);
}
