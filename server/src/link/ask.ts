/**
 * A request to a node whose answer is one JSON value.
 *
 * Always: an answer is bounded, and one that breaks, stops in the middle, is too long or means nothing is a
 * node that does not answer.
 */
import { Refusal } from "@flotilla/contract/errors";
import type { NodeAddress, NodeLink, StreamRequest } from "./node-link.ts";
import { NodeRefused, NodeUnreachable } from "./refusals.ts";

const ANSWER_CHARACTERS_MAX = 16_384;

/** What the errors of a conversation mean to its caller. */
export interface Meaning {
  readonly signal: AbortSignal;
  /** Error of a refusal by the node. */
  readonly refusal: (refused: NodeRefused) => Error;
}

export interface Question<T> extends Meaning, Omit<StreamRequest, "contentType" | "body"> {
  /** JSON. */
  readonly body?: string;
  /** Checks the answer, and throws for one that means nothing. */
  readonly read: (value: unknown) => T;
  /** Default: 16,384. */
  readonly charactersMax?: number;
}

/**
 * Throws NodeUnreachable, also when the answer was lost, what `refusal` makes of the node's, and the reason
 * of an aborted signal.
 */
export async function ask<T>(
  link: NodeLink,
  node: NodeAddress,
  { read, refusal, charactersMax = ANSWER_CHARACTERS_MAX, ...request }: Question<T>,
): Promise<T> {
  return await explained(node, { signal: request.signal, refusal }, async () => {
    const answer = await link.open(node, {
      // A node that has begun to answer has its whole answer.
      bodyTimeout: request.headersTimeout,
      ...request,
      ...(request.body === undefined ? {} : { contentType: "application/json" }),
    });
    let text = "";
    for await (const chunk of answer as AsyncIterable<Buffer>) {
      text += chunk.toString("utf8");
      if (text.length > charactersMax) throw new Error("the answer is too long");
    }
    return read(JSON.parse(text));
  });
}

/** Gives the errors of a conversation with a node their meaning, as `ask` does. */
export async function explained<T>(
  { nodeId }: NodeAddress,
  { signal, refusal }: Meaning,
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
