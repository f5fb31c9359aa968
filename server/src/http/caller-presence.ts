/**
 * Whether the caller of a request is still connected, and the abort signal for work on its behalf.
 *
 * Always:
 * - The signal is made, and the connection observed, when the signal is first read: most requests wait for
 *   nothing that could be canceled, and both cost more than the rest of their state.
 * - From then on the caller's right is watched too. When it ends, the signal is aborted with the Refusal that
 *   says why, and the connection is destroyed if it is still open a little later.
 */
import type { ServerResponse } from "node:http";
import type { Duplex } from "node:stream";
import type { Link, LinkedList } from "@flotilla/base/linked-list";
import type { Refusal } from "@flotilla/contract/errors";
import type { AccessWatch, Right } from "../auth/access-watch.ts";

/** One for all: making a new one with its stack is most of the time that an abort takes. */
const GONE = new DOMException("the caller has disconnected, or was answered", "AbortError");

export class CallerPresence {
  /** Aborted when the server begins to stop: endless streams should end. */
  readonly closing: AbortSignal;
  readonly #response: ServerResponse;
  /** The connection of an upgrade; otherwise the response. */
  readonly #connection: ServerResponse | Duplex;
  /** Requests whose signal was read and whose caller is connected. */
  readonly #waiting: LinkedList<CallerPresence>;
  #place: Link<CallerPresence> | undefined;
  #controller: AbortController | undefined;
  #isEnded = false;
  #admission: { readonly access: AccessWatch; readonly right: Right } | undefined;
  #stopWatching: (() => void) | undefined;
  #lost: Refusal | undefined;

  constructor(
    response: ServerResponse,
    options: {
      readonly upgraded: Duplex | undefined;
      readonly waiting: LinkedList<CallerPresence>;
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

  /**
   * Aborted when the caller has gone, its right has ended (with a Refusal as the reason), or the server ends
   * what runs.
   */
  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController();
      if (this.hasGone) this.#controller.abort(GONE);
      else if (!this.#connection.destroyed) this.#watch();
    }
    return this.#controller.signal;
  }

  /** Why the caller's right has ended; undefined: it holds, or is not watched. */
  get lost(): Refusal | undefined {
    return this.#lost;
  }

  /** Names the right that lets the request continue. */
  admit(access: AccessWatch, right: Right): void {
    this.#admission = { access, right };
    if (this.#place?.isIn) this.#watchRight();
  }

  end(): void {
    this.#isEnded = true;
    this.#controller?.abort(GONE);
  }

  #watch(): void {
    this.#place = this.#waiting.append(this);
    this.#connection.once("close", () => {
      this.#place?.remove();
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
