/**
 * A command on a node with input that is sent while output arrives, for terminals, or a connection to a port
 * of a guest (guest-stream.ts). Commands whose input is known at their start use exec-link.ts, which costs
 * less, until their connection breaks.
 *
 * Always:
 * - No input is consumed before the node has accepted the command, so after NotRunning the whole input can be
 *   sent again.
 * - Input is consumed no faster than the node reads. Output is read no faster than the sink accepts it.
 * - `close`, or an aborted signal, breaks the connection. Then the node ends the command with all its
 *   descendants.
 * - When the connection of a command with a resume key breaks, because the node's agent was restarted or the
 *   machine moved, the command is resumed through the next agent or at the other node: each output after what
 *   the sink got, the input after what the guest got. It is looked for until RESUME_MS after the move has
 *   ended, and never started again. A caller that leaves in the meantime is not waited for; the command is
 *   ended when it is found.
 */
import { reasonOf } from "@flotilla/base/abort";
import { Refusal } from "@flotilla/contract/errors";
import { CONNECTION_WINDOW_BYTES } from "@flotilla/contract/guest/frame";
import type { ExecExit, ExecResume, ExecStart } from "@flotilla/contract/link/link";
import { readExecResumed } from "@flotilla/contract/link/generated";
import {
  encodeLinkFrame,
  LINK_PAYLOAD_BYTES_MAX,
  type LinkFrameType,
  RESUMES_HEADER,
} from "@flotilla/contract/link/frames";
import { Broken, type Connection, connectionOf, jsonOf, resumedOf } from "./exec-connection.ts";
import { deliverFrame, HEADERS_TIMEOUT_MS, type OutputSink } from "./exec-frames.ts";
import { Input } from "./input.ts";
import type { NodeAddress, NodeLink } from "./node-link.ts";
import { NodeRefused, NodeUnreachable, NotRunning } from "./refusals.ts";
import { SentInput } from "./sent-input.ts";

/**
 * How long to look for the next agent of the node, after a move if there is one. Its guests keep a command
 * for longer.
 */
const RESUME_MS = 20_000;
const RESUME_PAUSE_MS = 50;

/**
 * Max input of a connection that the guest has not received. The node buffers it, and less than what is kept
 * here of it.
 */
const UNDER_WAY_BYTES_MAX = 128 * 1024;
/** Step in which a connection's output is acknowledged. */
const ACKNOWLEDGED_STEP_BYTES = CONNECTION_WINDOW_BYTES / 4;

/** Where a machine runs. `hasWaited`: it was being moved until now. */
export interface Located {
  readonly node: NodeAddress;
  readonly hasWaited: boolean;
}

/**
 * Finds the machine of a command whose connection broke; waits while it moves. `isStale`: the node that was
 * found last does not run it. Throws a Refusal when it does not run and is not being moved.
 */
export type Locate = (options: { readonly isStale: boolean }) => Promise<Located>;

export interface OpenExecOptions {
  /** Absent: it is looked for only at the node where it began. */
  readonly locate?: Locate;
  /** Whose share of the event loop its output uses. */
  readonly tenantId: string;
  readonly machineId: string;
  readonly start: ExecStart;
  /**
   * It is a connection to this port of the guest, and of `start` only the resume key counts. Absent: it is a
   * command.
   */
  readonly port?: number;
  readonly signal: AbortSignal;
}

const pathOf = ({ machineId, port }: OpenExecOptions): string =>
  `/v1/machines/${machineId}/${port === undefined ? "exec" : "connections"}`;

const firstFrame = ({ start, port }: OpenExecOptions): Buffer =>
  encodeLinkFrame("start", JSON.stringify(port === undefined ? start : { port, resumeKey: start.resumeKey }));

/**
 * Resolves when the node has accepted the command, or the guest the connection. Throws like runOnNode; of a
 * connection that is refused a NodeRefused.
 */
