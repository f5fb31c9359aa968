/**
 * What a VMM prints: a guest that misuses its devices makes QEMU print as much as it likes.
 *
 * Owns the FIFO `output` in the boot's directory, which is the VMM's standard output and error.
 *
 * Always:
 * - Nothing of it is written to a disk. The pipe holds 64 KB, and this process the last TAIL_BYTES.
 * - A VMM never waits for a reader: what the pipe has no room for is lost (node/native/jail.c), also while no
 *   agent runs.
 * - A VMM that prints more than PRINTED_BYTES_MAX within a minute is reported once.
 *
 * A crash leaves the FIFO, from which the next agent reads on.
 */
import { execFile } from "node:child_process";
import { closeSync, constants, fstatSync, open as openFile } from "node:fs";
import { type FileHandle, open, rm } from "node:fs/promises";
import { Socket } from "node:net";
import { join } from "node:path";
import { promisify } from "node:util";
import type { Clock } from "@flotilla/base/clock";

/** A VMM prints a few lines in its life. */
export const PRINTED_BYTES_MAX = 2 ** 20;
const PERIOD_MS = 60_000;
const TAIL_BYTES = 8_192;
const NAME = "output";

const { O_RDONLY, O_RDWR, O_NONBLOCK, O_NOFOLLOW } = constants;

export class VmmOutput {
  /** Resolves with a number of bytes when more were printed than may be. */
  readonly excess: Promise<number>;
  /** Resolves when everything was read: no process has the FIFO open any more, or it is closed here. */
  readonly ended: Promise<void>;
  readonly #socket: Socket;
  readonly #clock: Pick<Clock, "monotonic">;
  readonly #onExcess: (bytes: number) => void;
  #tail = Buffer.alloc(0);
  #periodBytes = 0;
  #periodAt: number;

  private constructor(reader: Socket, clock: Pick<Clock, "monotonic">) {
    this.#clock = clock;
    this.#periodAt = clock.monotonic();
    this.#socket = reader;
    const excess = Promise.withResolvers<number>();
    this.excess = excess.promise;
    this.#onExcess = excess.resolve;
    const ended = Promise.withResolvers<void>();
    this.ended = ended.promise;
    reader.on("data", (chunk: Buffer) => this.#take(chunk));
    reader.on("error", () => undefined);
    reader.once("close", ended.resolve);
  }

  /** Makes the FIFO. `writer` is for the VMM; the caller closes it. */
  static async make(
    bootDirectory: string,
    clock: Pick<Clock, "monotonic">,
  ): Promise<{ readonly output: VmmOutput; readonly writer: FileHandle }> {
    const path = join(bootDirectory, NAME);
    // An earlier attempt of the boot may have left one.
    await rm(path, { force: true });
    await promisify(execFile)("mkfifo", ["-m", "600", path]);
    const reader = await openReader(path);
    // Also open for reading, so that the VMM can print when no agent runs.
    const writer = await open(path, O_RDWR | O_NONBLOCK | O_NOFOLLOW).catch(async (error: unknown) => {
      reader.destroy();
      throw error;
    });
    return { output: new VmmOutput(reader, clock), writer };
  }

  /** That of a VMM that runs; null if it has replaced it by something else. */
  static async find(bootDirectory: string, clock: Pick<Clock, "monotonic">): Promise<VmmOutput | null> {
    const reader = await openReader(join(bootDirectory, NAME)).catch(() => null);
    return reader === null ? null : new VmmOutput(reader, clock);
  }

  /** The end of what was printed. */
  get text(): string {
    return this.#tail.toString("utf8");
  }

  close(): void {
    this.#socket.destroy();
  }

  #take(chunk: Buffer): void {
    // A copy, which does not keep the whole chunk.
    this.#tail = Buffer.from(Buffer.concat([this.#tail, chunk]).subarray(-TAIL_BYTES));
    const now = this.#clock.monotonic();
    if (now - this.#periodAt >= PERIOD_MS) {
      this.#periodAt = now;
      this.#periodBytes = 0;
    }
    this.#periodBytes += chunk.byteLength;
    if (this.#periodBytes > PRINTED_BYTES_MAX) this.#onExcess(this.#periodBytes);
  }
}

/** The directory is the VMM's: links are not followed, what is not a FIFO is refused, and nothing waits. */
async function openReader(path: string): Promise<Socket> {
  const fd = await promisify(openFile)(path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW);
  if (!fstatSync(fd).isFIFO()) {
    closeSync(fd);
    throw new Error(`${path} is not a FIFO`);
  }
  const reader = new Socket({ fd, readable: true, writable: false });
  // A VMM outlives this process, and does not keep it alive.
  return reader.unref();
}
