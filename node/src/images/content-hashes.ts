/**
 * The hashes of the content of large files that never change, by the identity of the file.
 *
 * In memory only. Always:
 * - The hash of a file is computed once at a time, for all who ask for it. One that leaves does not end it
 *   for the others; the last one does.
 * - At most HASHES_MAX are remembered, those that were asked for last.
 */
import { stat } from "node:fs/promises";
import { contentHash } from "./blocks.ts";
import { SharedWork } from "./share.ts";

const HASHES_MAX = 256;

export class ContentHashes {
  readonly #known = new Map<string, string>();
  readonly #work = new SharedWork<string>();

  /** As `contentHash`. Rejects with the signal's reason when it is aborted. */
  async of(path: string, signal?: AbortSignal): Promise<string> {
    const { dev, ino, mtimeNs, size } = await stat(path, { bigint: true });
    const key = `${dev} ${ino} ${mtimeNs} ${size}`;
    const hash = this.#known.get(key) ?? (await this.#work.run(key, { signal }, (shared) => contentHash(path, shared)));
    this.#known.delete(key);
    this.#known.set(key, hash);
    const [oldest] = this.#known.keys();
    if (this.#known.size > HASHES_MAX && oldest !== undefined) this.#known.delete(oldest);
    return hash;
  }
}
