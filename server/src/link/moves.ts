/**
 * The server's side of a move between two nodes: contract/src/link/moves.ts describes the requests.
 *
 * Always:
 * - The files pass through this process, because nodes only dial out. Neither side is read faster than the
 *   other accepts it, so a move takes RELAY_BYTES_MAX of memory and the buffers of two connections, whatever
 *   the disk's size.
 * - The bytes take the turns of the machine's tenant, as all streams do.
 */
import { PassThrough } from "node:stream";
import { Refusal } from "@flotilla/contract/errors";
import {
  readIncomingState,
  readMoveProgress,
  readObservedMachine,
  readOutgoingMachine,
} from "@flotilla/contract/link/generated";
import { type MovedPart, partPath } from "@flotilla/contract/link/moved-parts";
import type { IncomingMachine, IncomingState, OutgoingMachine } from "@flotilla/contract/link/moves";
import type { ObservedMachine } from "@flotilla/contract/link/link";
import { parseNodeText } from "../json/node-message.ts";
import { requestJson, withNodeErrors, type NodeErrors, type JsonRequest } from "./json-request.ts";
import type { NodeAddress, NodeLink } from "./node-link.ts";
import { passBody } from "./pass-body.ts";
import { NodeRefused, NodeUnreachable } from "./refusals.ts";

/** A node may read a file of many gigabytes before it answers. */
const ANSWER_TIMEOUT_MS = 10 * 60_000;
/** A target writes a line each second. A source is silent while it reads what was sent before. */
const TARGET_SILENCE_MAX_MS = 60_000;
const SOURCE_SILENCE_MAX_MS = 10 * 60_000;
const RELAY_BYTES_MAX = 1024 * 1024;
const ANSWER_BYTES_MAX = 16 * 1024 * 1024;
const LINE_CHARACTERS_MAX = 64 * 1024;

export interface MoveCall {
  readonly tenantId: string;
  readonly machineId: string;
  /** The operation. */
  readonly moveId: string;
  readonly signal: AbortSignal;
}

/** The target has an earlier copy of the machine, which must be removed first. */
export class OlderCopy extends Error {}
/**
 * The machine's files changed, because a stop discards its memory: its node must be asked again what there
 * is.
 */
export class NotStopped extends Error {}
/** As many disks of running machines as may be at once are being sent from the node. */
export class NodeBusy extends Error {}
/** What arrived was not what was sent; it is sent again. */
export class ContentDiffers extends Error {}

/** What a node has of a machine. Throws NodeUnreachable, and a Refusal with what the node says. */
export async function describeOutgoing(
  link: NodeLink,
  node: NodeAddress,
  call: Pick<MoveCall, "machineId" | "signal">,
  { hasContent }: { readonly hasContent: boolean },
): Promise<OutgoingMachine> {
  const path = `/v1/machines/${call.machineId}/outgoing${hasContent ? "?content=1" : ""}`;
  const large = { name: "outgoing", asker: node.nodeId, bytesMax: ANSWER_BYTES_MAX } as const;
  return await askInMove(link, node, { method: "GET", path, signal: call.signal, large }, readOutgoingMachine);
}

const incomingPath = ({ machineId, moveId }: MoveCall): string => `/v1/machines/${machineId}/incoming/${moveId}`;

/**
 * Has the target expect the machine. Throws OlderCopy, NodeUnreachable, and a Refusal with what the node
 * says.
 */
export async function beginIncoming(
  link: NodeLink,
  node: NodeAddress,
  call: MoveCall,
  machine: IncomingMachine,
): Promise<IncomingState> {
  const request = {
    method: "PUT",
    path: incomingPath(call),
    body: JSON.stringify(machine),
    signal: call.signal,
  } as const;
  return await askInMove(link, node, request, readIncomingState);
}

/**
 * Makes what has arrived a machine of the target. `hasMemory`: false when its memory was discarded after it
 * had arrived.
 */
export async function commitIncoming(
  link: NodeLink,
  node: NodeAddress,
  call: MoveCall,
  { hasMemory }: { readonly hasMemory: boolean },
): Promise<ObservedMachine> {
  const path = `${incomingPath(call)}/commit${hasMemory ? "" : "?memory=0"}`;
  return await askInMove(link, node, { method: "POST", path, signal: call.signal }, readObservedMachine);
}

/** Has the target remove what has arrived, unless it is a machine already. */
export async function discardIncoming(link: NodeLink, node: NodeAddress, call: MoveCall): Promise<void> {
  await askInMove(link, node, { method: "DELETE", path: incomingPath(call), signal: call.signal }, () => undefined);
}

/** The node forgets the points of a machine, whose move has ended. */
export async function releaseOutgoing(
  link: NodeLink,
  node: NodeAddress,
  call: Pick<MoveCall, "machineId" | "signal">,
): Promise<void> {
  const path = `/v1/machines/${call.machineId}/outgoing`;
  await askInMove(link, node, { method: "DELETE", path, signal: call.signal }, () => undefined);
}

export interface RelayNodes {
  readonly source: NodeAddress;
  readonly target: NodeAddress;
}

interface Relayed extends Pick<MoveCall, "tenantId" | "signal"> {
  /** Path of the parts on the source. */
  readonly from: string;
  /** The same on the target. */
  readonly to: string;
}

