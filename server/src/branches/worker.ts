/**
 * The work of a branch: the rows of the clones, the instant of the source, and the start of the clones.
 *
 * Always:
 * - Whatever refuses the create of one clone is found before the source is paused.
 * - The source runs on, whatever fails.
 * - Clones that did not all start are deleted. The point is removed after the operation (points-loop.ts).
 *
 * A crash in the middle leaves rows and a point that the next server continues with, or removes when the
 * operation fails. A point whose making was interrupted on its node is replaced by another one.
 */
import { Refusal } from "@flotilla/contract/errors";
import { makePoint, PointInterrupted } from "../link/points.ts";
import { NodeUnreachable } from "../link/refusals.ts";
import { createBranchOf } from "../machines/create.ts";
import { machineNotFound } from "../auth/not-found.ts";
import { type MachineRecord, nodeOf } from "../machines/record.ts";
import { deleteMachine } from "../machines/remove.ts";
import type { MachineServices } from "../machines/services.ts";
import { startMachine } from "../machines/start.ts";
import type { OperationRecord, OperationRun, OperationWorker, StepResult } from "../family.ts";
import { BRANCH_STEPS, type BranchInput } from "./branch.ts";
import type { BranchFigures } from "./figures.ts";
import { refuseUnbranchable } from "./requested.ts";
import { findPoint, insertPoint, type MadePoint, notePointMade, replacePoint } from "./store.ts";

/** An agent that was restarted answers again within this time. */
const PATIENCE_MS = 30_000;
const PERIOD_MS = 250;

export function branchWorker(services: MachineServices, figures: BranchFigures): OperationWorker {
  return {
    kind: "machine branch",
    async work(run) {
      await run.step(BRANCH_STEPS.make, () => makeClones(services, run));
      await run.step(BRANCH_STEPS.pause, () => makeInstant(services, figures, run));
      await run.step(BRANCH_STEPS.start, () => startClones(services, figures, run));
    },
    undo: (operation) => undo(services, operation),
  };
}

/** The source, if it can be branched now. */
async function sourceOf({ cache }: MachineServices, { tenantId, input }: OperationRecord): Promise<MachineRecord> {
  const { machineId } = input as BranchInput;
  const machine = await cache.read({ tenantId, id: machineId });
  if (machine === undefined) throw machineNotFound(machineId);
  refuseUnbranchable(machine, "inherit");
  return machine;
}

async function makeClones(services: MachineServices, { operation, signal }: OperationRun): Promise<string> {
  const { clones, ports, keyId } = operation.input as BranchInput;
  const { context } = services;
  const source = await sourceOf(services, operation);
  const point = await insertPoint(context, {
    ...{ id: context.ids.make("point"), tenantId: source.tenantId, operationId: operation.id },
    ...{ machineId: source.id, nodeId: nodeOf(source).nodeId, hasMemory: true },
  });
  const origin = { machineId: source.id, pointId: point.id, nodeId: point.nodeId, hasMemory: true };
  // One after the other: all take a lock on their tenant.
  for (const { id, name } of clones) {
    signal.throwIfAborted();
    await createBranchOf(services, source, { id, name, origin, keyId, ports });
  }
  return `${clones.length} made`;
}

async function makeInstant(services: MachineServices, figures: BranchFigures, run: OperationRun): Promise<StepResult> {
  const { context } = services;
  const { machineId, clones } = run.operation.input as BranchInput;
  const since = context.clock.monotonic();
  let made: MadePoint | null = null;
  while (made === null) {
    made = await tryInstant(services, run).catch(async (error: unknown) => {
      const isOver = context.clock.monotonic() - since > PATIENCE_MS;
      if (!(error instanceof NodeUnreachable) || isOver || run.signal.aborted) throw error;
      await context.clock.sleep(PERIOD_MS, run.signal);
      run.signal.throwIfAborted();
      return null;
    });
  }
  const { pausedMs } = made;
  figures.paused(pausedMs);
  services.activity.note(machineId, { type: "machine.branched", data: { count: clones.length, pausedMs } });
  return { message: `paused for ${pausedMs.toFixed(1)} ms`, downtimeMs: Math.round(pausedMs) };
}

/** null: its making was interrupted, and another one is to be made. */
async function tryInstant(services: MachineServices, { operation, signal }: OperationRun): Promise<MadePoint | null> {
  const { context, link } = services;
  const { clones } = operation.input as BranchInput;
  const point = await findPoint(context.db, operation.id);
  if (point === undefined) throw new Refusal("unavailable", "its node was removed for good");
  const source = await sourceOf(services, operation);
  const node = nodeOf(source);
  if (node.nodeId !== point.nodeId)
    throw new Refusal("conflict", `machine ${source.id} was moved to another node; branch it again`);
  try {
    const made = await makePoint(link, node, { pointId: point.id, machineId: source.id, hasMemory: true, signal });
    await notePointMade(context.db, point.id, made);
    return made;
  } catch (error) {
    if (!(error instanceof PointInterrupted)) throw error;
    const to = context.ids.make("point");
    await replacePoint(context, operation.id, { from: point.id, to, machineIds: clones.map(({ id }) => id) });
    return null;
  }
}

/** Starts all clones at once; their node bounds how many of them start at the same time. */
async function startClones(
  services: MachineServices,
  figures: BranchFigures,
  { operation, signal }: OperationRun,
): Promise<string> {
  const { machineId, clones, keyId } = operation.input as BranchInput;
  const { tenantId } = operation;
  const how = { isAutomatic: false, isDetached: false, signal } as const;
  const { clock } = services.context;
  const since = clock.monotonic();
  const results = await Promise.allSettled(
    clones.map(({ id }) => startMachine(services, { ...how, tenantId, keyId, id })),
  );
  const failed = results.find((result) => result.status === "rejected");
  if (failed !== undefined) throw failed.reason;
  figures.started(clones.length, clock.monotonic() - since);
  for (const { id } of clones) services.activity.note(id, { type: "machine.isBranch", data: { from: machineId } });
  return `${clones.length} run`;
}

async function undo(services: MachineServices, operation: OperationRecord): Promise<void> {
  const { tenantId } = operation;
  const { clones } = operation.input as BranchInput;
  for (const { id } of clones)
    await deleteMachine(services, { tenantId, id }).catch((error: unknown) => {
      // It was not made, or its owner was faster.
      if (!(error instanceof Refusal && error.code === "not_found")) throw error;
    });
}
