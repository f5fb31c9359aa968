/**
 * A request to a node whose answer is one JSON value.
 *
 * Always: an answer is bounded, and one that breaks, stops in the middle, is too long or means nothing is a
 * node that does not answer.
 */
import { Refusal } from "@flotilla/contract/errors";
import { type MessageName, parseNodeText } from "../json/node-message.ts";
import type { NodeAddress, NodeLink, StreamRequest } from "./node-link.ts";
import { NodeRefused, NodeUnreachable } from "./refusals.ts";

const ANSWER_BYTES_MAX = 64 * 1024;

/** What the caller of a node receives for its errors. */
export interface NodeErrors {
  readonly signal: AbortSignal;
  /** Error of a refusal by the node. */
  readonly refusal: (refused: NodeRefused) => Error;
}

export interface JsonRequest<T> extends NodeErrors, Omit<StreamRequest, "contentType" | "body"> {
  /** JSON. */
  readonly body?: string;
  /** Checks the answer, and throws for one that means nothing. */
  readonly read: (value: unknown) => T;
  /** The name of an answer that may be large; it is then read in turns of the asker. */
  readonly large?: { readonly name: MessageName; readonly asker: string; readonly bytesMax: number };
}

/**
 * Throws NodeUnreachable, also when the answer was lost, what `refusal` makes of the node's, and the reason
 * of an aborted signal.
 */
export async function requestJson<T>(
  link: NodeLink,
  node: NodeAddress,
  { read, refusal, large, ...request }: JsonRequest<T>,
): Promise<T> {
  return await withNodeErrors(node, { signal: request.signal, refusal }, async () => {
    const answer = await link.open(node, {
      // A node that has begun to answer has its whole answer.
      bodyTimeout: request.headersTimeout,
      ...request,
      ...(request.body === undefined ? {} : { contentType: "application/json" }),
    });
    const chunks: Buffer[] = [];
    let size = 0;
    for await (const chunk of answer as AsyncIterable<Buffer>) {
      size += chunk.byteLength;
      if (size > (large?.bytesMax ?? ANSWER_BYTES_MAX)) throw new Error("the answer is too long");
      chunks.push(chunk);
    }
    const bytes = Buffer.concat(chunks);
    if (large === undefined) return read(parseNodeText(bytes));
    return await link.message(node, large.name, { bytes, asker: large.asker, read });
  });
}

/** Runs calls of a node, and throws what `requestJson` throws for their errors. */
export async function withNodeErrors<T>(
  { nodeId }: NodeAddress,
  { signal, refusal }: NodeErrors,
  work: () => Promise<T>,
): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof NodeRefused) throw refusal(error);
    if (error instanceof Refusal || signal.aborted) throw error;
    throw new NodeUnreachable(nodeId, error);
  }
}
