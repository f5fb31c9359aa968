/**
 * The workload of a fake guest: a script, whose output is received like a real one's.
 *
 * FAKE: lives in this process. A node agent that reconnects to a guest finds that its workload ran, and gets
 * no more output of it. Always: at most the window is unacknowledged; the script waits meanwhile.
 */
import { WORKLOAD_WINDOW_BYTES } from "@flotilla/contract/guest/frame";
import type { GuestWorkload, GuestWorkloadRequest } from "../../guest/guest.ts";

type Write = (data: string | Uint8Array) => Promise<void> | undefined;

export class FakeWorkload implements GuestWorkload {
  readonly started: Promise<void> = Promise.resolve();
  readonly #request: GuestWorkloadRequest;
  #offset: number;
  #usedBytes = 0;
  #isDone = false;
  #resume: (() => void) | null = null;

  constructor(request: GuestWorkloadRequest) {
    this.#request = request;
    this.#offset = request.offset;
  }

  /** Runs the program to its end, unless the guest ends first. */
  async run(program: (write: Write) => Promise<number> | number): Promise<void> {
    const exitCode = await Promise.resolve(program((data) => this.#write(Buffer.from(data)))).catch(() => 1);
    if (!this.#isDone) this.#request.onEnd(exitCode);
  }

  /** The channel is lost: output is discarded. */
  lose(): void {
    this.#isDone = true;
    this.#resume?.();
  }

  acknowledge(_offset: number, bytes: number): void {
    this.#usedBytes -= bytes;
    this.#resume?.();
  }

  async #write(bytes: Buffer): Promise<void> {
    for (let at = 0; at < bytes.byteLength && !this.#isDone; ) {
      const piece = bytes.subarray(at, at + WORKLOAD_WINDOW_BYTES - this.#usedBytes);
      if (piece.byteLength === 0) {
        await new Promise<void>((resolve) => {
          this.#resume = resolve;
        });
        continue;
      }
      at += piece.byteLength;
      this.#usedBytes += piece.byteLength;
      this.#offset += piece.byteLength;
      this.#request.onOutput(this.#offset - piece.byteLength, piece);
    }
  }
}
