/**
 * Makes checkpoints, as an operation that worker.ts does, and machines that have the disk of one.
 *
 * Always:
 * - A checkpoint is made whole, or none is left: also when the caller goes away, or a server dies.
 * - A machine from a checkpoint that is not deleted when the machine has its row can start: the point is kept
 *   until the machine has run. Otherwise the machine is deleted again.
 *
 * A crash in the middle of a restore whose checkpoint is deleted in the same moment leaves a machine that
 * says at its start that its point is missing.
 */
import { Refusal } from "@flotilla/contract/errors";
import { machineNotFound } from "../../auth/not-found.ts";
import { createBranchOf } from "../../machines/create.ts";
import type { MachineRecord } from "../../machines/record.ts";
import { deleteIfMade } from "../../machines/remove.ts";
import type { MachineServices } from "../../machines/services.ts";
import { phaseOf } from "../../machines/state.ts";
import { notFound } from "../../missing.ts";
import { beginOperation } from "../../operations/begin.ts";
import { type Awaited, awaitOperation, derivedId } from "../awaited.ts";
import { refuseUnkept } from "../requested.ts";
import { type CheckpointName, type CheckpointRow, findCheckpoint, getAvailable } from "./store.ts";

/** The input of the operation. */
export interface CheckpointInput {
  readonly checkpointId: string;
  readonly name: string | null;
  readonly machineId: string;
  readonly hasMemory: boolean;
}

export const CHECKPOINT_STEPS = { make: "make checkpoint", pause: "pause source" } as const;

/** It takes seconds. A node that does not answer is waited for, and what was made is removed. */
const DEADLINE_MS = 5 * 60_000;

export interface Checkpointing extends Awaited {
  readonly machineId: string;
  readonly name: string | null;
  /** Whether the machine's memory is kept too; null: if it runs. */
  readonly hasMemory: boolean | null;
  /** What becomes of secret variables. `refuse`: of a machine that has some none is made. */
  readonly secrets: "inherit" | "refuse";
}

/** The checkpoint, made. Throws a Refusal that says why there is none. */
export async function makeCheckpoint(
  { cache, context }: Pick<MachineServices, "cache" | "context">,
  request: Checkpointing,
): Promise<CheckpointRow> {
  const { operationId, tenantId, machineId, name, secrets } = request;
  const ended = await awaitOperation(context, request, async () => {
    const machine = await cache.read({ tenantId, id: machineId });
    if (machine === undefined) throw machineNotFound(machineId);
    const hasMemory = request.hasMemory ?? phaseOf(machine) === "running";
    refuseUnkept(machine, { hasMemory, secrets });
    const checkpointId = checkpointIdOf(operationId);
    return await beginOperation(context, {
      ...{ id: operationId, tenantId, kind: "machine checkpoint" },
      resource: { kind: "machine", id: machineId, name: machine.name },
      input: { checkpointId, name, machineId, hasMemory } satisfies CheckpointInput,
      steps: Object.values(CHECKPOINT_STEPS),
      deadlineMs: DEADLINE_MS,
    });
  });
  const { checkpointId: id } = ended.input as CheckpointInput;
  const made = await findCheckpoint(context.db, { tenantId, id });
  if (made === undefined) throw notFound("checkpoint", id);
  return made;
}

/** The id of the checkpoint that an operation makes. */
export const checkpointIdOf = (operationId: string): string => derivedId("checkpoint", operationId, "checkpoint");

export interface Restoring {
  readonly tenantId: string;
  readonly keyId: string;
  /** The id of the checkpoint, or its name. */
  readonly checkpoint: string;
  /** The id of the machine. */
  readonly id: string;
  readonly name: string;
}

/** A stopped machine that has the disk of the checkpoint. */
export async function restoreCheckpoint(
  services: MachineServices,
  { tenantId, keyId, checkpoint, id, name }: Restoring,
): Promise<MachineRecord> {
  const found = await getAvailable(services.context.db, { tenantId, id: checkpoint });
  const origin = { ...found.origin, hasMemory: false };
  const machine = await createBranchOf(services, found.source, {
    id,
    name,
    origin,
    keyId,
    ports: null,
    secretEnv: null,
  });
  try {
    await refuseIfDeleted(services, found);
  } catch (error) {
    await deleteIfMade(services, { tenantId, id });
    throw error;
  }
  services.activity.note(id, { type: "machine.fromCheckpoint", data: { checkpointId: found.id } });
  return machine;
}

/** Whether rows of machines that were inserted before keep its point. */
export async function refuseIfDeleted(
  { context }: Pick<MachineServices, "context">,
  { id, tenantId }: CheckpointName,
): Promise<void> {
  const found = await findCheckpoint(context.db, { tenantId, id });
  if (found?.id !== id) throw notFound("checkpoint", id);
  if (found.pointId === null) throw new Refusal("conflict", `checkpoint ${id} has failed: its node has left for good`);
}
