/**
 * Which key each sandbox was last used with, kept in a file over restarts: visitors of ports and of signed
 * addresses bring none.
 *
 * Always:
 * - The file is the user's alone. Each line is an access token, sealed with the gateway's secret: without it
 *   a line says nothing, and lines that it did not seal are passed over.
 * - The sandboxes that were used last are kept, at most SANDBOXES_MAX. What a revoked key opened stays shut.
 * - A file that cannot be read or written costs what it is for, and nothing else: a client connects again.
 *
 * Gateways with the same data directory append to the same file. A crash loses at most the last lines.
 */
import { appendFile, readFile, rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { ownMessageOf } from "@flotilla/base/errors";
import type { Log } from "@flotilla/base/log";
import type { Tokens } from "./tokens.ts";

const NAME = "e2b.sandboxes";
const SANDBOXES_MAX = 10_000;
const MODE = 0o600;

export interface RememberedParts {
  readonly dataDirectory: string;
  readonly tokens: Tokens;
  readonly log: Log;
}

export class Remembered {
  readonly #parts: RememberedParts;
  readonly #path: string;
  readonly #keys = new Map<string, string>();
  #lines = 0;
  #writing: Promise<void> = Promise.resolve();

  private constructor(parts: RememberedParts) {
    this.#parts = parts;
    this.#path = join(parts.dataDirectory, NAME);
  }

  /** What the file has. */
  static async open(parts: RememberedParts): Promise<Remembered> {
    const remembered = new Remembered(parts);
    await remembered.#read();
    return remembered;
  }

  keyOf(sandboxId: string): string | undefined {
    return this.#keys.get(sandboxId);
  }

  /** All of them. */
  sandboxIds(): readonly string[] {
    return [...this.#keys.keys()];
  }

  remember(sandboxId: string, key: string): void {
    if (this.#keys.get(sandboxId) === key) return;
    this.#keep(sandboxId, key);
    this.#lines += 1;
    const isLong = this.#lines > 2 * SANDBOXES_MAX;
    this.#write(isLong ? () => this.#rewrite() : () => this.#append(sandboxId, key));
  }

  forget(sandboxId: string): void {
    this.#keys.delete(sandboxId);
  }

  /** Resolves when everything is written. */
  async close(): Promise<void> {
    await this.#writing;
  }

  async #read(): Promise<void> {
    try {
      const lines = (await readFile(this.#path, "utf8")).split("\n");
      this.#lines = lines.length;
      for (const line of lines) {
        const grant = this.#parts.tokens.open(line);
        if (grant !== null) this.#keep(grant.sandboxId, grant.key);
      }
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ENOENT") this.#report(error);
    }
  }

  #keep(sandboxId: string, key: string): void {
    this.#keys.delete(sandboxId);
    this.#keys.set(sandboxId, key);
    const [oldest] = this.#keys.keys();
    if (this.#keys.size > SANDBOXES_MAX && oldest !== undefined) this.#keys.delete(oldest);
  }

  /** One write at a time. */
  #write(write: () => Promise<void>): void {
    this.#writing = this.#writing.then(write).catch((error: unknown) => this.#report(error));
  }

  #append(sandboxId: string, key: string): Promise<void> {
    return appendFile(this.#path, `${this.#parts.tokens.seal({ key, sandboxId })}\n`, { mode: MODE });
  }

  async #rewrite(): Promise<void> {
    const lines = [...this.#keys].map(([sandboxId, key]) => `${this.#parts.tokens.seal({ key, sandboxId })}\n`);
    const own = `${this.#path}.${process.pid}`;
    await writeFile(own, lines.join(""), { mode: MODE });
    await rename(own, this.#path);
    this.#lines = lines.length;
  }

  #report(error: unknown): void {
    this.#parts.log.warn({ reason: ownMessageOf(error) }, `the gateway cannot use its file ${NAME}`);
  }
}