export interface RelayOptions {
  /** Called with how many bytes have arrived. */
  readonly onBytes: (bytes: number) => void;
  /**
   * Called when the rest of a machine that ran has arrived, with when it was paused: epoch milliseconds of
   * the source's clock.
   */
  readonly onPaused?: (at: number) => void;
}

/**
 * Copies a part of a machine from one node to the other. Resolves with the bytes that were sent. Throws
 * NodeUnreachable when either side broke off, ContentDiffers, and a Refusal with what a node says.
 */
export async function relayPart(
  link: NodeLink,
  nodes: RelayNodes,
  call: MoveCall,
  part: MovedPart,
  options: RelayOptions,
): Promise<number> {
  const paths = { from: `/v1/machines/${call.machineId}/outgoing`, to: incomingPath(call) };
  return await relay(link, nodes, { ...call, ...paths }, part, options);
}

/** As `relayPart`, of what has these paths on the two nodes. */
export async function relay(
  link: NodeLink,
  { source, target }: RelayNodes,
  call: Relayed,
  part: MovedPart,
  { onBytes, onPaused }: RelayOptions,
): Promise<number> {
  const over = new AbortController();
  const signal = AbortSignal.any([call.signal, over.signal]);
  const input = new PassThrough({ highWaterMark: RELAY_BYTES_MAX });
  // The answer reports a broken connection.
  input.on("error", () => undefined);
  try {
    const blocks = await withNodeErrors(source, nodeErrors(call, source), () =>
      link.open(source, {
        // A source is paused for the rest.
        method: part.kind === "rest" ? "POST" : "GET",
        path: `${call.from}/${partPath(part)}`,
        headersTimeout: ANSWER_TIMEOUT_MS,
        bodyTimeout: SOURCE_SILENCE_MAX_MS,
        signal,
      }),
    );
    const answer = link.open(target, {
      method: "POST",
      path: `${call.to}/${partPath(part)}`,
      body: input,
      contentType: "application/octet-stream",
      headersTimeout: ANSWER_TIMEOUT_MS,
      bodyTimeout: TARGET_SILENCE_MAX_MS,
      signal,
    });
    const passing = passBody(blocks, input, (work) => link.turns.run(call.tenantId, work));
    const sent = passing.all.then(
      () => void input.end(),
      (error: unknown) => {
        // Half a stream must not look like an ended one.
        over.abort(error);
        throw new NodeUnreachable(source.nodeId, error);
      },
    );
    sent.catch(() => undefined);
    try {
      return await withNodeErrors(
        target,
        nodeErrors(call, target),
        async () => await arrival(await answer, onBytes, onPaused),
      );
    } catch (error) {
      if (over.signal.aborted && !call.signal.aborted) await sent;
      throw error;
    } finally {
      passing.stop();
    }
  } finally {
    over.abort(new Error("the copy has ended"));
    input.destroy();
  }
}

/** Reads how a file arrives. Resolves with its bytes when it is complete. */
async function arrival(
  answer: AsyncIterable<Buffer>,
  onBytes: RelayOptions["onBytes"],
  onPaused: RelayOptions["onPaused"],
): Promise<number> {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const chunk of answer) {
    const lines = (rest + decoder.decode(chunk, { stream: true })).split("\n");
    rest = lines.pop() ?? "";
    if (rest.length > LINE_CHARACTERS_MAX) throw new Error("a line of the answer is too long");
    for (const text of lines) {
      const line = readMoveProgress(parseNodeText(text));
      if (line.kind === "failed") throw new NodeRefused(200, line.error);
      onBytes(line.bytes);
      if (line.kind !== "done") continue;
      if (line.pausedAt !== null) onPaused?.(line.pausedAt);
      return line.bytes;
    }
  }
  throw new Error("the answer ended without a result");
}

export async function askInMove<T>(
  link: NodeLink,
  node: NodeAddress,
  request: Pick<JsonRequest<T>, "method" | "path" | "body" | "signal" | "large">,
  read: JsonRequest<T>["read"],
): Promise<T> {
  return await requestJson(link, node, {
    ...request,
    ...nodeErrors(request, node),
    read,
    headersTimeout: ANSWER_TIMEOUT_MS,
    bodyTimeout: TARGET_SILENCE_MAX_MS,
  });
}

/** Gives refusals the classes that the mover decides by. */
function nodeErrors({ signal }: Pick<MoveCall, "signal">, { nodeId }: NodeAddress): NodeErrors {
  return { signal, refusal: (refused) => refusal(nodeId, refused) };
}

function refusal(nodeId: string, { code, message }: NodeRefused): Error {
  switch (code) {
    case "older_copy":
      return new OlderCopy(message);
    case "hash_differs":
      return new ContentDiffers(message);
    case "not_stopped":
      return new NotStopped(message);
    case "busy":
      return new NodeBusy(`waiting: node ${nodeId}: ${message}`);
    case "no_space":
      return new Refusal("no_space", `node ${nodeId}: ${message}`);
    case "not_found":
      return new Refusal("conflict", message);
    default:
      return new Refusal("unavailable", `node ${nodeId}: ${message}`);
  }
}