export async function openOnNode(link: NodeLink, node: NodeAddress, options: OpenExecOptions): Promise<OpenExec> {
  const { start, port, signal } = options;
  const gone = new AbortController();
  const input = new Input();
  input.push(firstFrame(options));
  try {
    const { headers, body } = await link.openAnswer(node, {
      method: "POST",
      path: pathOf(options),
      body: input,
      contentType: "application/octet-stream",
      headersTimeout: HEADERS_TIMEOUT_MS,
      signal: AbortSignal.any([signal, gone.signal]),
    });
    const connection = connectionOf(input, body, gone);
    const isKept = port === undefined ? headers[RESUMES_HEADER] !== undefined : (await resumedOf(connection)).isKept;
    const isResumable = start.resumeKey !== undefined && isKept === true;
    const exec = new OpenExec(link, node, { ...options, isResumable }, connection);
    await exec.lookAhead();
    return exec;
  } catch (error) {
    input.destroy();
    if (port !== undefined) gone.abort();
    const isRefused = port !== undefined && error instanceof NodeRefused;
    if (isRefused || error instanceof Refusal || error instanceof NotRunning || signal.aborted) throw error;
    throw new NodeUnreachable(node.nodeId, error);
  }
}

interface Parts extends OpenExecOptions {
  /** Whether the node keeps the command when its agent ends. */
  readonly isResumable: boolean;
}

/** What happened to a command before its connection broke. */
export interface BrokenExec {
  readonly startedAt: number;
  readonly stdin: Buffer | null;
  readonly received: { readonly stdout: number; readonly stderr: number };
}

export class OpenExec {
  readonly #link: NodeLink;
  #node: NodeAddress;
  readonly #parts: Parts;
  readonly #closed = new AbortController();
  readonly #sent = new SentInput();
  readonly #received = { stdout: 0, stderr: 0 };
  #startedAt: number;
  #terminal: ExecResume["terminal"];
  /** null: it broke, and no other was made yet. */
  #connection: Connection | null;
  #resumed = Promise.withResolvers<void>();
  /** Resolved when the guest has received more of a connection's input. */
  #taken = Promise.withResolvers<void>();
  #acknowledged = 0;
  #isInputOver = false;
  #isRequestOver = false;

  constructor(link: NodeLink, node: NodeAddress, parts: Parts, connection: Connection | null) {
    this.#link = link;
    this.#node = node;
    this.#parts = parts;
    this.#connection = connection;
    this.#startedAt = link.clock.monotonic();
    this.#terminal = parts.start.terminal;
  }

