/**
 * Frames of a node that wait for their delivery, in the order of their arrival.
 *
 * Pure. Always: taking one costs the same however many wait. `shift()` moves all that remain of a long array,
 * and one read of a connection may have 50,000 frames.
 */
import type { LinkFrame } from "@flotilla/contract/link/frames";

export class FrameQueue {
  #frames: LinkFrame[] = [];
  /** The first that was not taken. */
  #at = 0;

  get isEmpty(): boolean {
    return this.#at === this.#frames.length;
  }

  get first(): LinkFrame | undefined {
    return this.#frames[this.#at];
  }

  /** Takes ownership of the list. */
  add(frames: LinkFrame[]): void {
    this.#frames = this.isEmpty ? frames : this.#frames.slice(this.#at).concat(frames);
    this.#at = 0;
  }

  take(): LinkFrame | undefined {
    const { first } = this;
    if (first === undefined) return undefined;
    this.#at += 1;
    if (this.isEmpty) this.clear();
    return first;
  }

  /** What is left of the first one. */
  replaceFirst(frame: LinkFrame): void {
    this.#frames[this.#at] = frame;
  }

  clear(): void {
    this.#frames = [];
    this.#at = 0;
  }
}
