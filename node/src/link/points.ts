/**
 * The node's side of branch points, and what memory the machines take that share some:
 * contract/src/link/points.ts describes the messages.
 */
import type { Clock } from "@flotilla/base/clock";
import { readIncomingMachine, readPointFacts, readPointRequest } from "@flotilla/contract/link/generated";
import { readPart } from "@flotilla/contract/link/moved-parts";
import { InvalidMessage } from "@flotilla/contract/link/read";
import { type Branches, PointRefused } from "../branches/branches.ts";
import type { Fleet } from "../machines/fleet.ts";
import type { Incoming } from "../moves/incoming.ts";
import type { OutgoingPoints } from "../moves/outgoing-points.ts";
import { isPointId } from "../points/points.ts";
import { refuse, sendJson } from "./answer.ts";
import { endWhenSilent, readJson } from "./bodies.ts";
import type { Exchange } from "./exchange.ts";
import { moveIdOf, sendBlocks, serveArrival, SILENCE_MAX_MS } from "./moves.ts";

export interface PointParts {
  readonly branches: Branches;
  readonly incoming: Incoming;
  readonly outgoingPoints: OutgoingPoints;
  readonly clock: Clock;
}

const STATUSES = { not_found: 404, not_running: 409, refused: 409, interrupted: 409, no_space: 507 } as const;

export async function makePoint(
  { request, response, parameters }: Exchange,
  { branches, clock }: Pick<PointParts, "branches" | "clock">,
): Promise<void> {
  const pointId = pointIdOf(parameters);
  const wanted = readPointRequest(await readJson(request, clock));
  try {
    // It is made to its end, also when the caller is gone: the request is repeated.
    sendJson(response, 200, await branches.make({ ...wanted, pointId }));
  } catch (error) {
    if (!(error instanceof PointRefused)) throw error;
    refuse(response, STATUSES[error.code], { code: error.code, message: error.message });
  }
}

export async function readMemoryUse(
  { response, parameters }: Exchange,
  { fleet }: { readonly fleet: Pick<Fleet, "find"> },
): Promise<void> {
  const found = fleet.find(parameters["id"] ?? "");
  if (found === undefined || found.known === null)
    return refuse(response, 404, { code: "not_found", message: "the machine is not on this node" });
  const memoryUse = (await found.running())?.vm.memoryUse ?? null;
  if (memoryUse === null)
    return refuse(response, 409, { code: "not_running", message: "the machine does not run, or is about to end" });
  sendJson(response, 200, await memoryUse());
}

export async function releasePoint(
  { request, response, parameters }: Exchange,
  { branches }: Pick<PointParts, "branches">,
): Promise<void> {
  request.resume();
  await branches.release(pointIdOf(parameters));
  sendJson(response, 200, {});
}

/** What another node needs for a copy. */
export async function describePoint(
  { request, response, parameters, signal }: Exchange,
  { outgoingPoints }: Pick<PointParts, "outgoingPoints">,
): Promise<void> {
  request.resume();
  sendJson(response, 200, await outgoingPoints.describe(pointIdOf(parameters), signal));
}

export async function sendPointFile(
  exchange: Exchange,
  { outgoingPoints }: Pick<PointParts, "outgoingPoints">,
): Promise<void> {
  const { request, parameters } = exchange;
  request.resume();
  const { name, from } = fileOf(exchange);
  await sendBlocks(exchange, await outgoingPoints.blocks(pointIdOf(parameters), name, from));
}

export async function beginPoint(
  { request, response, parameters }: Exchange,
  { incoming, clock }: PointParts,
): Promise<void> {
  const arriving = readIncomingMachine(await readJson(request, clock));
  sendJson(response, 200, await incoming.begin(pointIdOf(parameters), moveIdOf(parameters), arriving));
}

export async function receivePointFile(exchange: Exchange, { incoming, clock }: PointParts): Promise<void> {
  const { request, parameters } = exchange;
  const [pointId, move, part] = [pointIdOf(parameters), moveIdOf(parameters), fileOf(exchange)];
  using _silence = endWhenSilent(request, clock, SILENCE_MAX_MS);
  await serveArrival(exchange, clock, (onBytes) => incoming.receive(pointId, move, part, request, onBytes));
}

export async function commitPoint(
  { request, response, parameters }: Exchange,
  { incoming, clock }: PointParts,
): Promise<void> {
  const facts = readPointFacts(await readJson(request, clock));
  await incoming.commitPoint(pointIdOf(parameters), moveIdOf(parameters), facts);
  sendJson(response, 200, {});
}

/** The file that a request is for. Throws InvalidMessage. */
function fileOf({ parameters, query }: Pick<Exchange, "parameters" | "query">) {
  const part = readPart("file", parameters["file"], query);
  if (part.kind !== "file" || part.since !== null) throw new InvalidMessage("since", "nothing: points do not change");
  return part;
}

function pointIdOf(parameters: Exchange["parameters"]): string {
  const pointId = parameters["point"] ?? "";
  if (!isPointId(pointId)) throw new InvalidMessage("point", "point- and 32 hex digits");
  return pointId;
}
