/**
 * The node's side of a move of a machine, as source and as target: contract/src/link/moves.ts describes the
 * requests.
 *
 * Leaves what they mean to moves/outgoing.ts and moves/incoming.ts. Always: neither side is read faster than
 * the other accepts it, and a line at least each second shows that the target is alive.
 */
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import type { Clock } from "@flotilla/base/clock";
import { messageOf } from "@flotilla/base/errors";
import type { LinkError } from "@flotilla/contract/link/link";
import { readIncomingMachine } from "@flotilla/contract/link/generated";
import { BLOCK_BYTES } from "@flotilla/contract/link/blocks";
import { type MovedPartKind, readPart } from "@flotilla/contract/link/moved-parts";
import type { MoveProgress } from "@flotilla/contract/link/moves";
import { InvalidMessage } from "@flotilla/contract/link/read";
import { asDiskFull, DiskFull } from "../images/space.ts";
import type { Fleet } from "../machines/fleet.ts";
import { ContentDiffers } from "../moves/content-differs.ts";
import { UnknownPoint } from "../machines/disk-changes.ts";
import { type Incoming, OlderCopy, UnknownMove } from "../moves/incoming.ts";
import { UnknownBranchPoint } from "../moves/outgoing-points.ts";
import { describeOutgoing, outgoingBlocks, type OutgoingDeps } from "../moves/outgoing.ts";
import type { SupervisedMachine } from "../machines/node-machine.ts";
import { refuse, sendJson } from "./answer.ts";
import { endWhenSilent, readJson } from "./bodies.ts";
import type { Exchange } from "./exchange.ts";

const PROGRESS_PERIOD_MS = 1_000;
/** Longer than a server lets the source be silent, which reads again what was sent before. */
export const SILENCE_MAX_MS = 12 * 60_000;

export interface MoveParts {
  readonly fleet: Fleet;
  readonly incoming: Incoming;
  readonly outgoing: OutgoingDeps;
  readonly clock: Clock;
}

/** What there is of a machine. */
export async function describe(
  { request, response, query, parameters, signal }: Exchange,
  { fleet, outgoing }: Pick<MoveParts, "fleet" | "outgoing">,
): Promise<void> {
  request.resume();
  const machine = machineOf(fleet, parameters);
  if (machine === null) return refuse(response, 404, notHere(parameters));
  const hasContent = query.get("content") === "1";
  sendJson(response, 200, await describeOutgoing(machine, outgoing, { hasContent, signal }));
}

/** The blocks of a part of a machine. */
export async function sendPart(
  kind: MovedPartKind,
  { request, response, query, parameters, signal }: Exchange,
  { fleet, outgoing }: Pick<MoveParts, "fleet" | "outgoing">,
): Promise<void> {
  request.resume();
  const part = readPart(kind, parameters["file"], query);
  const machine = machineOf(fleet, parameters);
  if (machine === null) return refuse(response, 404, notHere(parameters));
  const isOfRunning = kind === "diskRound" || kind === "memoryRounds";
  const release = isOfRunning ? outgoing.earlySlots.tryTake() : null;
  if (release === undefined) {
    const message = "as many disks of running machines as may be at once are being sent from this node";
    return refuse(response, 503, { code: "busy", message });
  }
  try {
    const blocks = await outgoingBlocks(machine, part, signal).catch((error: NodeJS.ErrnoException) => {
      // A stop has discarded the memory.
      if (error.code === "ENOENT") throw new UnknownPoint(`machine ${machine.machineId} has no such file any more`);
      throw error;
    });
    await sendBlocks({ response, signal }, blocks);
  } finally {
    release?.();
  }
}

export async function sendBlocks(
  { response, signal }: Pick<Exchange, "response" | "signal">,
  blocks: AsyncIterable<Buffer>,
): Promise<void> {
  response.writeHead(200, { "content-type": "application/octet-stream" });
  const stream = Readable.from(blocks, { objectMode: false, highWaterMark: BLOCK_BYTES });
  await pipeline(stream, response, { signal }).catch((error: unknown) => {
    // A caller that has gone asks again.
    if (!signal.aborted) throw error;
  });
}

function machineOf(fleet: Fleet, { id = "" }: Exchange["parameters"]): SupervisedMachine | null {
  const machine = fleet.find(id) ?? null;
  return machine === null || machine.known === null ? null : machine;
}

const notHere = ({ id }: Exchange["parameters"]): LinkError => ({
  code: "not_found",
  message: `machine ${id} is not on this node, or its files cannot be used`,
});

