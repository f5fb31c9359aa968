/**
 * Which program a VMM runs: a hash of the content of QEMU, its libraries, and our launcher and library
 * (docs/decisions/0065-new-vmms.md).
 *
 * Always: a file that is installed again with the same content changes nothing. Files are read again only
 * when one of them has another inode, size or time.
 */
import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { stat } from "node:fs/promises";
import { join } from "node:path";
import { pipeline } from "node:stream/promises";
import { type GuestFiles, JAIL_NAME, VMM_LIBRARY_NAME } from "./guest-files.ts";
import { findRuntimeFiles, type RuntimeFiles } from "./runtime-files.ts";

/** Increment when running VMMs are to be replaced because they were started in another way. */
const RECIPE = 1;

export class InstalledProgram {
  readonly #ours: readonly string[];
  #found: { readonly paths: readonly string[]; readonly stamp: string; readonly hash: string };

  private constructor(ours: readonly string[], paths: readonly string[], known: { stamp: string; hash: string }) {
    this.#ours = ours;
    this.#found = { paths, ...known };
  }

  /** Rejects when a file is missing. */
  static async read({ files }: RuntimeFiles, { directory }: GuestFiles): Promise<InstalledProgram> {
    const ours = [JAIL_NAME, VMM_LIBRARY_NAME].map((name) => join(directory, name));
    const paths = [...files, ...ours];
    return new InstalledProgram(ours, paths, await readAll(paths));
  }

  /** As last read. */
  get hash(): string {
    return this.#found.hash;
  }

  /** What is installed now. Rejects while it is being replaced. */
  async now(): Promise<string> {
    const { paths, stamp } = this.#found;
    if ((await stampOf(paths).catch(() => "")) === stamp) return this.hash;
    // The new program may have other libraries.
    const { files } = await findRuntimeFiles();
    const all = [...files, ...this.#ours];
    this.#found = { paths: all, ...(await readAll(all)) };
    return this.hash;
  }
}

async function readAll(paths: readonly string[]): Promise<{ readonly stamp: string; readonly hash: string }> {
  const stamp = await stampOf(paths);
  const hash = createHash("sha256").update(`${RECIPE}`);
  for (const path of paths) {
    const content = createHash("sha256");
    await pipeline(createReadStream(path), content);
    hash.update(content.digest());
  }
  if ((await stampOf(paths)) !== stamp) throw new Error("the VMM's program is being replaced; try again");
  return { stamp, hash: hash.digest("hex").slice(0, 16) };
}

/** Changes when a file is written to or replaced. */
async function stampOf(paths: readonly string[]): Promise<string> {
  const stats = await Promise.all(paths.map((path) => stat(path, { bigint: true })));
  return stats.map(({ ino, size, mtimeNs }) => `${ino} ${size} ${mtimeNs}`).join();
}
