/**
 * One client's connection to a kept terminal on its node (docs/terminals.md).
 *
 * Always:
 * - The node and the client know where they are in the terminal's output and input; this side only passes on.
 *   So it resumes nothing: when the connection to the node breaks, the client's is closed, and it comes back.
 * - `detach`, and a connection that breaks, leave the terminal for a minute; `end` ends it.
 */
import { reasonOf } from "@flotilla/base/abort";
import { Refusal } from "@flotilla/contract/errors";
import { readExecExit, readExecResumed, readLinkError } from "@flotilla/contract/link/generated";
import { encodeLinkFrame, type LinkFrame, type LinkFrameType } from "@flotilla/contract/link/frames";
import type { ExecExit, ExecResumed } from "@flotilla/contract/link/link";
import { Broken, type Connection, connectionOf, jsonOf, resumedOf } from "./exec-connection.ts";
import { failureOf, HEADERS_TIMEOUT_MS } from "./exec-frames.ts";
import { Input } from "./input.ts";
import type { NodeAddress, NodeLink } from "./node-link.ts";
import { NodeRefused, NodeUnreachable, NotRunning } from "./refusals.ts";

/** How long the node has to end its answer when the terminal is ended. */
const END_MS = 5_000;

/** The terminal has ended, or there was none. */
export class TerminalEnded extends Error {}

/** Another client writes now. */
export class TerminalReplaced extends Error {}

export interface KeptTerminalOptions {
  /** Whose share of the event loop its output uses. */
  readonly tenantId: string;
  readonly machineId: string;
  /** Begins it, continues it, or reads it. */
  readonly first: { readonly type: "start" | "resume" | "watch"; readonly message: object };
  /** Cancels the opening. */
  readonly signal: AbortSignal;
}

export interface KeptSink {
  onOutput(chunk: Uint8Array): void | Promise<void>;
  /** As the node says; with `stdoutBytes` the output that follows begins there. */
  onPosition(position: ExecResumed): void;
}

/**
 * Resolves when the node has answered where the terminal is. Throws TerminalEnded, and otherwise like
 * openOnNode.
 */
export async function openKeptTerminal(
  link: NodeLink,
  node: NodeAddress,
  options: KeptTerminalOptions,
): Promise<KeptTerminal> {
  const { machineId, first, signal } = options;
  const gone = new AbortController();
  const cancel = (): void => gone.abort(reasonOf(signal));
  signal.addEventListener("abort", cancel, { once: true });
  if (signal.aborted) cancel();
  const input = new Input();
  input.push(encodeLinkFrame(first.type, JSON.stringify(first.message)));
  try {
    const body = await link.open(node, {
      method: "POST",
      path: `/v1/machines/${machineId}/terminals`,
      body: input,
      contentType: "application/octet-stream",
      headersTimeout: HEADERS_TIMEOUT_MS,
      signal: gone.signal,
    });
    const connection = connectionOf(input, body, gone);
    const position = await resumedOf(connection);
    return new KeptTerminal(link, options, connection, position);
  } catch (error) {
    input.destroy();
    gone.abort();
    if (signal.aborted || error instanceof Refusal || error instanceof NotRunning) throw error;
    if (!(error instanceof NodeRefused)) throw new NodeUnreachable(node.nodeId, error);
    throw refusedBy(node, error, machineId);
  } finally {
    signal.removeEventListener("abort", cancel);
  }
}

/** The node's refusal of a request, or the failure with which it answered. */
function refusedBy(node: NodeAddress, { status, code, message }: NodeRefused, machineId: string): Error {
  if (status === 404) {
    const text = `node ${node.nodeId} has an older release, which keeps no terminals; upgrade it, or leave out \`terminal\``;
    return new Refusal("unavailable", text);
  }
  return code === "not_found" ? new TerminalEnded(message) : failureOf({ code, message }, machineId);
}

export class KeptTerminal {
  /** Where it was when it was opened. */
  readonly position: ExecResumed;
  readonly #link: NodeLink;
  readonly #options: KeptTerminalOptions;
  readonly #connection: Connection;
  #isEnding = false;

  constructor(link: NodeLink, options: KeptTerminalOptions, connection: Connection, position: ExecResumed) {
    this.#link = link;
    this.#options = options;
    this.#connection = connection;
    this.position = position;
  }

  /** Sends a frame; false when the queue is full: wait for `room`. Frames after the end are dropped. */
  send(type: LinkFrameType, payload: Uint8Array | string = ""): boolean {
    const { input } = this.#connection;
    return this.#isEnding || input.destroyed || input.push(encodeLinkFrame(type, payload));
  }

  /** Resolves when the queue has room, or the request has ended. */
  get room(): Promise<void> {
    return this.#connection.input.room;
  }

  /**
   * Delivers output until the program has ended. Throws Broken when the terminal may run on, TerminalEnded,
   * TerminalReplaced, or a Refusal when the result is unknown.
   */
  async run(sink: KeptSink): Promise<ExecExit> {
    const { ahead, chunks, decoder } = this.#connection;
    for (;;) {
      for (let frame = ahead.take(); frame !== undefined; frame = ahead.take()) {
        const exit = await this.#deliver(frame, sink);
        if (exit !== null) return exit;
      }
      const { value, done } = await chunks.next().catch((cause: unknown) => {
        throw new Broken("the connection to the node broke", { cause });
      });
      if (done === true) throw new Broken("the answer of the node ended");
      ahead.add(decoder.push(value));
    }
  }

  async #deliver(frame: LinkFrame, sink: KeptSink): Promise<ExecExit | null> {
    const { tenantId, machineId } = this.#options;
    switch (frame.type) {
      case "stdout":
        await this.#link.turns.run(tenantId, () => sink.onOutput(frame.payload));
        return null;
      case "resumed":
        sink.onPosition(readExecResumed(jsonOf(frame)));
        return null;
      case "exit":
        return readExecExit(jsonOf(frame));
      case "failure": {
        const failure = readLinkError(jsonOf(frame));
        if (failure.code === "replaced") throw new TerminalReplaced(failure.message);
        if (failure.code === "not_found") throw new TerminalEnded(failure.message);
        throw failureOf(failure, machineId);
      }
      default:
        throw new Error(`a ${frame.type} frame does not come from a node`);
    }
  }

  /** Leaves the terminal to its next client. */
  detach(): void {
    if (!this.#isEnding) this.#connection.gone.abort();
  }

  /** Ends the terminal. The node learns it by a frame: breaking off would only leave it. */
  end(): void {
    if (this.#isEnding) return;
    this.send("end");
    this.#isEnding = true;
    this.#connection.input.push(null);
    const { body, gone } = this.#connection;
    const timer = this.#link.clock.timer(END_MS, () => gone.abort());
    body.once("close", () => timer.cancel());
    body.resume();
  }
}
