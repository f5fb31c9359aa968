/**
 * The node's side of branch points: contract/src/link/points.ts describes the requests.
 */
import type { Clock } from "@flotilla/base/clock";
import { readPointRequest } from "@flotilla/contract/link/generated";
import { InvalidMessage } from "@flotilla/contract/link/read";
import { type Branches, PointRefused } from "../branches/branches.ts";
import { isPointId } from "../points/points.ts";
import { refuse, sendJson } from "./answer.ts";
import { readJson } from "./bodies.ts";
import type { Exchange } from "./exchange.ts";

export interface PointParts {
  readonly branches: Branches;
  readonly clock: Clock;
}

const STATUSES = { not_found: 404, not_running: 409, refused: 409, interrupted: 409, no_space: 507 } as const;

export async function makePoint(
  { request, response, parameters }: Exchange,
  { branches, clock }: PointParts,
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

export async function releasePoint(
  { request, response, parameters }: Exchange,
  { branches }: Pick<PointParts, "branches">,
): Promise<void> {
  request.resume();
  await branches.release(pointIdOf(parameters));
  sendJson(response, 200, {});
}

function pointIdOf(parameters: Exchange["parameters"]): string {
  const pointId = parameters["point"] ?? "";
  if (!isPointId(pointId)) throw new InvalidMessage("point", "point- and 32 hex digits");
  return pointId;
}
