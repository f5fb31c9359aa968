/**
 * Runs one command over the link: sends the start frame and standard input, receives output frames and the
 * exit frame.
 *
 * Always:
 * - Output is delivered in order, and the node is read no faster than the sink accepts it.
 * - An aborted signal breaks the connection. Then the node ends the command with all its descendants, unless
 *   it runs in the background.
 * - When the connection breaks although the node has the command, a command with a resume key is resumed
 *   (open-exec.ts).
 *
 * The request's body is sent whole, with its length: without a terminal all input is known when the command
 * starts.
 */
import { reasonOf } from "@flotilla/base/abort";
import type { Clock, Timer } from "@flotilla/base/clock";
import { Refusal } from "@flotilla/contract/errors";
import type { ExecExit, ExecStart } from "@flotilla/contract/link/link";
import {
  encodeLinkFrame,
  encodeLinkFrameHead,
  LINK_PAYLOAD_BYTES_MAX,
  LinkDecoder,
  type LinkFrame,
  RESUMES_HEADER,
} from "@flotilla/contract/link/frames";
import type { Dispatcher } from "undici";
import { deliverFrame, HEADERS_TIMEOUT_MS, type OutputSink } from "./exec-frames.ts";
import { FrameQueue } from "./frame-queue.ts";
import type { NodeAddress, NodeLink } from "./node-link.ts";
import { type Locate, OpenExec } from "./open-exec.ts";
import { NodeUnreachable, NotRunning, refusalOf } from "./refusals.ts";

/** How long after a command's time limit its node may take to end it, before it counts as unreachable. */
const NODE_GRACE_MS = 30_000;
const REFUSAL_CHARACTERS_MAX = 64 * 1024;
/** Up to this size a copy costs less than another buffer to write. */
const COPIED_BYTES_MAX = 64 * 1024;

export interface NodeExecOptions {
  /** Whose share of the event loop its output uses. */
  readonly tenantId: string;
  readonly machineId: string;
  readonly start: ExecStart;
  readonly stdin: Buffer | null;
  readonly sink: OutputSink;
  readonly signal: AbortSignal;
  readonly locate?: Locate;
}

/**
 * Rejects with NotRunning, NodeUnreachable, or a Refusal when the guest does not answer or refuses the
 * command.
 */
export function runOnNode(
  link: NodeLink,
  node: NodeAddress,
  options: NodeExecOptions,
  clock: Clock,
): Promise<ExecExit> {
  const { promise, resolve, reject } = Promise.withResolvers<ExecExit>();
  if (options.signal.aborted) return Promise.reject(reasonOf(options.signal));
  const command = new NodeCommand(link, node, options, clock, { resolve, reject });
  const { body, bytes } = requestBody(options.start, options.stdin);
  const path = `/v1/machines/${options.machineId}/exec`;
  try {
    link.post(node, path, { body, bytes, headersTimeout: HEADERS_TIMEOUT_MS }, command);
  } catch (error) {
    reject(new NodeUnreachable(node.nodeId, error));
  }
  return promise;
}

interface Settle {
  readonly resolve: (exit: ExecExit) => void;
  readonly reject: (error: Error) => void;
}

/**
 * undici's handler for one command. Its promise and stream API would double the cost of the request
 * (measured), most of it at the stream's end.
 */
class NodeCommand implements Dispatcher.DispatchHandler {
  readonly #link: NodeLink;
  readonly #node: NodeAddress;
  readonly #nodeId: string;
  readonly #options: NodeExecOptions;
  readonly #clock: Clock;
  readonly #settle: Settle;
  readonly #decoder = new LinkDecoder();
  readonly #onAbort = (): void => this.#cancel(reasonOf(this.#options.signal));
  #controller: Dispatcher.DispatchController | null = null;
  #status = 0;
  #refusal = "";
  /** Frames that are not delivered yet. */
  readonly #frames = new FrameQueue();
  #isWaiting = false;
  #hasEnded = false;
  #isSettled = false;
  #deadline: Timer | null = null;
  readonly #startedAt: number;
  /** Delivered to the sink. */
  readonly #received = { stdout: 0, stderr: 0 };
  #isKept = false;
  /** What the sink has not accepted yet. */
  #pending: Promise<unknown> = Promise.resolve();
  /** The connection broke, and the command continues here. */
  #resumed: OpenExec | null = null;

