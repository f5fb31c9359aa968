/**
 * Requests a move of a machine to another node, as an operation. worker.ts does it.
 *
 * Always: a machine has one move at a time. A request for a machine that is being moved returns the running
 * operation, and the repetition of one that has moved it that operation.
 */
import { Refusal } from "@flotilla/contract/errors";
import type { Queryable } from "../db/database.ts";
import { writeOperation } from "../operations/begin.ts";
import { findOperation, findRunningOperation } from "../operations/store.ts";
import type { OperationRecord } from "../family.ts";
import type { MachineRecord } from "../machines/record.ts";
import type { MachineServices } from "../machines/services.ts";
import { machineNotFound } from "../auth/not-found.ts";
import { includes, UNREACHABLE_STATUSES } from "../machines/state.ts";
import { nodeUnreachableText } from "../machines/view.ts";
import { MOVE_STEPS } from "./plan.ts";
import { lockMoves } from "./store.ts";
import { chooseTarget } from "./target.ts";
import type { MoveInput } from "./worker.ts";

const DEADLINE_SECONDS_DEFAULT = 3600;
export const MOVE_SECONDS_MAX = 24 * 3600;

export interface MoveRequest {
  readonly operationId: string;
  /** Whose operation it is; the machine may be another tenant's. */
  readonly tenantId: string;
  readonly machineId: string;
  /** null: placement chooses. */
  readonly nodeId: string | null;
  readonly deadlineSeconds: number | null;
  /** The operation that needs the move; absent: a caller requests it. */
  readonly parentId?: string;
}

/** Throws a Refusal that says why the machine cannot be moved now. */
export async function requestMove(
  services: Pick<MachineServices, "cache" | "context" | "nodes">,
  request: MoveRequest,
): Promise<OperationRecord> {
  const { context, cache } = services;
  const { machineId, nodeId } = request;
  const machine = await cache.readAny(machineId);
  if (machine === undefined || machine.deletedAt !== null) throw machineNotFound(machineId);
  if (machine.movedBy === request.operationId) {
    const ended = await findOperation(context.db, { tenantId: request.tenantId, id: request.operationId });
    if (ended !== undefined) return ended;
  }
  const running = await findMove(context.db, request);
  if (running !== undefined) return running;
  refuseUnmovable(machine);
  await chooseTarget(services, machine, { toId: nodeId, diskBytes: 0, memoryFormat: null });
  const seconds = Math.min(request.deadlineSeconds ?? DEADLINE_SECONDS_DEFAULT, MOVE_SECONDS_MAX);
  const { parentId } = request;
  const input: MoveInput = {
    ...{ machineId, nodeId },
    ...(parentId === undefined ? {} : { parentId }),
  };
  const move = {
    id: request.operationId,
    tenantId: request.tenantId,
    kind: "machine move",
    resource: { kind: "machine", id: machineId, name: machine.name },
    input,
    steps: Object.values(MOVE_STEPS),
    deadlineMs: seconds * 1000,
  } as const;
  const operation = await context.db.transaction(async (transaction) => {
    await lockMoves(transaction, machineId);
    // The first of several callers makes the operation and the others find it.
    return (await findMove(transaction, request)) ?? (await writeOperation(context, transaction, move));
  });
  await context.db.notify("operations", operation.id);
  return operation;
}

/**
 * The running move, if the request may be answered with it. Throws a Refusal when it goes to another node.
 */
async function findMove(
  db: Queryable,
  { machineId, nodeId }: Pick<MoveRequest, "machineId" | "nodeId">,
): Promise<OperationRecord | undefined> {
  const running = await findRunningOperation(db, { kind: "machine move", resourceId: machineId });
  if (running === undefined || nodeId === null || nodeId === (running.input as MoveInput).nodeId) return running;
  const text = `machine ${machineId} is being moved by operation ${running.id}; cancel that one, or wait until it has ended`;
  throw new Refusal("conflict", text);
}

/** Throws a Refusal for a machine that has no disk, or whose disk cannot be reached. */
function refuseUnmovable(machine: MachineRecord): void {
  const { id, nodeId, nodeStatus } = machine;
  if (nodeId === null)
    throw new Refusal(
      "conflict",
      `machine ${id} was never started, so it has no disk and is on no node; it is placed when it starts`,
    );
  if (nodeStatus !== null && includes(UNREACHABLE_STATUSES, nodeStatus))
    throw new Refusal("unavailable", `machine ${id} cannot be moved: ${nodeUnreachableText(nodeId, nodeStatus)}`);
}