/** The move has ended: what the machine writes is not watched any more. */
export async function releaseOutgoing(
  { request, response, parameters }: Exchange,
  { fleet }: Pick<MoveParts, "fleet">,
): Promise<void> {
  request.resume();
  await machineOf(fleet, parameters)?.known.leaving.forget();
  sendJson(response, 200, {});
}

export async function beginIncoming(exchange: Exchange, { incoming, clock }: MoveParts): Promise<void> {
  const { request, response, parameters } = exchange;
  const { machineId, move } = idsOf(parameters);
  const machine = readIncomingMachine(await readJson(request, clock));
  sendJson(response, 200, await incoming.begin(machineId, move, machine));
}

export async function receivePart(
  kind: MovedPartKind,
  exchange: Exchange,
  { incoming, clock }: MoveParts,
): Promise<void> {
  const { request, parameters, query } = exchange;
  const { machineId, move } = idsOf(parameters);
  const part = readPart(kind, parameters["file"], query);
  using _silence = endWhenSilent(request, clock, SILENCE_MAX_MS);
  await serveArrival(exchange, clock, (onBytes) => incoming.receive(machineId, move, part, request, onBytes));
}

export async function commitIncoming(
  { request, response, parameters, query }: Exchange,
  { incoming }: MoveParts,
): Promise<void> {
  request.resume();
  const { machineId, move } = idsOf(parameters);
  const options = { hasMemory: query.get("memory") !== "0" };
  sendJson(response, 200, await incoming.commit(machineId, move, options));
}

export async function discardIncoming(
  { request, response, parameters }: Exchange,
  { incoming }: MoveParts,
): Promise<void> {
  request.resume();
  await incoming.discard(idsOf(parameters).move);
  sendJson(response, 200, {});
}

/** The ids in a path. Throws InvalidMessage. */
function idsOf({ id: machineId = "", move = "" }: Exchange["parameters"]): { machineId: string; move: string } {
  if (!/^mach-[0-9a-f]{32}$/.test(machineId)) throw new InvalidMessage("id", "mach- and 32 hex digits");
  return { machineId, move: moveIdOf({ move }) };
}

/** Throws InvalidMessage. */
export function moveIdOf({ move = "" }: Exchange["parameters"]): string {
  if (!/^op-[0-9a-f]{32}$/.test(move)) throw new InvalidMessage("move", "op- and 32 hex digits");
  return move;
}

/** Answers with a line each second while a file arrives, and then how that ended. */
export async function serveArrival(
  { request, response, signal }: Exchange,
  clock: Clock,
  receive: (
    onBytes: (bytes: number) => void,
  ) => Promise<{ readonly bytes: number; readonly sha256: string; readonly pausedAt: number | null }>,
): Promise<void> {
  response.writeHead(200, { "content-type": "application/x-ndjson" });
  const write = (line: MoveProgress): void => void response.write(`${JSON.stringify(line)}\n`);
  let bytes = 0;
  const ended = new AbortController();
  const beat = async (): Promise<void> => {
    for (;;) {
      write({ kind: "progress", bytes });
      await clock.sleep(PROGRESS_PERIOD_MS, ended.signal);
      if (ended.signal.aborted || signal.aborted) return;
    }
  };
  const beating = beat();
  try {
    const received = await receive((done) => {
      bytes = done;
    });
    ended.abort();
    await beating;
    write({ kind: "done", ...received });
  } catch (error) {
    ended.abort();
    await beating;
    const known = refusalOf(error)?.error ?? { code: "internal" as const, message: messageOf(error) };
    write({ kind: "failed", error: known });
  }
  // The stream says itself where it ends, which is before the end of the body.
  request.resume();
  response.end();
}

/** How a failure of a move is answered; null: it is none of these. */
export function refusalOf(error: unknown): { readonly status: number; readonly error: LinkError } | null {
  const message = messageOf(error);
  if (error instanceof UnknownPoint) return { status: 409, error: { code: "not_stopped", message } };
  if (error instanceof OlderCopy) return { status: 409, error: { code: "older_copy", message } };
  if (error instanceof UnknownMove || error instanceof UnknownBranchPoint)
    return { status: 404, error: { code: "not_found", message } };
  if (error instanceof ContentDiffers) return { status: 409, error: { code: "hash_differs", message } };
  const full = asDiskFull(error);
  return full instanceof DiskFull ? { status: 507, error: { code: "no_space", message: full.message } } : null;
}
