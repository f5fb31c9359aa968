/**
 * A connection to an agent that a test host can drop: the agent's socket stays open, as a VMM keeps a guest's
 * port open when the node agent is killed.
 *
 * Always: data that arrives without a connection waits in the socket for the next one, as in a VMM.
 */
import { Duplex } from "node:stream";

export class Line extends Duplex {
  readonly #socket: Duplex;
  readonly #onData = (chunk: Buffer): void => {
    if (!this.push(chunk)) this.#socket.pause();
  };
  readonly #onEnd = (): void => {
    this.push(null);
  };

  constructor(socket: Duplex) {
    super();
    this.#socket = socket;
    socket.on("data", this.#onData);
    socket.on("end", this.#onEnd);
  }

  override _read(): void {
    this.#socket.resume();
  }

  override _write(chunk: Buffer, encoding: BufferEncoding, callback: (error?: Error | null) => void): void {
    this.#socket.write(chunk, encoding, callback);
  }

  /** Drops the connection; neither the socket nor the agent notice. */
  override _destroy(error: Error | null, callback: (error?: Error | null) => void): void {
    this.#socket.off("data", this.#onData);
    this.#socket.off("end", this.#onEnd);
    this.#socket.pause();
    callback(error);
  }
}
