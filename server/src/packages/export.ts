/**
 * Requests the export of a machine, which worker.ts does, and waits for it.
 *
 * Always:
 * - What the machine and its caller do not permit is refused before an operation begins.
 * - An equal request finds the export that runs.
 * - A caller that goes away does not end the export.
 */
import { Refusal } from "@flotilla/contract/errors";
import type { ExportResponse } from "@flotilla/contract/packages";
import { isTag } from "@flotilla/contract/reference";
import { machineNotFound } from "../auth/not-found.ts";
import type { OperationRecord, StepFigures } from "../family.ts";
import type { MachineRecord } from "../machines/record.ts";
import type { MachineServices } from "../machines/services.ts";
import { phaseOf } from "../machines/state.ts";
import { awaitEnd } from "../operations/await-end.ts";
import { beginOnce, beginOperation } from "../operations/begin.ts";
import { findRunningOperation } from "../operations/store.ts";
import type { Registry } from "../registry/registry.ts";
import { defaultNameOf, ownRepositoryOf, type PackageOwner } from "../registry/package-name.ts";

export const EXPORT_STEPS = {
  wait: "wait for other exports of the machine",
  export: "export the disk",
  record: "record the package",
} as const;

const EXPORT_DEADLINE_MS = 4 * 3_600_000;
/** How long an answer waits for the end. */
export const EXPORT_AWAITED_MS = 30_000;

/** Input of the operation. */
export interface ExportInput {
  readonly machineId: string;
  readonly repository: string;
  readonly tag: string;
  readonly includesEnv: boolean;
}

export interface ExportAsked {
  readonly operationId: string;
  readonly owner: PackageOwner;
  readonly machineId: string;
  readonly tag: string | null;
  readonly name: string | null;
  readonly includesEnv: boolean;
}

type ExportServices = Pick<MachineServices, "cache" | "context">;

interface BeginServices extends ExportServices {
  readonly registry: Pick<Registry, "requireAvailable">;
}

export const requestExport = (services: BeginServices, asked: ExportAsked): Promise<OperationRecord> => {
  const { operationId, owner } = asked;
  return beginOnce(services.context, { operationId, tenantId: owner.tenantId }, () => begin(services, asked));
};

async function begin({ cache, context, registry }: BeginServices, asked: ExportAsked): Promise<OperationRecord> {
  const { owner, machineId, includesEnv } = asked;
  const { tenantId } = owner;
  const machine = await cache.read({ tenantId, id: machineId });
  if (machine === undefined) throw machineNotFound(machineId);
  const tag = asked.tag ?? "latest";
  if (!isTag(tag))
    throw new Refusal("invalid_request", `tag ${JSON.stringify(tag)} is not one: up to 128 letters, digits, _ . -`, {
      field: "tag",
    });
  const repository = ownRepositoryOf(asked.name ?? defaultNameOf(machine), owner, "name");
  refuseUnexportable(machine);
  registry.requireAvailable();
  const input: ExportInput = { machineId, repository, tag, includesEnv };
  const running = await findRunningOperation(context.db, { kind: "machine export", resourceId: machineId });
  if (running !== undefined && isSame(running.input as ExportInput, input)) return running;
  return await beginOperation(context, {
    ...{ id: asked.operationId, tenantId, kind: "machine export", input },
    resource: { kind: "machine", id: machineId, name: machine.name },
    ...{ steps: Object.values(EXPORT_STEPS), deadlineMs: EXPORT_DEADLINE_MS },
  });
}

const isSame = (one: ExportInput, other: ExportInput): boolean =>
  one.repository === other.repository && one.tag === other.tag && one.includesEnv === other.includesEnv;

/** Throws a Refusal when the machine has no disk at rest. Its node says what else it refuses. */
export function refuseUnexportable(machine: MachineRecord): void {
  const { id } = machine;
  const phase = phaseOf(machine);
  const refuse = (why: string): never => {
    throw new Refusal("conflict", `machine ${id} cannot be exported: ${why}`);
  };
  if (machine.moveId !== null) refuse(`operation ${machine.moveId} moves it; try again when that has ended`);
  if (phase === "created")
    refuse("it was never started, and has no disk yet; start and stop it once, or use its image");
  if (phase !== "stopped") refuse("it is not stopped; stop it first");
  if (machine.observedDetails.suspendedAt !== null)
    refuse("it is suspended, and its memory belongs to the disk; start it, and stop it without keeping its memory");
}

/** What an export that has ended made; null: it runs still. Throws a Refusal that says why it failed. */
export async function awaitExport(
  { context }: ExportServices,
  operation: OperationRecord,
  { maxMs, signal }: { readonly maxMs: number; readonly signal: AbortSignal },
): Promise<{ readonly operation: OperationRecord; readonly made: ExportResponse | null }> {
  const ended = await awaitEnd(context, operation, { signal, maxMs });
  if (ended.status === "running") return { operation: ended, made: null };
  if (ended.status === "canceled") throw new Refusal("conflict", `operation ${ended.id} was canceled`);
  const made = responseOf(ended);
  if (ended.status === "failed" || made === null)
    throw new Refusal(ended.errorCode ?? "unavailable", ended.error ?? "the export failed");
  return { operation: ended, made };
}

/** What the disk was exported as; undefined: it was not yet. */
export const figuresOf = ({ steps }: Pick<OperationRecord, "steps">): StepFigures | undefined =>
  steps.find(({ name, status }) => name === EXPORT_STEPS.export && status === "succeeded");

function responseOf(operation: OperationRecord): ExportResponse | null {
  const { reference, digest, sizeBytes = 0, platforms = [] } = figuresOf(operation) ?? {};
  return reference === undefined || digest === undefined ? null : { reference, digest, sizeBytes, platforms };
}
