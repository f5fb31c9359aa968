/**
 * Branches a machine that runs, or a checkpoint, as an operation: makes machines that begin as an instant of
 * it. worker.ts does it.
 *
 * Always: all clones run, or none is left: also when the caller goes away, or a server dies.
 */
import type { CreateMachineRequest } from "@flotilla/contract/machines";
import { machineNotFound } from "../auth/not-found.ts";
import type { OperationRecord } from "../family.ts";
import type { MachineRecord } from "../machines/record.ts";
import type { MachineServices } from "../machines/services.ts";
import { beginOperation } from "../operations/begin.ts";
import { type Awaited, awaitOperation, derivedId } from "./awaited.ts";
import { getAvailable } from "./checkpoints/store.ts";
import { refuseUnbranchable, reissuedSecrets, type SecretsRequest } from "./requested.ts";

/** The input of the operation. */
export interface BranchInput {
  /** The machine whose instant it is. */
  readonly machineId: string;
  /** The instant is that of a checkpoint; null: one of the machine as it runs. */
  readonly checkpointId: string | null;
  /** `name` null: it gets a generated one. */
  readonly clones: readonly { readonly id: string; readonly name: string | null }[];
  /** null: those of the machine. */
  readonly ports: CreateMachineRequest["ports"] | null;
  /** New values of the secret variables, encrypted for the operation, in base64; null: those of the source. */
  readonly secretEnv: string | null;
  readonly keyId: string;
}

export const BRANCH_STEPS = { make: "make machines", pause: "pause source", start: "start branches" } as const;

/** A branch takes seconds. A node that does not answer is waited for, and what was made is removed. */
const DEADLINE_MS = 5 * 60_000;

/** The clones that are asked for. */
interface Clones extends Awaited {
  readonly keyId: string;
  /** One for each clone; null: a generated one. */
  readonly names: readonly (string | null)[];
  readonly ports: BranchInput["ports"];
}

export interface Branching extends Clones, SecretsRequest {
  readonly machineId: string;
}

export interface CheckpointBranching extends Clones {
  /** Its id or its name. */
  readonly checkpoint: string;
}

type BranchServices = Pick<MachineServices, "cache" | "context" | "secrets">;

/** The running clones, in the order of their names. Throws a Refusal that says why there are none. */
export const branchMachine = (services: BranchServices, request: Branching): Promise<readonly MachineRecord[]> =>
  runClones(services, request, async () => {
    const { operationId, tenantId, machineId: id } = request;
    const machine = await services.cache.read({ tenantId, id });
    if (machine === undefined) throw machineNotFound(id);
    const reissued = reissuedSecrets(machine, request);
    refuseUnbranchable(machine, reissued !== null || request.secrets === "inherit" ? "inherit" : "refuse");
    const resource = { kind: "machine", id, name: machine.name };
    const sealed = reissued === null ? null : services.secrets.seal(operationId, reissued).toString("base64");
    return { resource, machineId: id, checkpointId: null, secretEnv: sealed };
  });

/** As `branchMachine`: clones that begin as a checkpoint. */
export const branchCheckpoint = (
  services: BranchServices,
  request: CheckpointBranching,
): Promise<readonly MachineRecord[]> =>
  runClones(services, request, async () => {
    const { tenantId, checkpoint } = request;
    const { id, name, machineId } = await getAvailable(services.context.db, { tenantId, id: checkpoint });
    return { resource: { kind: "checkpoint", id, name }, machineId, checkpointId: id, secretEnv: null };
  });

interface Source extends Pick<BranchInput, "machineId" | "checkpointId" | "secretEnv"> {
  readonly resource: { readonly kind: string; readonly id: string; readonly name: string | null };
}

async function runClones(
  { cache, context }: BranchServices,
  request: Clones,
  find: () => Promise<Source>,
): Promise<readonly MachineRecord[]> {
  const { operationId, tenantId, keyId, names, ports } = request;
  const begin = async (): Promise<OperationRecord> => {
    const { resource, ...source } = await find();
    const clones = names.map((name, at) => ({ id: cloneId(operationId, at), name }));
    return await beginOperation(context, {
      ...{ id: operationId, tenantId, kind: "machine branch", resource },
      input: { ...source, clones, ports, keyId } satisfies BranchInput,
      steps: Object.values(BRANCH_STEPS),
      deadlineMs: DEADLINE_MS,
    });
  };
  const ended = await awaitOperation(context, request, begin);
  const { clones } = ended.input as BranchInput;
  const made = await Promise.all(clones.map(({ id }) => cache.read({ tenantId, id })));
  return made.map((machine, at) => {
    if (machine === undefined) throw machineNotFound(clones[at]?.id ?? "");
    return machine;
  });
}

/** The id of the clone at this place. */
export const cloneId = (operationId: string, at: number): string => derivedId("machine", operationId, String(at));
