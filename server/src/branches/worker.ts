/**
 * The work of a branch: the rows of the clones, the instant of the source, and the start of the clones.
 *
 * Always:
 * - Whatever refuses the create of one clone is found before the source is paused.
 * - The source runs on, whatever fails.
 * - Clones that did not all start are deleted. The point is removed after the operation (points-loop.ts),
 *   unless it is that of a checkpoint.
 *
 * A crash in the middle leaves rows and a point that the next server continues with, or removes when the
 * operation fails.
 */
import { mapAtMost } from "@flotilla/base/concurrency";
import { Refusal } from "@flotilla/contract/errors";
import { type BranchSource, createBranchOf } from "../machines/create.ts";
import { machineNotFound } from "../auth/not-found.ts";
import { type MachineOrigin, type MachineRecord, nodeOf } from "../machines/record.ts";
import { deleteIfMade } from "../machines/remove.ts";
import type { MachineServices } from "../machines/services.ts";
import { startMachine } from "../machines/start.ts";
import { includes, UNREACHABLE_STATUSES } from "../machines/state.ts";
import type { OperationRecord, OperationRun, OperationWorker, StepResult } from "../family.ts";
import { BRANCH_STEPS, type BranchInput } from "./branch.ts";
import { refuseIfDeleted } from "./checkpoints/checkpoint.ts";
import { type AvailableCheckpoint, getAvailable } from "./checkpoints/store.ts";
import type { BranchFigures } from "./figures.ts";
import { makeInstant } from "./instant.ts";
import { refuseUnbranchable } from "./requested.ts";
import { copyPoint } from "./copy-point.ts";
import { originsOf } from "./origins.ts";
import { findPoint, insertPoint, listCopies, type PointRow } from "./store.ts";

/** Nodes to which a point is copied concurrently. */
const COPIES_AT_ONCE = 4;

export function branchWorker(services: MachineServices, figures: BranchFigures): OperationWorker {
  return {
    kind: "machine branch",
    async work(run) {
      await run.step(BRANCH_STEPS.make, () => makeClones(services, run));
      await run.step(BRANCH_STEPS.pause, () => makeOrFindInstant(services, figures, run));
      await run.step(BRANCH_STEPS.start, (say) => startClones(services, figures, run, say));
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

/** What clones are made of. */
interface Beginning {
  readonly source: BranchSource;
  readonly origin: MachineOrigin;
}

async function makeClones(services: MachineServices, { operation, signal }: OperationRun): Promise<string> {
  const { checkpointId, clones, ports, secretEnv: sealed, keyId } = operation.input as BranchInput;
  const { source, origin } =
    checkpointId === null
      ? await newBeginning(services, operation)
      : await reachableCheckpoint(services, operation, checkpointId);
  const origins = await originsOf(services, operation, { source, origin, count: clones.length });
  const secretEnv = sealed === null ? null : services.secrets.open(operation.id, Buffer.from(sealed, "base64"));
  // One after the other: all take a lock on their tenant.
  for (const [at, { id, name }] of clones.entries()) {
    signal.throwIfAborted();
    await createBranchOf(services, source, { id, name, origin: origins[at] ?? origin, keyId, ports, secretEnv });
  }
  return `${clones.length} made`;
}

async function newBeginning(services: MachineServices, operation: OperationRecord): Promise<Beginning> {
  const { context } = services;
  const source = await sourceOf(services, operation);
  const point = await insertPoint(context, {
    ...{ id: context.ids.make("point"), tenantId: source.tenantId, operationId: operation.id },
    ...{ machineId: source.id, nodeId: nodeOf(source).nodeId, hasMemory: true },
  });
  return { source, origin: { machineId: source.id, pointId: point.id, nodeId: point.nodeId, hasMemory: true } };
}

/** The checkpoint. Throws a Refusal when it is not available, or its node does not report. */
async function reachableCheckpoint(
  { context }: MachineServices,
  { tenantId }: OperationRecord,
  id: string,
): Promise<AvailableCheckpoint> {
  const found = await getAvailable(context.db, { tenantId, id });
  const { nodeId, nodeStatus } = found;
  if (nodeStatus !== null && includes(UNREACHABLE_STATUSES, nodeStatus))
    throw new Refusal("unavailable", `checkpoint ${id} is on node ${nodeId}, which does not report; try again later`);
  return found;
}

/** The instant of a checkpoint exists; from now on the rows of the clones keep it. */
async function makeOrFindInstant(
  services: MachineServices,
  figures: BranchFigures,
  run: OperationRun,
): Promise<StepResult> {
  const { operation } = run;
  const { checkpointId, machineId, clones } = operation.input as BranchInput;
  if (checkpointId !== null) {
    await refuseIfDeleted(services, { tenantId: operation.tenantId, id: checkpointId });
    return { message: `as kept by checkpoint ${checkpointId}` };
  }
  const cloneIds = clones.map(({ id }) => id);
  const source = (): Promise<MachineRecord> => sourceOf(services, operation);
  const { pausedMs } = await makeInstant(services, run, { source, hasMemory: true, isKept: false, cloneIds });
  figures.paused(pausedMs);
  services.activity.note(machineId, { type: "machine.branched", data: { count: clones.length, pausedMs } });
  return { message: `paused for ${pausedMs.toFixed(1)} ms`, downtimeMs: Math.round(pausedMs) };
}

/** The point that exists. */
async function instantOf({ context }: MachineServices, { id, tenantId, input }: OperationRecord): Promise<PointRow> {
  const { checkpointId } = input as BranchInput;
  if (checkpointId !== null) {
    const { origin } = await getAvailable(context.db, { tenantId, id: checkpointId });
    return { id: origin.pointId, nodeId: origin.nodeId };
  }
  const point = await findPoint(context.db, id);
  if (point === undefined) throw new Refusal("unavailable", "its node was removed for good");
  return point;
}

/** Copies the point to the other nodes on which clones begin. */
async function copyPoints(services: MachineServices, run: OperationRun, say: (message: string) => void): Promise<void> {
  const { operation, signal } = run;
  const { db } = services.context;
  const copies = await listCopies(db, operation.id);
  if (copies.length === 0) return;
  const { clones } = operation.input as BranchInput;
  const made = await Promise.all(clones.map(({ id }) => services.cache.read({ tenantId: operation.tenantId, id })));
  const begun = new Set(made.map((clone) => clone?.origin?.pointId));
  const from = await instantOf(services, operation);
  const used = copies.filter(({ id }) => begun.has(id));
  await mapAtMost(COPIES_AT_ONCE, used, (to) => copyPoint(services, run, { from, to, say }));
  signal.throwIfAborted();
}

/** Starts all clones at once; their nodes bound how many of them start at the same time. */
async function startClones(
  services: MachineServices,
  figures: BranchFigures,
  run: OperationRun,
  say: (message: string) => void,
): Promise<string> {
  await copyPoints(services, run, say);
  const { operation, signal } = run;
  const { machineId, checkpointId, clones, keyId } = operation.input as BranchInput;
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
  for (const { id } of clones)
    services.activity.note(
      id,
      checkpointId === null
        ? { type: "machine.isBranch", data: { from: machineId } }
        : { type: "machine.fromCheckpoint", data: { checkpointId } },
    );
  return `${clones.length} run`;
}

async function undo(services: MachineServices, operation: OperationRecord): Promise<void> {
  const { tenantId } = operation;
  const { clones } = operation.input as BranchInput;
  for (const { id } of clones) await deleteIfMade(services, { tenantId, id });
}
