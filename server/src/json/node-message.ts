/**
 * Reads what nodes say, reports and answers: bounded before it is parsed, and then by the schemas of the
 * link.
 *
 * Pure. Always: JSON of a node is parsed nowhere else. A large message is read in a thread (large-json.ts).
 */
import { messageOf } from "@flotilla/base/errors";
import { Refusal } from "@flotilla/contract/errors";
import { readHeartbeat, readNodeImages, readOutgoingMachine } from "@flotilla/contract/link/generated";
import type { Heartbeat } from "@flotilla/contract/link/link";
import { CHANGES_BYTES_MAX } from "@flotilla/contract/link/reports";
import { InvalidMessage } from "@flotilla/contract/link/read";
import { checkExtent, type Extent, parseJson } from "./json.ts";

/** 8 MiB of a report hold 10,000 running machines with their runs: 370,000 values on 6 levels. */
const NODE_EXTENT: Extent = { valuesMax: 400_000, levelsMax: 64 };
/** A line of a stream, a frame's fields, or a small answer. */
export const NODE_TEXT_BYTES_MAX = 64 * 1024;

/** The messages that may be large. */
const READERS = { heartbeat: readHeartbeat, images: readNodeImages, outgoing: readOutgoingMachine };
export type MessageName = keyof typeof READERS;

/** The message that the bytes are. Throws a Refusal when they are not, or are more than is sensible. */
export function readNodeMessage(name: MessageName, bytes: Uint8Array): unknown {
  checkExtent(bytes, NODE_EXTENT);
  const message = fitting(name, parseJson(bytes, true));
  if (name === "heartbeat" && !(message as Heartbeat).isComplete && bytes.length > CHANGES_BYTES_MAX) {
    const text = `a report of changes has ${bytes.length} bytes; it may have ${CHANGES_BYTES_MAX}: report everything`;
    throw new Refusal("body_too_large", text);
  }
  return message;
}

function fitting(name: MessageName, value: unknown): unknown {
  try {
    return READERS[name](value);
  } catch (error) {
    if (!(error instanceof InvalidMessage)) throw error;
    throw new Refusal("invalid_body", `${name} does not fit: ${error.message}`);
  }
}

/** What a short text of a node says. Throws an Error when it is long, not JSON, or more than is sensible. */
export function parseNodeText(text: string | Uint8Array): unknown {
  const bytes = typeof text === "string" ? Buffer.from(text) : text;
  if (bytes.byteLength > NODE_TEXT_BYTES_MAX) throw new Error(`a text of a node has ${bytes.byteLength} bytes`);
  return asNodeError(() => {
    checkExtent(bytes, NODE_EXTENT);
    return parseJson(bytes, true);
  });
}

/** A refusal is for the one who sent the JSON: what a node answers is not its caller's fault. */
function asNodeError<T>(work: () => T): T {
  try {
    return work();
  } catch (error) {
    throw new Error(`an answer of a node was not read: ${messageOf(error)}`, { cause: error });
  }
}
