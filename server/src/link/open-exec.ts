/**
 * A command on a node with input that is sent while output arrives, for terminals and files. Commands whose input is known at
 * their start use exec-link.ts, which costs less.
 *
 * Always:
 * - No input is consumed before the node has accepted the command, so after NotRunning the whole input can be sent again.
 * - Input is consumed no faster than the node reads. Output is read no faster than the sink accepts it.
 * - `close`, or an aborted signal, breaks the connection. Then the node ends the command with all its descendants.
 */
import { Readable } from "node:stream";
import { Refusal } from "@flotilla/contract/errors";
import type { ExecExit, ExecStart } from "@flotilla/contract/link";
import { encodeLinkFrame, LinkDecoder, type LinkFrame, type LinkFrameType } from "@flotilla/contract/link-stream";
import { HEADERS_TIMEOUT_MS, type OutputSink, deliverFrame } from "./exec-link.ts";
import type { NodeAddress, NodeLink } from "./node-link.ts";
import { NodeUnreachable, NotRunning } from "./refusals.ts";

/** Max bytes queued for a node that does not read. */
const INPUT_BYTES_MAX = 256 * 1024;

/** The request's body, into which frames are pushed. */
class Input extends Readable {
  #room = Promise.withResolvers<void>();

  constructor() {
    super({ highWaterMark: INPUT_BYTES_MAX });
    // A broken connection is reported by the response; this event has no other listener.
    this.on("error", () => undefined);
    this.on("close", () => this.#room.resolve());
  }

  override _read(): void {
    this.#room.resolve();
    this.#room = Promise.withResolvers();
  }

  /** Resolves when there is room for more, or the stream was destroyed. */
  get room(): Promise<void> {
    return this.destroyed ? Promise.resolve() : this.#room.promise;
  }
}

export interface OpenExecOptions {
  /** Whose share of the event loop its output uses. */
  readonly tenantId: string;
  readonly machineId: string;
  readonly start: ExecStart;
  readonly signal: AbortSignal;
}

/** Resolves when the node has accepted the command. Throws like runOnNode. */
export async function openOnNode(link: NodeLink, node: NodeAddress, options: OpenExecOptions): Promise<OpenExec> {
  const { tenantId, machineId, start, signal } = options;
  const gone = new AbortController();
  const input = new Input();
  input.push(encodeLinkFrame("start", JSON.stringify(start)));
  try {
    const body = await link.open(node, {
      method: "POST",
      path: `/v1/machines/${machineId}/exec`,
      body: input,
      contentType: "application/octet-stream",
      headersTimeout: HEADERS_TIMEOUT_MS,
      signal: AbortSignal.any([signal, gone.signal]),
    });
    const exec = new OpenExec({
      link,
      work: start.file === undefined ? "command" : "file",
      nodeId: node.nodeId,
      tenantId,
      machineId,
      input,
      body,
      gone,
    });
    await exec.lookAhead();
    return exec;
  } catch (error) {
    input.destroy();
    if (error instanceof Refusal || error instanceof NotRunning || signal.aborted) throw error;
    throw new NodeUnreachable(node.nodeId, error);
  }
}

interface Parts {
  readonly link: NodeLink;
  readonly work: "command" | "file";
  readonly nodeId: string;
  readonly tenantId: string;
  readonly machineId: string;
  readonly input: Input;
  readonly body: Readable;
  readonly gone: AbortController;
}

export class OpenExec {
  readonly #parts: Parts;
  readonly #decoder = new LinkDecoder();
  readonly #chunks: AsyncIterator<Buffer, undefined>;
  #ahead: readonly LinkFrame[] = [];
  #isInputOver = false;

  constructor(parts: Parts) {
    this.#parts = parts;
    this.#chunks = (parts.body as AsyncIterable<Buffer, undefined>)[Symbol.asyncIterator]();
  }

  /** Sends a frame; false when the queue is full: wait for `room`. Frames after the end are dropped. */
  send(type: LinkFrameType, payload: Uint8Array | string = ""): boolean {
    const { input } = this.#parts;
    if (input.destroyed || this.#isInputOver) return true;
    return input.push(encodeLinkFrame(type, payload));
  }

  /** Resolves when the queue has room, or the request has ended. */
  get room(): Promise<void> {
    return this.#parts.input.room;
  }

  /** Ends the input. */
  endInput(): void {
    this.send("stdinEnd");
    this.#finishRequest();
  }

  /** Throws a failure that arrived with the response's head, while the caller's request can still be refused. */
  async lookAhead(): Promise<void> {
    if (this.#parts.body.readableLength === 0) return;
    const { value, done } = await this.#chunks.next();
    if (done === true) return;
    this.#ahead = this.#decoder.push(value);
    const [first] = this.#ahead;
    if (first?.type === "failure") await deliverFrame(first, { onOutput: () => undefined }, this.#parts.machineId);
  }

  /** Delivers output until the command has ended. Throws a Refusal when its result is unknown. */
  async run(sink: OutputSink): Promise<ExecExit> {
    const { link, work, nodeId, tenantId, machineId, input, gone } = this.#parts;
    try {
      let frames = this.#ahead;
      for (;;) {
        for (const frame of frames) {
          const taken = link.turns.run(tenantId, () => deliverFrame(frame, sink, machineId));
          const exit = taken instanceof Promise ? await taken : taken;
          if (exit === null) continue;
          // The connection of a complete request can be reused.
          this.#finishRequest();
          return exit;
        }
        const { value, done } = await this.#chunks.next();
        if (done === true) throw new Error("the answer ended without an exit frame");
        frames = this.#decoder.push(value);
      }
    } catch (error) {
      if (error instanceof Refusal || gone.signal.aborted) throw error;
      throw link.cutOff(nodeId, machineId, work, error);
    } finally {
      // An incomplete request must not end normally: the node would mistake a part for all of the input.
      if (!this.#isInputOver) input.destroy();
      await this.#chunks.return?.();
    }
  }

  /** Ends the command, unless it has ended. */
  close(): void {
    this.#parts.gone.abort();
  }

  #finishRequest(): void {
    if (this.#isInputOver) return;
    this.#isInputOver = true;
    this.#parts.input.push(null);
  }
}
