/**
 * A part of a machine's log as its node sends it, and new lines with `isFollowing`.
 *
 * Always: a node of an earlier release, which knows no parts, is refused instead of believed.
 */
import { Refusal } from "@flotilla/contract/errors";
import type { LogMessage } from "@flotilla/contract/link/link";
import { LogMessages } from "./log-messages.ts";
import type { NodeAddress, NodeLink } from "./node-link.ts";
import { NodeUnreachable, NodeRefused } from "./refusals.ts";

const HEADERS_TIMEOUT_MS = 10_000;

/** Messages as they arrive together. */
export type NodeLog = AsyncIterable<readonly LogMessage[]>;

/** The query of a node's log, as the contract's link/logs.ts says. */
export interface NodeLogQuery {
  readonly tail?: number | undefined;
  /** A position that the node returned earlier. */
  readonly after?: string | undefined;
  readonly since?: number | undefined;
  readonly before?: string | undefined;
  readonly until?: number | undefined;
  readonly limit?: number | undefined;
  readonly search?: string | undefined;
  /** With positions of lines. Every query but `tail` and `after` has them. */
  readonly marks?: 1 | undefined;
}

export interface LogOptions {
  readonly machineId: string;
  readonly query: NodeLogQuery;
  readonly isFollowing: boolean;
  /** Ends the reading. */
  readonly signal: AbortSignal;
}

/** null: the node does not have the machine. Throws a Refusal for every other answer than the log. */
export async function openLogOnNode(
  link: NodeLink,
  node: NodeAddress,
  { machineId, query, isFollowing, signal }: LogOptions,
): Promise<NodeLog | null> {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries({ ...query, follow: isFollowing ? 1 : undefined }))
    if (value !== undefined) parameters.set(name, String(value));
  try {
    const body = await link.open(node, {
      method: "GET",
      path: `/v1/machines/${machineId}/logs?${parameters}`,
      headersTimeout: HEADERS_TIMEOUT_MS,
      signal,
    });
    const messages = messagesOf(body);
    return query.marks === undefined ? messages : await understood(messages, node.nodeId);
  } catch (error) {
    if (error instanceof NodeRefused && error.status === 404) return null;
    throw error instanceof Refusal ? error : new NodeUnreachable(node.nodeId, error);
  }
}

async function* messagesOf(body: AsyncIterable<Uint8Array>): AsyncGenerator<readonly LogMessage[], void, undefined> {
  const messages = new LogMessages();
  for await (const chunk of body) {
    const complete = messages.push(chunk);
    if (complete.length > 0) yield complete;
  }
}

/** Throws a Refusal when the first message is not a mark. */
async function understood(
  messages: AsyncGenerator<readonly LogMessage[], void, undefined>,
  nodeId: string,
): Promise<NodeLog> {
  const { value: first } = await messages.next();
  if (first?.[0] === undefined || !("next" in first[0])) {
    await messages.return();
    const text = `node ${nodeId} runs an earlier release, which reads no parts of a log and searches none: upgrade it`;
    throw new Refusal("unavailable", text);
  }
  return withFirst(first, messages);
}

async function* withFirst(
  first: readonly LogMessage[],
  rest: AsyncGenerator<readonly LogMessage[], void, undefined>,
): NodeLog {
  try {
    yield first;
    yield* rest;
  } finally {
    await rest.return();
  }
}
