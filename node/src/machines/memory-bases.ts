/**
 * The files from which machines' kept memories differ: templates of this node, and files that came with
 * machines from others.
 *
 * A memory is valid only on a file with exactly the content of its base. A template is a boot of this node,
 * so no two nodes have the same one: a base moves with the first machine that needs it. It is stored in the
 * machine's directory, and later machines with the same base get another name of the same file.
 *
 * Always: such a file is read-only for all, and its content is never written again. It is gone with its last
 * machine.
 */
import { link, readdir, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import type { MovedRoot } from "@flotilla/contract/link/moves";
import type { DriverMemory } from "../driver/driver.ts";
import { ContentHashes } from "../images/content-hashes.ts";
import { memoryBasePathOf } from "./paths.ts";

export interface MemoryBasesOptions {
  /** null: only files of machines may be bases. */
  readonly memory: Pick<DriverMemory, "bases"> | null;
  readonly machinesDirectory: string;
}

export class MemoryBases {
  readonly #options: MemoryBasesOptions;
  readonly #hashes = new ContentHashes();

  constructor(options: MemoryBasesOptions) {
    this.#options = options;
  }

  /** What a move must know of a base. `hasContent`: with its hash, which is computed once for each file. */
  async describe(
    path: string,
    { hasContent, signal }: { readonly hasContent: boolean; readonly signal: AbortSignal },
  ): Promise<MovedRoot> {
    const { blocks, size } = await stat(path);
    return { bytes: blocks * 512, size, sha256: hasContent ? await this.#hashes.of(path, signal) : null };
  }

  /** Gives an equal file of this node a second name. Resolves with whether there is one. */
  async linkEqual(base: MovedRoot, path: string): Promise<boolean> {
    for (const candidate of await this.#candidates()) {
      const found = await stat(candidate).catch(() => null);
      if (found?.size !== base.size) continue;
      try {
        if ((await this.#hashes.of(candidate)) !== base.sha256) continue;
        await rm(path, { force: true });
        await link(candidate, path);
        return true;
      } catch {
        // It was removed meanwhile, or its disk has an error there: the machine that comes has its own.
      }
    }
    return false;
  }

  async #candidates(): Promise<readonly string[]> {
    const { memory, machinesDirectory } = this.#options;
    const machines = await readdir(machinesDirectory);
    const ofMachines = machines.map((name) => memoryBasePathOf(join(machinesDirectory, name)));
    return [...((await memory?.bases()) ?? []), ...ofMachines];
  }
}
