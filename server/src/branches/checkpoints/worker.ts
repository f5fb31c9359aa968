/**
 * The work of a checkpoint: its row, and the instant of the machine.
 *
 * Always: the machine runs on, whatever fails. The row of a checkpoint that was not made is deleted, and its
 * point is removed after the operation (../points-loop.ts).
 *
 * A crash in the middle leaves rows that the next server continues with, or removes when the operation fails.
 */
import { Refusal } from "@flotilla/contract/errors";
import { CHECKPOINTS_MAX } from "@flotilla/contract/limits";
import { machineNotFound } from "../../auth/not-found.ts";
import type { OperationRecord, OperationRun, OperationWorker, StepResult } from "../../family.ts";
import type { KeptMachine } from "../../machines/create.ts";
import { type MachineRecord, nodeOf } from "../../machines/record.ts";
import type { MachineServices } from "../../machines/services.ts";
import { makeInstant } from "../instant.ts";
import { refuseUnkept } from "../requested.ts";
import { insertPoint } from "../store.ts";
import { CHECKPOINT_STEPS, type CheckpointInput } from "./checkpoint.ts";
import { deleteCheckpoint, insertCheckpoint } from "./store.ts";

export function checkpointWorker(services: MachineServices): OperationWorker {
  return {
    kind: "machine checkpoint",
    async work(run) {
      await run.step(CHECKPOINT_STEPS.make, () => makeRow(services, run.operation));
      await run.step(CHECKPOINT_STEPS.pause, () => makePoint(services, run));
    },
    async undo({ tenantId, input }) {
      await deleteCheckpoint(services.context.db, { tenantId, id: (input as CheckpointInput).checkpointId });
    },
  };
}

/** The machine, if a point of it can be made now. */
async function sourceOf({ cache }: MachineServices, { tenantId, input }: OperationRecord): Promise<MachineRecord> {
  const { machineId, hasMemory } = input as CheckpointInput;
  const machine = await cache.read({ tenantId, id: machineId });
  if (machine === undefined) throw machineNotFound(machineId);
  refuseUnkept(machine, { hasMemory, secrets: "inherit" });
  return machine;
}

async function makeRow(services: MachineServices, operation: OperationRecord): Promise<string> {
  const { checkpointId: id, name, hasMemory } = operation.input as CheckpointInput;
  const { context, secrets } = services;
  const source = await sourceOf(services, operation);
  const { tenantId, secretEnv } = source;
  const point = await insertPoint(context, {
    ...{ id: context.ids.make("point"), tenantId, operationId: operation.id },
    ...{ machineId: source.id, nodeId: nodeOf(source).nodeId, hasMemory },
  });
  const checkpoint = {
    ...{ id, tenantId, name, machineId: source.id, pointId: point.id, machine: keptOf(source), hasMemory },
    secretEnv: secretEnv === null ? null : secrets.seal(id, secrets.open(source.id, secretEnv)),
  };
  const outcome = await insertCheckpoint(context, checkpoint, CHECKPOINTS_MAX);
  if (outcome === "inserted") return "made";
  if (outcome === "nameTaken")
    throw new Refusal("name_taken", `a checkpoint with the name ${name} exists already; choose another name`);
  const text = `this tenant has ${CHECKPOINTS_MAX} checkpoints, which is the maximum; delete one`;
  throw new Refusal("quota_exceeded", text);
}

async function makePoint(services: MachineServices, run: OperationRun): Promise<StepResult> {
  const { checkpointId, machineId, hasMemory } = run.operation.input as CheckpointInput;
  const source = (): Promise<MachineRecord> => sourceOf(services, run.operation);
  const { pausedMs } = await makeInstant(services, run, { source, hasMemory, isKept: true, cloneIds: [] });
  services.activity.note(machineId, { type: "machine.checkpointed", data: { checkpointId, hasMemory, pausedMs } });
  if (pausedMs === 0) return { message: "made while the machine did not run" };
  return { message: `paused for ${pausedMs.toFixed(1)} ms`, downtimeMs: Math.round(pausedMs) };
}

/** The columns of a machine that are kept. */
const KEPT = {
  ...{
    name: true,
    source: true,
    network: true,
    env: true,
    secretNames: true,
    command: true,
    ports: true,
    labels: true,
  },
  ...{ workdir: true, cpus: true, memoryMb: true, diskGb: true, isEphemeral: true, isPublic: true, isBranchable: true },
  ...{
    autoStopSeconds: true,
    ttlSeconds: true,
    atEnd: true,
    restart: true,
    hooks: true,
    disruption: true,
    nodeLabels: true,
  },
} as const satisfies Record<keyof KeptMachine, true>;

const keptOf = (machine: MachineRecord): KeptMachine =>
  Object.fromEntries(
    Object.keys(KEPT).map((field) => [field, machine[field as keyof KeptMachine]]),
  ) as unknown as KeptMachine;
