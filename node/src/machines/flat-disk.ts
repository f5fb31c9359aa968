/**
 * The disk of a machine at rest in one file on top of its image alone, without its layers: what a move sends.
 *
 * Owns the directory `flat` in the machine's directory. Always: the machine's own disk does not change, and a
 * file is given only for the disk from which it was made. A crash leaves the directory, which the next agent
 * removes.
 */
import { mkdir, rm, stat } from "node:fs/promises";
import { dirname, join } from "node:path";
import { bytesForNewDisks, type Disks, type FlattenRequest } from "../disks/disks.ts";
import { DiskFull } from "../images/space.ts";
import { identityOf } from "./disk-changes.ts";
import type { Journal } from "./journal.ts";
import type { MachineDeps } from "./machine-deps.ts";
import type { MachineDisk } from "./machine-disk.ts";
import { diskPathOf } from "./paths.ts";

/** What is read of a machine. */
interface Flattened {
  readonly directory: string;
  readonly journal: Journal;
  readonly disk: Pick<MachineDisk, "root">;
  readonly deps: Pick<MachineDeps, "disks" | "points">;
}

interface Made {
  readonly identity: string | null;
  readonly directory: string;
  readonly path: Promise<string>;
}

export class FlatDisk {
  #made: Made | null = null;

  /** The file of a machine at rest. It is made unless there is one. */
  async of(machine: Flattened): Promise<string> {
    const identity = await identityOf(diskPathOf(machine.directory));
    if (this.#made?.identity !== identity) {
      const directory = join(machine.directory, "flat");
      const before = this.forget();
      const path = before.then(() => make(machine, directory));
      this.#made = { identity, directory, path };
      const made = this.#made;
      path.catch(() => {
        if (this.#made === made) this.#made = null;
      });
    }
    return await this.#made.path;
  }

  /** The file that was made of the disk as it is; null: there is none. */
  async find(diskPath: string): Promise<string | null> {
    const made = this.#made;
    return made === null || made.identity !== (await identityOf(diskPath)) ? null : await made.path;
  }

  async forget(): Promise<void> {
    const made = this.#made;
    this.#made = null;
    await made?.path.catch(() => undefined);
    if (made !== null) await rm(made.directory, { recursive: true, force: true });
  }
}

async function make(machine: Flattened, directory: string): Promise<string> {
  const { deps, disk, journal } = machine;
  const root = await disk.root(journal.spec, journal);
  const layerPaths = (journal.layers ?? []).map((layer) => deps.points.layerPathOf(layer));
  return await flatten(deps.disks, { diskPath: diskPathOf(machine.directory), layerPaths, root, directory });
}

/** Makes a disk in one file, in a directory that is made again. Throws DiskFull. */
export async function flatten(disks: Disks, request: FlattenRequest): Promise<string> {
  const { diskPath, directory, layerPaths } = request;
  const sizes = await Promise.all([diskPath, ...layerPaths].map(async (path) => (await stat(path)).blocks * 512));
  const needed = sizes.reduce((sum, bytes) => sum + bytes, 0);
  if ((await bytesForNewDisks(dirname(directory))) < needed)
    throw new DiskFull("a machine's disk has no room beside itself without its layers");
  await rm(directory, { recursive: true, force: true });
  await mkdir(directory, { mode: 0o700 });
  return await disks.flatten(request);
}
