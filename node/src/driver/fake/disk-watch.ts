/**
 * What was written to a fake machine's disk, by whom ever: compares the file with what it was.
 */
import { readFile } from "node:fs/promises";
import { BLOCK_BYTES } from "@flotilla/contract/link/blocks";
import type { Extent } from "../../images/blocks.ts";
import type { DiskWatch } from "../driver.ts";

export class FakeDiskWatch implements DiskWatch {
  readonly #path: string;
  #before: Buffer;

  private constructor(path: string, before: Buffer) {
    this.#path = path;
    this.#before = before;
  }

  static async begin(path: string): Promise<FakeDiskWatch> {
    return new FakeDiskWatch(path, await readFile(path));
  }

  async take(): Promise<readonly Extent[]> {
    const now = await readFile(this.#path);
    const before = this.#before;
    this.#before = now;
    const changed: Extent[] = [];
    for (let start = 0; start < now.byteLength; start += BLOCK_BYTES) {
      const end = Math.min(start + BLOCK_BYTES, now.byteLength);
      if (!now.subarray(start, end).equals(before.subarray(start, end))) changed.push({ start, end });
    }
    return changed;
  }

  takeLast(): Promise<readonly Extent[]> {
    return this.take();
  }

  end(): Promise<void> {
    return Promise.resolve();
  }
}
