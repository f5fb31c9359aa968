/**
 * One request to a node whose frames are read as they come: of a command, a connection or a kept terminal.
 */
import type { Readable } from "node:stream";
import type { ExecResumed } from "@flotilla/contract/link/link";
import { readExecResumed, readLinkError } from "@flotilla/contract/link/generated";
import { LinkDecoder, type LinkFrame } from "@flotilla/contract/link/frames";
import { parseNodeText } from "../json/node-message.ts";
import { FrameQueue } from "./frame-queue.ts";
import type { Input } from "./input.ts";
import { NodeRefused, NotRunning } from "./refusals.ts";

/** The connection to the node broke; the command may run on. */
export class Broken extends Error {}

/** One request to the node. */
export interface Connection {
  readonly input: Input;
  readonly body: Readable;
  readonly chunks: AsyncIterator<Buffer, undefined>;
  readonly decoder: LinkDecoder;
  readonly gone: AbortController;
  /** Frames that have arrived and were not delivered. */
  readonly ahead: FrameQueue;
  /** How much of the input the guest had when it was resumed. */
  inputBytes: number;
}

export function connectionOf(input: Input, body: Readable, gone: AbortController): Connection {
  const chunks = (body as AsyncIterable<Buffer, undefined>)[Symbol.asyncIterator]();
  return { input, body, chunks, decoder: new LinkDecoder(), gone, ahead: new FrameQueue(), inputBytes: 0 };
}

/**
 * Reads until the node says how much of its input the guest has. Throws Broken; NotRunning or a NodeRefused
 * when it has no such command, or the guest accepts no connection.
 */
export async function resumedOf(connection: Connection): Promise<ExecResumed> {
  for (;;) {
    const { value, done } = await connection.chunks.next().catch((cause: unknown) => {
      throw new Broken("the connection broke", { cause });
    });
    if (done === true) throw new Broken("", { cause: new Error("the answer ended before the command was resumed") });
    connection.ahead.add(connection.decoder.push(value));
    const first = connection.ahead.take();
    if (first === undefined) continue;
    if (first.type === "resumed") return readExecResumed(jsonOf(first));
    if (first.type !== "failure") throw new Error(`a ${first.type} frame came before the command was resumed`);
    const failure = readLinkError(jsonOf(first));
    if (failure.code === "not_running") throw new NotRunning(failure.message);
    throw new NodeRefused(502, failure);
  }
}

export const jsonOf = ({ payload }: LinkFrame): unknown => parseNodeText(payload);
