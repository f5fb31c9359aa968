/**
 * Requests the drain of a node, as an operation, and cancels it. drain-worker.ts does the work.
 *
 * Always: a node is `draining` only while an operation works on it: both are written in one transaction. A
 * request for a node that is being drained returns the running operation, and a repetition the one that it
 * began, also when that has ended.
 */
import { Refusal } from "@flotilla/contract/errors";
import type { Context } from "../context.ts";
import type { MachineServices } from "../machines/services.ts";
import { writeOperation } from "../operations/begin.ts";
import { findRunningOperation, requestCancel } from "../operations/store.ts";
import type { OperationRecord } from "../family.ts";
import { DRAIN_STEPS, type DrainInput } from "./drain-worker.ts";
import { notFound } from "../missing.ts";
import { beginDrain, findNode, type NodeRecord, reopenNode } from "./store.ts";

const DEADLINE_SECONDS_DEFAULT = 600;
const DEADLINE_SECONDS_MAX = 7 * 24 * 3600;
/** Longer than all machines of a large host take to be moved. */
const MOVES_MS_MAX = 7 * 24 * 3600_000;

/**
 * Takes back the beginning of a drain by a repeated request, whose operation has ended: nothing would end the
 * drain.
 */
class HasEnded extends Error {
  readonly operation: OperationRecord;

  constructor(operation: OperationRecord) {
    super("the drain of this request has ended");
    this.operation = operation;
  }
}

export interface Draining {
  readonly node: NodeRecord;
  readonly operationId: string;
}

/** Begins to drain a node. If it is being drained already, returns the running operation. */
export async function requestDrain(
  { context }: Pick<MachineServices, "context">,
  request: {
    readonly operationId: string;
    readonly tenantId: string;
    readonly nodeId: string;
    readonly deadlineSeconds: number | null;
  },
): Promise<Draining> {
  const { tenantId, nodeId } = request;
  const seconds = Math.min(request.deadlineSeconds ?? DEADLINE_SECONDS_DEFAULT, DEADLINE_SECONDS_MAX);
  const input: DrainInput = { nodeId, stopAt: context.clock.now() + seconds * 1000 };
  const drain = {
    id: request.operationId,
    tenantId,
    kind: "node drain",
    resource: { kind: "node", id: nodeId, name: nodeId },
    input,
    steps: Object.values(DRAIN_STEPS),
    deadlineMs: seconds * 1000 + MOVES_MS_MAX,
  } as const;
  const beginning = context.db.transaction(async (transaction) => {
    // Locks the node, so of several callers the first makes the operation and the others find it.
    const node = await beginDrain(transaction, nodeId);
    if (node === undefined) return undefined;
    const running = await findRunningOperation(transaction, { kind: "node drain", resourceId: nodeId });
    // Its end makes the node ready, which must not happen during another drain.
    if (running?.isCancelRequested === true)
      throw new Refusal("conflict", `the drain of node ${nodeId} is being canceled; try again in a few seconds`);
    const operation = running ?? (await writeOperation(context, transaction, drain));
    if (operation.status !== "running") throw new HasEnded(operation);
    return { node, operationId: operation.id, isNew: running === undefined };
  });
  const begun = await beginning.catch(async (error: unknown) => {
    if (!(error instanceof HasEnded)) throw error;
    const node = await findNode(context.db, nodeId);
    return node && { node, operationId: error.operation.id, isNew: false };
  });
  if (begun === undefined) throw await notDrainable(context, nodeId);
  await context.db.notify("nodes", nodeId);
  if (begun.isNew) await context.db.notify("operations", begun.operationId);
  return { node: begun.node, operationId: begun.operationId };
}

/**
 * Opens a node again. Its drain and the moves that this one has begun end within seconds. `operationId`: null
 * when none runs.
 */
export async function cancelDrain(
  { context }: Pick<MachineServices, "context">,
  nodeId: string,
): Promise<{ readonly node: NodeRecord; readonly operationId: string | null }> {
  const running = await findRunningOperation(context.db, { kind: "node drain", resourceId: nodeId });
  // Any operator's drain.
  if (running !== undefined) await requestCancel(context, running);
  const node = await reopenNode(context.db, nodeId);
  if (node === undefined) {
    const status = (await findNode(context.db, nodeId))?.status;
    if (status === undefined) throw notFound("node", nodeId);
    throw new Refusal("conflict", `node ${nodeId} is ${status}, so it is not being drained`);
  }
  await context.db.notify("nodes", nodeId);
  return { node, operationId: running?.id ?? null };
}

/** Why a node cannot be drained now. */
export async function notDrainable({ db }: Context, nodeId: string): Promise<Refusal> {
  const node = await findNode(db, nodeId);
  if (node?.status !== "unreachable") return notFound("node", nodeId);
  return new Refusal(
    "unavailable",
    `node ${nodeId} does not report; drain it when it is back, or revoke its credential`,
  );
}
