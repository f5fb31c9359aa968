/**
 * What the callers over HTTP hold of this process at the same time: answers that are being sent, and memory
 * of bodies.
 *
 * Always:
 * - A key has at most ANSWERS_PER_KEY_MAX answers and BODIES_PER_KEY_BYTES_MAX of bodies, and all of them
 *   BODIES_BYTES_MAX.
 * - Answers of a key that has ended are cut within CHECK_MS, also when nothing is sent.
 */
import type { ServerResponse } from "node:http";
import { type Clock, every } from "@flotilla/base/clock";
import { FlotillaError } from "@flotilla/sdk";
import type { Access } from "./access.ts";

const ANSWERS_PER_KEY_MAX = 64;
const BODIES_PER_KEY_BYTES_MAX = 64 * 1024 * 1024;
const BODIES_BYTES_MAX = 512 * 1024 * 1024;
const CHECK_MS = 15_000;
const READ_MS = 10_000;

interface Holder {
  readonly access: Access;
  readonly answers: Set<ServerResponse>;
  bodyBytes: number;
}

export class Holdings {
  readonly #holders = new Map<string, Holder>();
  #bodyBytes = 0;
  #isChecking = false;

  /** False: the key has too many. It is held until it is closed. */
  addAnswer(access: Access, response: ServerResponse): boolean {
    const holder = this.#holderOf(access);
    if (holder.answers.size >= ANSWERS_PER_KEY_MAX) return false;
    holder.answers.add(response);
    response.once("close", () => {
      holder.answers.delete(response);
      this.#leave(holder);
    });
    return true;
  }

  /** null: there is no room for so much. */
  takeBody(access: Access, bytes: number): BodyHold | null {
    const holder = this.#holderOf(access);
    const isFull = holder.bodyBytes + bytes > BODIES_PER_KEY_BYTES_MAX || this.#bodyBytes + bytes > BODIES_BYTES_MAX;
    if (isFull) return null;
    const change = (by: number): void => {
      holder.bodyBytes += by;
      this.#bodyBytes += by;
    };
    change(bytes);
    return new BodyHold(() => {
      change(-bytes);
      this.#leave(holder);
    });
  }

  /** Checks keys from time to time, until the returned function is called. `onEnded`: of a key that ended. */
  start(clock: Clock, onEnded: (subject: string) => Promise<void>): () => void {
    return every(clock, CHECK_MS, () => void this.#check(onEnded));
  }

  async #check(onEnded: (subject: string) => Promise<void>): Promise<void> {
    if (this.#isChecking) return;
    this.#isChecking = true;
    for (const { access, answers } of [...this.#holders.values()]) {
      if (!(await hasEnded(access))) continue;
      await onEnded(access.caller.subject);
      for (const response of answers) response.destroy();
    }
    this.#isChecking = false;
  }

  #holderOf(access: Access): Holder {
    const { subject } = access.caller;
    const known = this.#holders.get(subject);
    const holder = known ?? { access, answers: new Set(), bodyBytes: 0 };
    if (known === undefined) this.#holders.set(subject, holder);
    return holder;
  }

  #leave(holder: Holder): void {
    if (holder.answers.size === 0 && holder.bodyBytes === 0) this.#holders.delete(holder.access.caller.subject);
  }
}

/** The memory of a body: held as often as it was asked for, and given back with the last. */
class BodyHold {
  readonly #giveBack: () => void;
  #holds = 0;

  constructor(giveBack: () => void) {
    this.#giveBack = giveBack;
  }

  /** Holds it until the returned function is called, which may be called again. */
  hold(): () => void {
    this.#holds += 1;
    let isHeld = true;
    return () => {
      if (!isHeld) return;
      isHeld = false;
      this.#holds -= 1;
      if (this.#holds === 0) this.#giveBack();
    };
  }
}

/** A server that does not answer says nothing about the key. */
async function hasEnded({ flotilla }: Access): Promise<boolean> {
  try {
    await flotilla.getCaller({ timeoutMs: READ_MS });
    return false;
  } catch (error) {
    return error instanceof FlotillaError && error.status === 401;
  }
}
