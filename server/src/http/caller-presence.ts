/**
 * Whether the caller of a request is still there, and the signal for whoever waits on its behalf.
 *
 * Always: the connection is listened to, and the signal made, when the signal is first asked for, because most requests
 * are answered without waiting for anything that could be given up, and both cost more than the rest of what is kept
 * about them. From then on the caller's right is watched as well: when it ends, the signal is aborted with the Refusal
 * that says why, and the connection is broken if it is still open a little later.
 */
import type { ServerResponse } from "node:http";
import type { Duplex } from "node:stream";
import type { Refusal } from "@flotilla/contract/errors";
import type { AccessWatch, Right } from "../auth/access-watch.ts";

export class CallerPresence {
  /** Aborted when the server begins to stop: what is open without end should end. */
  readonly closing: AbortSignal;
  readonly #response: ServerResponse;
  /** Of a request to become something else: its connection. Else the response. */
  readonly #connection: ServerResponse | Duplex;
  /** Those whose signal was asked for and whose caller is there. */
  readonly #waiting: Set<CallerPresence>;
  #controller: AbortController | undefined;
  #isEnded = false;
  #admission: { readonly access: AccessWatch; readonly right: Right } | undefined;
  #stopWatching: (() => void) | undefined;
  #lost: Refusal | undefined;

  constructor(
    response: ServerResponse,
    options: {
      readonly upgraded: Duplex | undefined;
      readonly waiting: Set<CallerPresence>;
      readonly closing: AbortSignal;
    },
  ) {
    this.#response = response;
    this.#connection = options.upgraded ?? response;
    this.#waiting = options.waiting;
    this.closing = options.closing;
  }

  get hasGone(): boolean {
    return this.#isEnded || (this.#connection.destroyed && !this.#response.writableFinished);
  }

  /** Aborted when the caller has gone, its right has ended (with a Refusal as the reason), or the server ends what runs. */
  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController();
      if (this.hasGone) this.#controller.abort();
      else if (!this.#connection.destroyed) this.#watch();
    }
    return this.#controller.signal;
  }

  /** Why the caller's right has ended; undefined: it holds, or is not watched. */
  get lost(): Refusal | undefined {
    return this.#lost;
  }

  /** It is known by which right the caller goes on. */
  admit(access: AccessWatch, right: Right): void {
    this.#admission = { access, right };
    if (this.#waiting.has(this)) this.#watchRight();
  }

  end(): void {
    this.#isEnded = true;
    this.#controller?.abort();
  }

  #watch(): void {
    this.#waiting.add(this);
    this.#connection.once("close", () => {
      this.#waiting.delete(this);
      this.#stopWatching?.();
      if (this.hasGone) this.end();
    });
    this.#watchRight();
  }

  #watchRight(): void {
    if (this.#admission === undefined) return;
    this.#stopWatching?.();
    const { access, right } = this.#admission;
    this.#stopWatching = access.open(right, {
      end: (reason) => {
        this.#lost = reason;
        this.#controller?.abort(reason);
      },
      cut: () => void this.#connection.destroy(),
    });
  }
}
