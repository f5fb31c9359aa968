/**
 * A TCP connection to a port of a running machine's guest, through its node.
 *
 * Always:
 * - Neither side is read faster than the other accepts it.
 * - end() ends the guest's input; destroy() breaks the guest's connection.
 * - A connection that broke, at the guest, the node or in between, is an error here and never an end.
 */
import { Duplex, PassThrough, type Readable } from "node:stream";
import { Refusal } from "@flotilla/contract/errors";
import { DIAL_PREAMBLE } from "@flotilla/contract/link";
import type { NodeAddress, NodeLink } from "./node-link.ts";
import { pushInTurns } from "./push-in-turns.ts";
import { NodeUnreachable, NodeRefused } from "./refusals.ts";
import type { Turn } from "./turns.ts";

/** The node gives a guest 10 s to accept. */
const HEADERS_TIMEOUT_MS = 15_000;

export interface DialOptions {
  /** Whose share of the event loop its bytes use. */
  readonly tenantId: string;
  readonly machineId: string;
  readonly port: number;
  /** Cancels the attempt to connect, and breaks the connection. */
  readonly signal: AbortSignal;
}

/** Throws NotRunning, NodeUnreachable, or a Refusal when the port accepts no connection. */
export async function dialOnNode(link: NodeLink, node: NodeAddress, options: DialOptions): Promise<Duplex> {
  const { tenantId, machineId, port, signal } = options;
  const gone = new AbortController();
  const input = new PassThrough();
  // A broken connection is reported by the response's body.
  input.on("error", () => undefined);
  input.write(DIAL_PREAMBLE);
  try {
    const body = await link.open(node, {
      method: "POST",
      path: `/v1/machines/${machineId}/dial/${port}`,
      body: input,
      contentType: "application/octet-stream",
      headersTimeout: HEADERS_TIMEOUT_MS,
      signal: AbortSignal.any([signal, gone.signal]),
    });
    return new DialedConnection({ input, output: body, gone, turn: (work) => link.turns.run(tenantId, work) });
  } catch (error) {
    input.destroy();
    throw error instanceof NodeRefused ? refused(node, error, options) : error;
  }
}

interface Dialed {
  readonly input: PassThrough;
  readonly output: Readable;
  readonly gone: AbortController;
  readonly turn: Turn;
}

class DialedConnection extends Duplex {
  readonly #input: PassThrough;
  readonly #output: Readable;
  readonly #gone: AbortController;
  readonly #turn: Turn;
  readonly #more: () => void;

  constructor({ input, output, gone, turn }: Dialed) {
    super();
    this.#turn = turn;
    this.#input = input;
    this.#output = output;
    this.#gone = gone;
    this.#more = pushInTurns(output, this, turn);
    output.on("error", (error) => this.destroy(error));
    // Writes after the guest has ended are dropped.
    input.on("close", () => input.emit("drain"));
  }

  override _read(): void {
    this.#more();
  }

  override _write(chunk: Buffer, _: BufferEncoding, done: () => void): void {
    const written = this.#turn(() => this.#input.destroyed || this.#input.write(chunk));
    const onWritten = (isMore: boolean): void => {
      if (isMore || this.#input.destroyed) done();
      else this.#input.once("drain", done);
    };
    if (written instanceof Promise) void written.then(onWritten);
    else onWritten(written);
  }

  override _final(done: () => void): void {
    this.#input.end();
    done();
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    this.#gone.abort(new Error("the connection was closed"));
    this.#input.destroy();
    this.#output.destroy();
    done(error);
  }
}

/** The error for a port that is not connected. */
export function refused(
  node: NodeAddress,
  error: NodeRefused,
  { machineId, port }: Pick<DialOptions, "machineId" | "port">,
): Refusal {
  const name = `port ${port} of machine ${machineId}`;
  switch (error.code) {
    case "refused":
      return new Refusal("guest_unreachable", `${name} does not answer: ${error.message}`);
    case "busy":
      return new Refusal("unavailable", `${name} is not connected: ${error.message}; try again later`);
    default:
      return new NodeUnreachable(node.nodeId, error);
  }
}
