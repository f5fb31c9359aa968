/**
 * What the answers of a node to a command mean, for both ways of running one: exec-link.ts and open-exec.ts.
 *
 * Pure. Always: a node sends output, then one exit or failure; any other frame is an error.
 */
import { Refusal } from "@flotilla/contract/errors";
import { RESUME_KEY_BYTES } from "@flotilla/contract/guest/frame";
import type { ExecExit, LinkError } from "@flotilla/contract/link/link";
import { readExecExit, readLinkError } from "@flotilla/contract/link/generated";
import type { LinkFrame } from "@flotilla/contract/link/frames";
import { parseNodeText } from "../json/node-message.ts";
import { NotRunning } from "./refusals.ts";

export interface OutputSink {
  /** If it returns a promise, reading continues when that resolves. The chunk may be kept. */
  onOutput(stream: "stdout" | "stderr", chunk: Uint8Array): void | Promise<void>;
  /** The node has accepted the command. */
  onStarted?(): void;
  /** The command failed, and its error follows when its reason is known. */
  onFailing?(): void;
  /** Whether the sink has returned a promise that is pending, so that the sink delays the command. */
  readonly isFull?: boolean;
  /** Max bytes at a time for a sink that does much for each byte, in turns with other tenants'. */
  readonly pieceBytes?: number;
}

/** The node answers within this time that the command runs, even if the command is silent. */
export const HEADERS_TIMEOUT_MS = 15_000;
/** Names a command, to resume it after a restart of its node's agent. */
export const resumeKeyOf = ({ randomBytes }: { readonly randomBytes: (size: number) => Buffer }): string =>
  randomBytes(RESUME_KEY_BYTES).toString("hex");

/**
 * Delivers a frame of the node. Returns the exit, or null while the command runs. Throws the error of a
 * failure frame.
 */
export function deliverFrame(frame: LinkFrame, sink: OutputSink, machineId: string): Promise<null> | ExecExit | null {
  if (frame.type === "stdout" || frame.type === "stderr") {
    // With an empty frame the node checks the connection.
    if (frame.payload.byteLength === 0) return null;
    const waiting = sink.onOutput(frame.type, frame.payload);
    return waiting instanceof Promise ? waiting.then(() => null) : null;
  }
  if (frame.type === "exit") return readExecExit(parse(frame));
  if (frame.type === "failure") throw failureOf(readLinkError(parse(frame)), machineId);
  throw new Error(`a ${frame.type} frame does not come from a node`);
}

function parse({ payload }: LinkFrame): unknown {
  return parseNodeText(payload);
}

/** The error for a failure frame. */
export function failureOf({ code, message }: LinkError, machineId: string): Error {
  switch (code) {
    case "not_running":
      return new NotRunning(message);
    case "busy": {
      const text = `exec in ${machineId} was refused: ${message}; try again when one of them has ended`;
      return new Refusal("conflict", text);
    }
    case "paused":
      return new Refusal("unavailable", `machine ${machineId} is paused, so exec in it failed: ${message}`);
    case "invalid":
      return new Refusal("invalid_request", `exec in ${machineId} was refused: ${message}`);
    default: {
      const why = `its agent does not answer: ${message}`;
      const text = `exec in ${machineId} failed, ${why}; stop and start the machine if it still runs`;
      return new Refusal("guest_unreachable", text);
    }
  }
}
