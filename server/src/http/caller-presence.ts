/**
 * Whether the caller of a request is still there, and the signal for whoever waits on its behalf.
 *
 * Always: the signal is made when it is first asked for, because most requests are answered without waiting for anything
 * that could be given up, and a signal costs more than the rest of what is kept about them.
 */

export class CallerPresence {
  /** Aborted when the server begins to stop: what is open without end should end. */
  readonly closing: AbortSignal;
  #controller: AbortController | undefined;
  hasGone = false;

  constructor(closing: AbortSignal) {
    this.closing = closing;
  }

  /** Aborted when the caller has gone, or the server ends what runs. */
  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController();
      if (this.hasGone) this.#controller.abort();
    }
    return this.#controller.signal;
  }

  end(): void {
    this.hasGone = true;
    this.#controller?.abort();
  }
}
