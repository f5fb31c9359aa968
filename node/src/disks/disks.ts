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
import { execFile } from "node:child_process";
import { chmod, chown, open, rename, rm, statfs } from "node:fs/promises";
import { dirname, relative } from "node:path";
import { promisify } from "node:util";
import { messageOf } from "../log.ts";
import type { Disks } from "../machines/surroundings.ts";

const GIB = 2 ** 30;
/** QEMU counts in sectors. */
const SECTOR_BYTES = 512;
/** A disk that can not take its own metadata and a little more is not worth making. */
const FREE_BYTES_MIN = 16 * 2 ** 20;

/** At least as large as what is on it. */
export function diskBytes(diskGb: number, rootBytes: number): number {
  return Math.ceil(Math.max(diskGb * GIB, rootBytes) / SECTOR_BYTES) * SECTOR_BYTES;
}

export const qcow2Disks: Disks = {
  async make({ diskPath, image, diskGb, uid }) {
    const directory = dirname(diskPath);
    const free = await statfs(directory);
    if (free.bavail * free.bsize < FREE_BYTES_MIN) {
      throw new Error("the machine's disk can not be made: the node's disk is full; remove machines or images");
    }
    const unfinished = `${diskPath}.new`;
    const size = diskBytes(diskGb, image.rootBytes);
    try {
      await rm(unfinished, { force: true });
      await runQemuImg([
        "create",
        "-q",
        "-f",
        "qcow2",
        "-u",
        ...backing(directory, image.rootPath),
        unfinished,
        `${size}`,
      ]);
      await chmod(unfinished, 0o600);
      if (process.getuid?.() === 0) await chown(unfinished, uid, uid);
      await flush(unfinished);
      await rename(unfinished, diskPath);
    } catch (error) {
      await rm(unfinished, { force: true });
      throw new Error(`the machine's disk can not be made: ${reason(error)}`);
    }
  },
};

/** `-u`: the image is ours and known to be sound, so it need not be opened. */
function backing(directory: string, rootPath: string): readonly string[] {
  return ["-b", relative(directory, rootPath), "-F", "raw"];
}

async function runQemuImg(argv: readonly string[]): Promise<void> {
  await promisify(execFile)("qemu-img", argv);
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
