/**
 * Branches a machine that runs, as an operation: makes an instant of it, and machines that begin as that
 * instant. worker.ts does it.
 *
 * Always:
 * - All clones run, or none is left: also when the caller goes away, or a server dies.
 * - The ids of the clones follow from the operation's, so a step that is done twice makes no others.
 */
import { createHash } from "node:crypto";
import { Refusal } from "@flotilla/contract/errors";
import { ID_PREFIXES } from "@flotilla/contract/ids";
import type { CreateMachineRequest } from "@flotilla/contract/machines";
import { machineNotFound } from "../auth/not-found.ts";
import type { Context } from "../context.ts";
import type { OperationRecord } from "../family.ts";
import type { MachineRecord } from "../machines/record.ts";
import type { MachineServices } from "../machines/services.ts";
import { beginOnce, beginOperation } from "../operations/begin.ts";
import { findOperation, requestCancel } from "../operations/store.ts";
import { refuseUnbranchable } from "./requested.ts";

/** The input of the operation. */
export interface BranchInput {
  readonly machineId: string;
  /** `name` null: it gets a generated one. */
  readonly clones: readonly { readonly id: string; readonly name: string | null }[];
  /** null: those of the machine. */
  readonly ports: CreateMachineRequest["ports"] | null;
  readonly keyId: string;
}

export const BRANCH_STEPS = { make: "make machines", pause: "pause source", start: "start branches" } as const;

/** A branch takes seconds. A node that does not answer is waited for, and what was made is removed. */
const DEADLINE_MS = 5 * 60_000;
/** How often the end of an operation is looked for: often at first, as most take a tenth of a second. */
const LOOK_MS_MIN = 10;
const LOOK_MS_MAX = 250;

export interface Branching {
  readonly operationId: string;
  readonly tenantId: string;
  readonly keyId: string;
  readonly machineId: string;
  /** One for each clone; null: a generated one. */
  readonly names: readonly (string | null)[];
  readonly ports: BranchInput["ports"];
  /** What becomes of secret variables. `refuse`: a machine that has some is not branched. */
  readonly secrets: "inherit" | "refuse";
  readonly signal: AbortSignal;
}

/** The running clones, in the order of their names. Throws a Refusal that says why there are none. */
export async function branchMachine(
  services: Pick<MachineServices, "cache" | "context">,
  request: Branching,
): Promise<readonly MachineRecord[]> {
  const { cache, context } = services;
  const { tenantId, signal } = request;
  const operation = await beginOnce(context, request, () => begin(services, request));
  const ended = await awaitEnd(context, operation, signal).catch(async (error: unknown) => {
    await requestCancel(context, operation);
    throw error;
  });
  if (ended.status === "canceled") throw new Refusal("conflict", `operation ${operation.id} was canceled`);
  if (ended.status === "failed") throw new Refusal(ended.errorCode ?? "unavailable", ended.error ?? "it failed");
  const { clones } = operation.input as BranchInput;
  const made = await Promise.all(clones.map(({ id }) => cache.read({ tenantId, id })));
  return made.map((machine, at) => {
    if (machine === undefined) throw machineNotFound(clones[at]?.id ?? "");
    return machine;
  });
}

/**
 * The id of the operation of a request: another one if its earlier attempts have failed, because their
 * callers went away or what refused them is over.
 */
export async function freshOperationId({ db }: Pick<Context, "db">, tenantId: string, id: string): Promise<string> {
  for (let fresh = id; ; fresh = derivedId("operation", fresh, "again")) {
    const known = await findOperation(db, { tenantId, id: fresh });
    if (known?.status !== "failed" && known?.status !== "canceled") return fresh;
  }
}

async function begin(
  { cache, context }: Pick<MachineServices, "cache" | "context">,
  { operationId, tenantId, keyId, machineId, names, ports, secrets }: Branching,
): Promise<OperationRecord> {
  const machine = await cache.read({ tenantId, id: machineId });
  if (machine === undefined) throw machineNotFound(machineId);
  refuseUnbranchable(machine, secrets);
  const input: BranchInput = {
    machineId,
    clones: names.map((name, at) => ({ id: cloneId(operationId, at), name })),
    ports,
    keyId,
  };
  return await beginOperation(context, {
    id: operationId,
    tenantId,
    kind: "machine branch",
    resource: { kind: "machine", id: machineId, name: machine.name },
    input,
    steps: Object.values(BRANCH_STEPS),
    deadlineMs: DEADLINE_MS,
  });
}

/** The id of the clone at this place. */
export const cloneId = (operationId: string, at: number): string => derivedId("machine", operationId, String(at));

/** An id that a repetition of the operation gets again, and nothing else. */
const derivedId = (kind: "machine" | "operation", operationId: string, what: string): string =>
  `${ID_PREFIXES[kind]}-${createHash("sha256").update(`${operationId} ${what}`).digest("hex").slice(0, 32)}`;

/** The operation when it has ended. Rejects with the reason of an aborted signal. */
async function awaitEnd(
  { clock, db }: MachineServices["context"],
  { id, tenantId }: OperationRecord,
  signal: AbortSignal,
): Promise<OperationRecord> {
  for (let waitMs = LOOK_MS_MIN; ; waitMs = Math.min(LOOK_MS_MAX, waitMs * 1.2)) {
    const found = await findOperation(db, { id, tenantId });
    if (found === undefined) throw new Refusal("not_found", `operation ${id} is gone`);
    if (found.status !== "running") return found;
    await clock.sleep(waitMs, signal);
    signal.throwIfAborted();
  }
}