  /** A command whose connection has broken: `run` resumes it. */
  static broken(link: NodeLink, node: NodeAddress, options: OpenExecOptions, before: BrokenExec): OpenExec {
    const exec = new OpenExec(link, node, { ...options, isResumable: true }, null);
    exec.#startedAt = before.startedAt;
    Object.assign(exec.#received, before.received);
    if (before.stdin !== null) exec.#sent.add(before.stdin);
    exec.#isInputOver = exec.#isRequestOver = true;
    return exec;
  }

  /** Sends a frame; false when the queue is full: wait for `room`. Frames after the end are dropped. */
  send(type: LinkFrameType, payload: Uint8Array | string = ""): boolean {
    const connection = this.#connection;
    if (this.#isInputOver) return true;
    if (type === "stdin" && this.#parts.isResumable) this.#sent.add(payload as Uint8Array);
    if (type === "resize") this.#terminal = JSON.parse(String(payload)) as ExecResume["terminal"];
    if (connection !== null && !connection.input.destroyed)
      return connection.input.push(encodeLinkFrame(type, payload)) && !this.#isInputUnderWay;
    // It is sent when the command was resumed.
    return this.#parts.isResumable ? this.#sent.isSmall : true;
  }

  /** Whether it is being looked for. */
  get isBroken(): boolean {
    return this.#connection === null;
  }

  /** Resolves when the queue has room, or the request has ended. */
  get room(): Promise<void> {
    const connection = this.#connection;
    // The end of a connection may be seen here before it is seen by `run`.
    const isLost = connection === null || (connection.input.destroyed && this.#parts.isResumable);
    if (isLost) return this.#resumed.promise;
    return this.#isInputUnderWay ? this.#taken.promise : connection.input.room;
  }

  /** Ends the input. */
  endInput(): void {
    this.send("stdinEnd");
    this.#isInputOver = true;
    // A connection's request continues to say how much of the output arrived.
    if (this.#parts.port === undefined) this.#endRequest();
  }

  /**
   * Throws a failure that arrived with the response's head, while the caller's request can still be refused.
   */
  async lookAhead(): Promise<void> {
    const connection = this.#connection;
    if (connection === null || connection.body.readableLength === 0) return;
    const { value, done } = await connection.chunks.next();
    if (done === true) return;
    connection.ahead.add(connection.decoder.push(value));
    const { first } = connection.ahead;
    if (first?.type === "failure") await deliverFrame(first, { onOutput: () => undefined }, this.#parts.machineId);
  }

  /**
   * Delivers output until the command has ended. Throws a Refusal when its result is unknown. `onResumed` is
   * called when it was resumed.
   */
  async run(sink: OutputSink, onResumed = (): void => undefined): Promise<ExecExit> {
    const { machineId } = this.#parts;
    let cause: unknown = null;
    try {
      for (;;) {
        try {
          return await this.#deliver(this.#connection ?? (await this.#resume(onResumed)), sink);
        } catch (error) {
          if (!(error instanceof Broken)) throw error;
          cause ??= error.cause;
          if (!this.#parts.isResumable || this.#isClosed) throw cause;
          // A node that is alive would read on.
          this.#connection?.gone.abort();
          this.#connection = null;
        }
      }
    } catch (error) {
      if (error instanceof Refusal || this.#isClosed) throw error;
      const work = this.#parts.port === undefined ? "command" : "connection";
      throw this.#link.cutOff(this.#node.nodeId, machineId, work, cause ?? error);
    } finally {
      this.#resumed.resolve();
      this.#taken.resolve();
      // An incomplete request must not end normally: the node would mistake a part for all of the input.
      if (!this.#isRequestOver) this.#connection?.input.destroy();
      await this.#connection?.chunks.return?.();
    }
  }

  /** Ends the command, unless it has ended. */
  close(): void {
    this.#closed.abort();
    this.#connection?.gone.abort();
  }

  get #isClosed(): boolean {
    return this.#closed.signal.aborted || this.#parts.signal.aborted;
  }

  /** Throws Broken when the connection ends before the command does. */
  async #deliver(connection: Connection, sink: OutputSink): Promise<ExecExit> {
    const { tenantId, machineId } = this.#parts;
    for (;;) {
      for (let frame = connection.ahead.take(); frame !== undefined; frame = connection.ahead.take()) {
        const { type, payload } = frame;
        const delivered = frame;
        if (type === "resumed") {
          this.#forgetInput(readExecResumed(jsonOf(frame)).stdinBytes);
          continue;
        }
        if (type === "stdout" || type === "stderr") this.#received[type] += payload.byteLength;
        const taken = this.#link.turns.run(tenantId, () => deliverFrame(delivered, sink, machineId));
        const exit = taken instanceof Promise ? await taken : taken;
        this.#acknowledge(connection);
        if (exit === null) continue;
        // The connection of a complete request can be reused.
        this.#isInputOver = true;
        this.#endRequest();
        return exit;
      }
      const { value, done } = await connection.chunks.next().catch((cause: unknown) => {
        throw new Broken("the connection broke", { cause });
      });
      if (done === true) throw new Broken("", { cause: new Error("the answer ended without an exit frame") });
      connection.ahead.add(connection.decoder.push(value));
    }
  }

  /** Acknowledges output, so that the guest need not keep it. */
  #acknowledge({ input }: Connection): void {
    const { stdout: stdoutBytes } = this.#received;
    if (this.#parts.port === undefined || stdoutBytes < this.#acknowledged + ACKNOWLEDGED_STEP_BYTES) return;
    this.#acknowledged = stdoutBytes;
    if (!this.#isRequestOver && !input.destroyed) input.push(encodeLinkFrame("taken", JSON.stringify({ stdoutBytes })));
  }

  #forgetInput(stdinBytes: number): void {
    this.#sent.forget(stdinBytes);
    if (this.#isInputUnderWay) return;
    this.#taken.resolve();
    this.#taken = Promise.withResolvers();
  }

  /** Whether too much input is under way for more to be sent. */
  get #isInputUnderWay(): boolean {
    return this.#parts.port !== undefined && this.#parts.isResumable && this.#sent.keptBytes > UNDER_WAY_BYTES_MAX;
  }

  /**
   * Looks for the command where its machine is. Throws when it is not found in time or cannot be continued.
   */
  async #search(): Promise<Connection> {
    const { locate } = this.#parts;
    const { clock } = this.#link;
    let until = clock.monotonic() + RESUME_MS;
    for (let isStale = false; ; ) {
      try {
        const { node, hasWaited } = (await locate?.({ isStale })) ?? { node: this.#node, hasWaited: false };
        this.#node = node;
        if (hasWaited) until = clock.monotonic() + RESUME_MS;
        return await this.#reconnect();
      } catch (error) {
        isStale = error instanceof NotRunning;
        const isTransient = isStale || error instanceof NodeUnreachable || error instanceof Broken;
        if (!isTransient || clock.monotonic() >= until) throw error;
        await clock.sleep(RESUME_PAUSE_MS);
      }
    }
  }

  async #resume(onResumed: () => void): Promise<Connection> {
    const { signal } = this.#parts;
    const either = AbortSignal.any([signal, this.#closed.signal]);
    const left = Promise.withResolvers<never>();
    either.addEventListener("abort", () => left.reject(reasonOf(either)), { once: true });
    const found = this.#search();
    // The node ends a command whose connection breaks.
    found.then(
      (connection) => {
        const end = (): void => connection.gone.abort();
        either.addEventListener("abort", end, { once: true });
        if (either.aborted) end();
      },
      () => undefined,
    );
    if (either.aborted) throw reasonOf(either);
    const connection = await Promise.race([found, left.promise]);
    this.#connection = connection;
    // The lost agent may not have said so. If the guest has everything, nothing else will.
    if (this.#parts.port !== undefined) this.#forgetInput(connection.inputBytes);
    this.#resumed.resolve();
    this.#resumed = Promise.withResolvers();
    onResumed();
    return connection;
  }

  /** One attempt. Sends what the guest does not have of the input. */
  async #reconnect(): Promise<Connection> {
    const { resumeKey, timeoutMs, hasStdin } = this.#parts.start;
    const { stdout: stdoutBytes, stderr: stderrBytes } = this.#received;
    const elapsedMs = Math.round(this.#link.clock.monotonic() - this.#startedAt);
    const terminal = this.#terminal;
    const resume = { resumeKey, stdoutBytes, stderrBytes, elapsedMs, timeoutMs, hasStdin, terminal };
    const gone = new AbortController();
    const input = new Input();
    input.push(encodeLinkFrame("resume", JSON.stringify(resume)));
    try {
      const body = await this.#link.open(this.#node, {
        method: "POST",
        path: pathOf(this.#parts),
        body: input,
        contentType: "application/octet-stream",
        headersTimeout: HEADERS_TIMEOUT_MS,
        signal: gone.signal,
      });
      const connection = connectionOf(input, body, gone);
      connection.inputBytes = (await resumedOf(connection)).stdinBytes;
      const rest = this.#sent.from(connection.inputBytes);
      if (rest === null) throw new Error("the guest lacks input that is no longer kept");
      for (const chunk of rest)
        for (let at = 0; at < chunk.byteLength; at += LINK_PAYLOAD_BYTES_MAX)
          input.push(encodeLinkFrame("stdin", chunk.subarray(at, at + LINK_PAYLOAD_BYTES_MAX)));
      if (this.#isInputOver) {
        input.push(encodeLinkFrame("stdinEnd"));
        if (this.#parts.port === undefined) input.push(null);
      }
      return connection;
    } catch (error) {
      gone.abort();
      input.destroy();
      throw error;
    }
  }

  #endRequest(): void {
    if (this.#isRequestOver) return;
    this.#isRequestOver = true;
    this.#connection?.input.push(null);
  }
}