  constructor(link: NodeLink, node: NodeAddress, options: NodeExecOptions, clock: Clock, settle: Settle) {
    this.#link = link;
    this.#node = node;
    this.#nodeId = node.nodeId;
    this.#startedAt = clock.monotonic();
    this.#options = options;
    this.#clock = clock;
    this.#settle = settle;
    options.signal.addEventListener("abort", this.#onAbort);
    const { timeoutMs } = options.start;
    if (timeoutMs !== null) this.#expectEnd(timeoutMs + NODE_GRACE_MS);
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    if (this.#isSettled) controller.abort(new Error("the command was cancelled"));
  }

  onResponseStart(
    _controller: Dispatcher.DispatchController,
    status: number,
    headers: Readonly<Record<string, string | string[] | undefined>>,
  ): void {
    this.#status = status;
    this.#isKept = headers[RESUMES_HEADER] !== undefined;
    if (status === 200 && !this.#isSettled) this.#options.sink.onStarted?.();
  }

  onResponseData(_controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (this.#isSettled || this.#resumed !== null) return;
    if (this.#status !== 200) {
      if (this.#refusal.length < REFUSAL_CHARACTERS_MAX) this.#refusal += chunk.toString("utf8");
      return;
    }
    try {
      this.#frames.add(this.#decoder.push(chunk));
      if (!this.#isWaiting) this.#proceed();
    } catch (error) {
      this.#fail(error);
    }
  }

  onResponseEnd(): void {
    if (this.#isSettled) return;
    this.#hasEnded = true;
    if (this.#status !== 200) this.#fail(refusalOf(this.#nodeId, this.#status, this.#refusal));
    else if (!this.#isWaiting) this.#fail(new Error("the answer ended without an exit frame"));
  }

  onResponseError(_controller: Dispatcher.DispatchController, error: Error): void {
    this.#fail(error);
  }

  /**
   * Delivers frames, now or when the tenant has its turn. Until then, and while the sink is full, nothing is
   * read.
   */
  #proceed(): void {
    const { tenantId } = this.#options;
    while (!this.#frames.isEmpty) {
      const waiting = this.#link.turns.run(tenantId, () => this.#deliver());
      if (waiting !== undefined) return this.#waitFor(waiting);
    }
    if (this.#hasEnded) this.#fail(new Error("the answer ended without an exit frame"));
  }

  /** Delivers one piece; returns the sink's promise if it is full. */
  #deliver(): Promise<null> | undefined {
    if (this.#isSettled || this.#resumed !== null) return undefined;
    const frame = this.#nextPiece();
    if (frame === undefined) return undefined;
    const { type, payload } = frame;
    if (type === "stdout" || type === "stderr") this.#received[type] += payload.byteLength;
    const taken = deliverFrame(frame, this.#options.sink, this.#options.machineId);
    // Most output is accepted synchronously.
    if (taken instanceof Promise) return taken;
    if (taken !== null) this.#finish(() => this.#settle.resolve(taken));
    return undefined;
  }

  /** The next frame, or a part of one whose bytes cost the sink much. */
  #nextPiece(): LinkFrame | undefined {
    const { pieceBytes = Number.POSITIVE_INFINITY } = this.#options.sink;
    const frame = this.#frames.first;
    if (frame === undefined || (frame.type !== "stdout" && frame.type !== "stderr")) return this.#frames.take();
    if (frame.payload.byteLength <= pieceBytes) return this.#frames.take();
    this.#frames.replaceFirst({ type: frame.type, payload: frame.payload.subarray(pieceBytes) });
    return { type: frame.type, payload: frame.payload.subarray(0, pieceBytes) };
  }

  #waitFor(something: Promise<unknown>): void {
    this.#isWaiting = true;
    this.#pending = something;
    this.#controller?.pause();
    const resume = (): void => {
      if (this.#isSettled || this.#resumed !== null) return;
      this.#isWaiting = false;
      if (!this.#frames.isEmpty || this.#hasEnded) this.#proceed();
      if (!this.#isWaiting && !this.#isSettled) this.#controller?.resume();
    };
    something.then(resume).catch((error: unknown) => this.#fail(error));
  }

  /**
   * Ends a command whose node does not enforce the time limit. A slow reader or a move is not the node's
   * fault.
   */
  #expectEnd(ms: number): void {
    this.#deadline = this.#clock.timer(ms, () => {
      const isDelayed = this.#options.sink.isFull === true || this.#resumed?.isBroken === true;
      if (isDelayed) return this.#expectEnd(NODE_GRACE_MS);
      const { machineId } = this.#options;
      const text = `the command in machine ${machineId} is past its time limit and its node has not ended it; stop and start the machine if it still runs`;
      this.#cancel(new Refusal("guest_unreachable", text));
    });
  }

  /** Breaks the connection; then the node ends the command. */
  #cancel(error: Error): void {
    // A resumed answer would be read and parsed first, up to half a megabyte of each command.
    this.#isWaiting = false;
    this.#finish(() => this.#settle.reject(error));
    this.#controller?.abort(error);
    this.#resumed?.close();
  }

  #fail(error: unknown): void {
    if (this.#isSettled || this.#resumed !== null) return;
    const isFinal = error instanceof Refusal || error instanceof NotRunning;
    const { machineId } = this.#options;
    if (isFinal) this.#finish(() => this.#settle.reject(error));
    else if (this.#canResume) this.#resume(error);
    else if (this.#status === 200) this.#cancel(this.#link.cutOff(this.#nodeId, machineId, "command", error));
    else this.#cancel(new NodeUnreachable(this.#nodeId, error));
  }

  /** An agent that died before the head of its answer may have started the command. */
  get #canResume(): boolean {
    if (this.#options.start.resumeKey === undefined || this.#controller === null) return false;
    return this.#status === 0 || (this.#status === 200 && this.#isKept);
  }

  #resume(cause: unknown): void {
    const { sink, stdin } = this.#options;
    const before = { startedAt: this.#startedAt, stdin, received: this.#received };
    const exec = OpenExec.broken(this.#link, this.#node, this.#options, before);
    this.#resumed = exec;
    this.#frames.clear();
    this.#controller?.abort(new Error("the connection broke"));
    const failed = (error: unknown): void => {
      const hadNoHead = this.#status === 0 && !(error instanceof Refusal && error.code !== "unavailable");
      this.#finish(() => this.#settle.reject(hadNoHead ? new NodeUnreachable(this.#nodeId, cause) : (error as Error)));
    };
    const began = (): void => (this.#status === 0 ? sink.onStarted?.() : undefined);
    this.#pending
      .then(() => exec.run({ onOutput: (stream, chunk) => sink.onOutput(stream, chunk) }, began))
      .then((exit) => this.#finish(() => this.#settle.resolve(exit)), failed);
  }

  #finish(settle: () => void): void {
    if (this.#isSettled) return;
    this.#isSettled = true;
    this.#frames.clear();
    this.#deadline?.cancel();
    this.#options.signal.removeEventListener("abort", this.#onAbort);
    if (this.#isWaiting && this.#resumed === null) this.#controller?.resume();
    settle();
  }
}

/** The frames as one buffer; with much input as a list that is sent without a copy. */
function requestBody(start: ExecStart, stdin: Buffer | null): { body: Buffer | Buffer[]; bytes: number } {
  const frames = [encodeLinkFrame("start", JSON.stringify(start))];
  if (stdin !== null) {
    for (let at = 0; at < stdin.byteLength; at += LINK_PAYLOAD_BYTES_MAX) {
      const payload = stdin.subarray(at, at + LINK_PAYLOAD_BYTES_MAX);
      frames.push(encodeLinkFrameHead("stdin", payload.byteLength), payload);
    }
    frames.push(encodeLinkFrame("stdinEnd"));
  }
  const bytes = frames.reduce((sum, frame) => sum + frame.byteLength, 0);
  return { body: bytes <= COPIED_BYTES_MAX ? Buffer.concat(frames, bytes) : frames, bytes };
}
