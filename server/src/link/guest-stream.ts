/**
 * A connection to a port of a machine's guest that outlives the agent of its node and moves with its machine
 * (decision 53).
 *
 * Always:
 * - Neither side is read faster than the other accepts it.
 * - end() ends the guest's input; destroy() breaks the guest's connection.
 * - A connection that broke is an error here and never an end. It breaks with the agent, and in a move, where
 *   the guest keeps no more connections: then the node dials.
 */
import { Duplex } from "node:stream";
import { LINK_PAYLOAD_BYTES_MAX } from "@flotilla/contract/link/frames";
import { type DialOptions, refused } from "./dial.ts";
import type { NodeAddress, NodeLink } from "./node-link.ts";
import { type Locate, type OpenExec, openOnNode } from "./open-exec.ts";
import { NodeRefused } from "./refusals.ts";
import type { Turn } from "../fairness/turns.ts";

/** A connection is opened like a command, of which it has only the input and the key. */
const CONNECTION = {
  ...{ argv: [], cwd: null, env: {}, user: null, timeoutMs: null },
  ...{ isBackground: false, hasStdin: true, terminal: null },
};

export interface ConnectOptions extends DialOptions {
  /** Names the connection; used for no other. */
  readonly resumeKey: string;
  readonly locate: Locate;
}

/** Throws like dialOnNode. */
export async function connectOnNode(link: NodeLink, node: NodeAddress, options: ConnectOptions): Promise<Duplex> {
  const { resumeKey, ...rest } = options;
  try {
    const exec = await openOnNode(link, node, { ...rest, start: { ...CONNECTION, resumeKey } });
    return new GuestStream(exec, (work) => link.turns.run(options.tenantId, work));
  } catch (error) {
    throw error instanceof NodeRefused ? refused(node, error, options) : error;
  }
}

class GuestStream extends Duplex {
  readonly #exec: OpenExec;
  readonly #turn: Turn;
  #wake: () => void = () => undefined;

  constructor(exec: OpenExec, turn: Turn) {
    super();
    this.#exec = exec;
    this.#turn = turn;
    exec.run({ onOutput: (_stream, chunk) => this.#deliver(chunk) }).then(
      ({ exitCode }) => {
        if (exitCode === 0) this.push(null);
        else this.destroy(new Error("the guest broke the connection"));
      },
      (error: Error) => this.destroy(error),
    );
  }

  #deliver(chunk: Uint8Array): void | Promise<void> {
    if (this.destroyed || this.push(chunk)) return undefined;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#wake = resolve;
    return promise;
  }

  override _read(): void {
    this.#wake();
  }

  override _write(chunk: Buffer, _: BufferEncoding, done: () => void): void {
    const written = this.#turn(() => this.#send(chunk));
    const onWritten = (hasRoom: boolean): void => {
      if (hasRoom) done();
      // oxlint-disable-next-line promise/no-callback-in-promise -- a stream takes no promise
      else void this.#exec.room.then(done);
    };
    if (written instanceof Promise) void written.then(onWritten);
    else onWritten(written);
  }

  #send(chunk: Buffer): boolean {
    let hasRoom = true;
    for (let at = 0; at < chunk.byteLength; at += LINK_PAYLOAD_BYTES_MAX)
      hasRoom = this.#exec.send("stdin", chunk.subarray(at, at + LINK_PAYLOAD_BYTES_MAX));
    return hasRoom;
  }

  override _final(done: () => void): void {
    this.#exec.endInput();
    done();
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    this.#exec.close();
    this.#wake();
    done(error);
  }
}
