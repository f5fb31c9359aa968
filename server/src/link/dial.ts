/**
 * A TCP connection to a port of a running machine's guest, through its node.
 *
 * Always:
 * - Neither side is read faster than the other accepts it.
 * - end() ends the guest's input; destroy() breaks the guest's connection.
 * - A connection that broke, at the guest, the node or in between, is an error here and never an end.
 */
import { Duplex, type Readable } from "node:stream";
import { Refusal } from "@flotilla/contract/errors";
import { DIAL_PREAMBLE } from "@flotilla/contract/link/link";
import type { NodeAddress, NodeLink } from "./node-link.ts";
import { Input } from "./input.ts";
import { pushInTurns } from "./push-in-turns.ts";
import { NodeUnreachable, NodeRefused } from "./refusals.ts";
import type { Turn } from "../fairness/turns.ts";

/** The node gives a guest 10 s to accept. */
const HEADERS_TIMEOUT_MS = 15_000;
/**
 * Bytes held for a guest that does not read, besides what sockets hold: a machine may have hundreds of
 * connections.
 */
const HELD_BYTES_MAX = 32 * 1024;

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
  const input = new Input(HELD_BYTES_MAX);
  input.push(DIAL_PREAMBLE);
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
  readonly input: Input;
  readonly output: Readable;
  readonly gone: AbortController;
  readonly turn: Turn;
}

class DialedConnection extends Duplex {
  /**
   * null: it is over. A Writable stays in memory until a full collection, with all that it refers to
   * (docs/decisions/0018-what-one-caller-may-hold.md).
   */
  #parts: Dialed | null;
  #more: (() => void) | null;

  constructor(parts: Dialed) {
    super();
    this.#parts = parts;
    this.#more = pushInTurns(parts.output, this, parts.turn);
    parts.output.on("error", (error) => this.destroy(error));
  }

  override _read(): void {
    this.#more?.();
  }

  override _write(chunk: Buffer, _: BufferEncoding, done: () => void): void {
    if (this.#parts === null) return done();
    const { input, turn } = this.#parts;
    // Writes after the guest has ended are dropped.
    const written = turn(() => input.destroyed || input.push(chunk));
    if (written === true) done();
    else void whenRoom(input, written, done);
  }

  override _final(done: () => void): void {
    this.#parts?.input.push(null);
    done();
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    const parts = this.#parts;
    this.#parts = null;
    this.#more = null;
    parts?.gone.abort(CLOSED);
    parts?.input.destroy();
    parts?.output.destroy();
    done(error);
  }
}

/** Calls back when more may be written. `written`: whether there is room, now or after its turn. */
async function whenRoom(input: Input, written: Promise<boolean> | boolean, done: () => void): Promise<void> {
  if (!(await written)) await input.room;
  done();
}

/** One for all, because making an error with its stack costs more than the rest. */
const CLOSED = new Error("the connection was closed");

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
