/**
 * The destination of the log's lines: a file descriptor, written to without blocking requests.
 *
 * Always:
 * - Lines are written in order. Those of one turn of the event loop, or that arrive during a write, are
 *   written together.
 * - A line that cannot be written (a full disk, a closed terminal), or for which WAITING_MAX has no room
 *   because the reader is slow, is dropped. So a log that cannot be written neither fills the memory nor
 *   keeps the process from ending.
 * - When the process ends, what waits is written, for at most LAST_MS if the reader is slow.
 *
 * It replaces pino's own destination, which keeps every line that it could not write, and at the end of the
 * process tries again forever.
 */
import { write, writeSync } from "node:fs";
import { systemClock } from "@flotilla/base/clock";

/** Characters. */
const WAITING_MAX = 4 * 1024 ** 2;
const RETRY_MS = 20;
const LAST_MS = 1_000;

export class LogOutput {
  readonly #fd: number;
  #waiting = "";
  #isWriting = false;
  #isFlushedAtExit = false;

  constructor(fd: number) {
    this.#fd = fd;
  }

  write(line: string): void {
    if (!this.#isFlushedAtExit) process.once("exit", () => this.#writeLast());
    this.#isFlushedAtExit = true;
    if (this.#waiting.length + line.length > WAITING_MAX) return;
    this.#waiting += line;
    if (this.#isWriting) return;
    this.#isWriting = true;
    setImmediate(() => this.#writeWaiting());
  }

  #writeWaiting(): void {
    const bytes = Buffer.from(this.#waiting);
    this.#waiting = "";
    this.#isWriting = bytes.length > 0;
    if (this.#isWriting) this.#writeRest(bytes);
  }

  #writeRest(bytes: Buffer): void {
    write(this.#fd, bytes, (error, count) => {
      // A pipe whose reader is slow: its other end may have made it non-blocking.
      if (error?.code === "EAGAIN") systemClock.timer(RETRY_MS, () => this.#writeRest(bytes));
      else if (error === null && count < bytes.length) this.#writeRest(bytes.subarray(count));
      else this.#writeWaiting();
    });
  }

  #writeLast(): void {
    const deadline = systemClock.monotonic() + LAST_MS;
    let bytes = Buffer.from(this.#waiting);
    while (bytes.length > 0) {
      try {
        bytes = bytes.subarray(writeSync(this.#fd, bytes));
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== "EAGAIN" || systemClock.monotonic() > deadline) return;
      }
    }
  }
}
