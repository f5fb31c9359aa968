/**
 * Runs one command over the link: the start frame and standard input out, output frames and the exit frame in.
 *
 * Always: output is handed on in order and as it comes, and the node is read no faster than the sink takes it; an
 * aborted signal breaks the connection, upon which the node ends the command with all its descendants, unless it was
 * started in the background.
 *
 * The request's body is sent whole, with its length: without a terminal all input is known when the command starts.
 */
import { Refusal } from "@flotilla/contract/errors";
import type { ExecExit, ExecFailure, ExecStart } from "@flotilla/contract/link";
import { encodeLinkFrame, LINK_PAYLOAD_BYTES_MAX, LinkDecoder, type LinkFrame } from "@flotilla/contract/link-stream";
import { type NodeAddress, NodeAway, type NodeLink } from "./node-link.ts";

/** The machine does not run there: what was known of it is out of date. */
export class NotRunning extends Error {}

export interface OutputSink {
  /** A promise that is returned is waited for before more is read. The chunk may be kept. */
  onOutput(stream: "stdout" | "stderr", chunk: Uint8Array): void | Promise<void>;
  /** The node has answered that it takes the command up. */
  onBegun?(): void;
  /** Whether a promise that was given is waited for: then it is the sink that holds the command up. */
  readonly isFull?: boolean;
}

/** The node tells its caller within this that the command runs, even when the command is silent. */
export const HEADERS_TIMEOUT_MS = 15_000;
const REFUSAL_BYTES_MAX = 64 * 1024;

/** Throws NotRunning, NodeAway, or a Refusal when the guest does not answer or the command makes no sense there. */
export async function runOnNode(
  link: NodeLink,
  node: NodeAddress,
  options: {
    readonly machineId: string;
    readonly start: ExecStart;
    readonly stdin: Buffer | null;
    readonly sink: OutputSink;
    readonly signal: AbortSignal;
  },
): Promise<ExecExit> {
  const { machineId, start, stdin, sink, signal } = options;
  let hasBegun = false;
  try {
    const { statusCode, body } = await link.pool(node.address).request({
      method: "POST",
      path: `/v1/machines/${machineId}/exec`,
      body: requestBody(start, stdin),
      headers: { "content-type": "application/octet-stream" },
      headersTimeout: HEADERS_TIMEOUT_MS,
      // Silence is the command's business; its time limit is kept by the node, and by the caller's signal.
      bodyTimeout: 0,
      signal,
    });
    if (statusCode !== 200) throw await refused(statusCode, body);
    hasBegun = true;
    sink.onBegun?.();
    const decoder = new LinkDecoder();
    for await (const chunk of body as AsyncIterable<Buffer>) {
      for (const frame of decoder.push(chunk)) {
        const taken = take(frame, sink, machineId);
        // Most output is taken at once, and then there is nothing to wait for.
        const exit = taken instanceof Promise ? await taken : taken;
        if (exit !== null) return exit;
      }
    }
    throw new Error("the answer ended without an exit frame");
  } catch (error) {
    if (error instanceof Refusal || error instanceof NotRunning || signal.aborted) throw error;
    if (hasBegun) throw cutOff(node.nodeId, machineId);
    throw new NodeAway(node.nodeId, error);
  }
}

/** The command has begun, so it must not be sent again without its owner's knowing. */
export const cutOff = (nodeId: string, machineId: string): Refusal =>
  new Refusal(
    "unavailable",
    `the connection to node ${nodeId} broke while the command ran in machine ${machineId}; how it ended is not known, look before you run it again`,
  );

function requestBody(start: ExecStart, stdin: Buffer | null): Buffer {
  const frames = [encodeLinkFrame("start", JSON.stringify(start))];
  if (stdin !== null) {
    for (let at = 0; at < stdin.byteLength; at += LINK_PAYLOAD_BYTES_MAX) {
      frames.push(encodeLinkFrame("stdin", stdin.subarray(at, at + LINK_PAYLOAD_BYTES_MAX)));
    }
    frames.push(encodeLinkFrame("stdinEnd"));
  }
  return frames.length === 1 && frames[0] !== undefined ? frames[0] : Buffer.concat(frames);
}

/** Hands a frame of the node's on; the exit is null as long as the command runs. Throws what a failure says. */
export function take(frame: LinkFrame, sink: OutputSink, machineId: string): Promise<null> | ExecExit | null {
  if (frame.type === "stdout" || frame.type === "stderr") {
    const waiting = sink.onOutput(frame.type, frame.payload);
    return waiting instanceof Promise ? waiting.then(() => null) : null;
  }
  if (frame.type === "exit") return readExit(parse(frame));
  if (frame.type === "failure") throw failure(parse(frame) as Partial<ExecFailure>, machineId);
  throw new Error(`a ${frame.type} frame does not come from a node`);
}

const parse = (frame: LinkFrame): unknown => JSON.parse(Buffer.from(frame.payload).toString("utf8"));

function readExit(value: unknown): ExecExit {
  const { exitCode, durationMs, hasTimedOut, pid } = value as Partial<ExecExit>;
  if (!Number.isInteger(exitCode) || typeof durationMs !== "number") throw new Error("the exit frame does not fit");
  return {
    exitCode: (exitCode ?? 0) | 0,
    durationMs: Math.max(0, Math.round(durationMs)),
    hasTimedOut: hasTimedOut === true,
    pid: typeof pid === "number" ? pid : null,
  };
}

function failure({ code, message }: Partial<ExecFailure>, machineId: string): Error {
  const why = String(message).slice(0, 500);
  switch (code) {
    case "not_running":
      return new NotRunning(why);
    case "busy":
      return new Refusal("conflict", `exec in ${machineId} was refused: ${why}; try again when one of them has ended`);
    case "invalid":
      return new Refusal("invalid_request", `exec in ${machineId} was refused: ${why}`);
    default:
      return new Refusal(
        "guest_unreachable",
        `exec in ${machineId} failed, its agent does not answer: ${why}; stop and start the machine`,
      );
  }
}

/** The error that a status other than 200 means. */
export async function refused(status: number, body: { text(): Promise<string> }): Promise<Error> {
  const text = (await body.text()).slice(0, REFUSAL_BYTES_MAX);
  return status === 404 || status === 409
    ? new NotRunning(text)
    : new Error(`exec was answered with ${status}: ${text}`);
}
