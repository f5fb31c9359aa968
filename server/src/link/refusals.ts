/**
 * The errors of calls to nodes, distinguished by class and code.
 *
 * Pure. Always: a program decides by the class or by `code`, never by a message.
 */
import { ownMessageOf } from "@flotilla/base/errors";
import { Refusal } from "@flotilla/contract/errors";
import type { LinkError } from "@flotilla/contract/link/link";
import { readLinkError } from "@flotilla/contract/link/generated";
import { clipped } from "@flotilla/contract/link/read";
import { parseNodeText } from "../json/node-message.ts";

const MESSAGE_CHARACTERS_MAX = 500;

/** Errors of connections that could not be opened. */
const unopened = new WeakSet<Error>();

/** Marks the error of a connection that could not be opened: no request was sent on it. */
export function asUnopened(error: Error): Error {
  unopened.add(error);
  return error;
}

/** Whether a connection could not be opened. For a Unix socket the system says that no agent listens. */
function isUnopened(cause: unknown): boolean {
  if (!(cause instanceof Error)) return false;
  const { code } = cause as NodeJS.ErrnoException;
  return unopened.has(cause) || code === "ECONNREFUSED" || code === "ENOENT";
}

/** The node's agent is unreachable, or the connection broke before the answer was complete. */
export class NodeUnreachable extends Refusal {
  readonly reason: string;
  /** Whether the node may have the request. */
  readonly mayBeSent: boolean;

  constructor(nodeId: string, cause: unknown) {
    super("unavailable", `node ${nodeId} does not answer; check that its agent runs there, then try again`);
    this.name = "NodeUnreachable";
    this.cause = cause;
    this.mayBeSent = !isUnopened(cause);
    this.reason = ownMessageOf(cause);
  }
}

/** The machine does not run on the node: the server's record of it is out of date. */
export class NotRunning extends Error {}

/** The node answered with an error. */
export class NodeRefused extends Error {
  readonly status: number;
  readonly code: LinkError["code"];

  constructor(status: number, { code, message }: LinkError) {
    super(message);
    this.name = "NodeRefused";
    this.status = status;
    this.code = code;
  }
}

/** The error for an answer of the node. `text`: its body, or the beginning of it. */
export function refusalOf(
  nodeId: string,
  status: number,
  text: string | Uint8Array,
): Refusal | NotRunning | NodeRefused {
  const error = linkError(text);
  switch (error.code) {
    case "version":
      return new Refusal("unavailable", `node ${nodeId} refused the call: ${error.message}`);
    case "not_running":
      return new NotRunning(error.message);
    default:
      return new NodeRefused(status, error);
  }
}

function linkError(text: string | Uint8Array): LinkError {
  try {
    return readLinkError(parseNodeText(text));
  } catch {
    // It may become a part of an event, and PostgreSQL refuses what is not text.
    return {
      code: "internal",
      message: clipped(Buffer.from(text).toString(), "the answer of a node", MESSAGE_CHARACTERS_MAX),
    };
  }
}
