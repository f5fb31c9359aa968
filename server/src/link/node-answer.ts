/**
 * One request to a node, and its answer: the head as a promise, the body as a stream.
 *
 * A handler of undici instead of its `request`, and the pieces of a body instead of a stream: of each of
 * those a function stays in memory until a full collection, with all that it refers to
 * (docs/decisions/0018-what-one-caller-may-hold.md).
 *
 * Always:
 * - The body is read no faster than its reader reads it.
 * - A body that is destroyed before its end, and an aborted signal, break the connection.
 * - A body that breaks off is an error of the stream, never an end. An error waits until the body's reader
 *   may have come.
 */
import { Readable } from "node:stream";
import { reasonOf } from "@flotilla/base/abort";
import type { Dispatcher } from "undici";

type Headers = Readonly<Record<string, string | string[] | undefined>>;

/** The head of an answer, and its body, which must be read or destroyed. */
export interface NodeHead {
  readonly status: number;
  readonly headers: Headers;
  readonly body: NodeAnswer;
}

type NodeRequest = Omit<Dispatcher.DispatchOptions, "origin" | "upgrade">;

/** Resolves with the head. Rejects with undici's error, or with the reason of the signal. */
export function askNode(
  dispatcher: Dispatcher,
  request: NodeRequest,
  signal: AbortSignal | undefined,
): Promise<NodeHead> {
  return new Promise((resolve, reject) => {
    const answer = new NodeAnswer({ body: request.body, signal, resolve, reject });
    if (signal?.aborted === true) return answer.cancel();
    const { body } = request;
    dispatcher.dispatch(body instanceof Readable ? { ...request, body: piecesOf(body) } : request, answer);
  });
}

interface Parts {
  readonly body: NodeRequest["body"];
  readonly signal: AbortSignal | undefined;
  readonly resolve: (head: NodeHead) => void;
  readonly reject: (error: unknown) => void;
}

/** The body of an answer, and undici's handler of the request. */
class NodeAnswer extends Readable implements Dispatcher.DispatchHandler {
  readonly #parts: Parts;
  /** No object with `handleEvent`: Node makes a function of it that stays. */
  readonly #onAbort = (): void => this.#fail(reasonOf(this.#parts.signal as AbortSignal));
  #controller: Dispatcher.DispatchController | null = null;
  /** Whether the head came, or will not. */
  #hasHead = false;
  #isWhole = false;

  constructor(parts: Parts) {
    super({ highWaterMark: 64 * 1024 });
    this.#parts = parts;
    parts.signal?.addEventListener("abort", this.#onAbort);
    // Without a listener an error that comes before the reader would end this program.
    this.on("error", ignore);
  }

  /** Ends the request before it begins. */
  cancel(): void {
    this.#onAbort();
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    if (this.destroyed) controller.abort(this.errored ?? UNREAD);
  }

  onResponseStart(_controller: Dispatcher.DispatchController, status: number, headers: Headers): void {
    if (status < 200 || this.#hasHead) return;
    this.#hasHead = true;
    this.#parts.resolve({ status, headers, body: this });
  }

  onResponseData(controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (!this.destroyed && !this.push(chunk)) controller.pause();
  }

  onResponseEnd(): void {
    this.#isWhole = true;
    this.push(null);
  }

  onResponseError(_controller: Dispatcher.DispatchController, error: Error): void {
    this.#fail(error);
  }

  override _read(): void {
    this.#controller?.resume();
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    const { signal, body } = this.#parts;
    signal?.removeEventListener("abort", this.#onAbort);
    if (!this.#isWhole) this.#controller?.abort(error ?? UNREAD);
    // Nothing reads it any more, and its writer waits.
    if (body instanceof Readable && !body.readableEnded) body.destroy(error ?? UNREAD);
    if (error === null || this.readableFlowing !== null) done(error);
    else setImmediate(done, error);
  }

  #fail(error: Error): void {
    if (!this.#hasHead) {
      this.#hasHead = true;
      this.#parts.reject(error);
    }
    this.destroy(error);
  }
}

/** One for all, because the stack of an error costs more than the rest of it. */
const UNREAD = new Error("the rest of the answer is not read");
const ignore = (): void => undefined;

/** Has only what undici looks for. Its types do not name such a body, its documentation does. */
const piecesOf = (body: Readable): Readable =>
  ({ [Symbol.asyncIterator]: () => body[Symbol.asyncIterator]() }) as unknown as Readable;
