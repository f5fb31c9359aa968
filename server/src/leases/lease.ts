/**
 * Leases: a branch of a machine that is made for a task, and ends with it.
 *
 * Always:
 * - A lease has the name that its caller gave it. The same name asks for the same lease: one machine, and the
 *   same token.
 * - When a lease is answered, its files, its task and its secrets are in its machine.
 * - The owner's token is derived from the installation's key, and the database has its hash.
 *
 * A server that dies in the middle leaves a lease that is being made: the same request continues it, or the
 * loop ends it.
 */
import { createHash, timingSafeEqual } from "node:crypto";
import { Readable } from "node:stream";
import { Refusal } from "@flotilla/contract/errors";
import type { CreateMachineRequest } from "@flotilla/contract/machines";
import { freshOperationId } from "../branches/awaited.ts";
import { branchMachine, cloneId } from "../branches/branch.ts";
import { writeFile } from "../machines/files/write.ts";
import type { MachineName, MachineRecord } from "../machines/record.ts";
import { deleteIfMade } from "../machines/remove.ts";
import type { MachineServices } from "../machines/services.ts";
import {
  deleteUnmade,
  endLease,
  findLease,
  insertLease,
  type LeaseName,
  type LeaseRow,
  markReady,
  noteDeleted,
  noteHeartbeat,
} from "./store.ts";

const TASK_PATH = "/run/smol-task.json";
const SECRETS_PATH = "/run/smol-secrets.json";

export interface LeaseRequest {
  readonly tenantId: string;
  readonly keyId: string;
  /** The name of the lease. */
  readonly leaseId: string;
  /** The operation that makes the branch, if the lease is new. */
  readonly operationId: string;
  /** The machine that is branched. */
  readonly machineId: string;
  readonly files: readonly { readonly path: string; readonly content: Buffer }[];
  /** JSON; undefined: there is none. */
  readonly task: unknown;
  readonly secrets: Readonly<Record<string, string>> | null;
  readonly ports: CreateMachineRequest["ports"] | null;
  readonly ttlSeconds: number | null;
  readonly heartbeatSeconds: number | null;
  readonly signal: AbortSignal;
  readonly recordSent: () => void;
}

export interface Assigned {
  readonly ownerToken: string;
  readonly machine: MachineRecord;
}

/** Makes the lease, or continues it. Throws a Refusal when it has ended, or its machine cannot be made. */
export async function assignLease(services: MachineServices, request: LeaseRequest): Promise<Assigned> {
  const { context, cache } = services;
  const { tenantId, leaseId: id } = request;
  const ownerToken = tokenOf(services, { tenantId, id });
  const { ttlSeconds, heartbeatSeconds } = request;
  const operationId = await freshOperationId(context, tenantId, request.operationId);
  const wanted = {
    ...{ tenantId, id, operationId, machineId: cloneId(operationId, 0) },
    ...{ ownerHash: hashOf(ownerToken), ttlSeconds, heartbeatSeconds },
  };
  let lease = await insertLease(context.db, wanted);
  if (lease.state === "assigning" && (await hasFailed(services, lease))) {
    await deleteUnmade(context.db, lease);
    lease = await insertLease(context.db, wanted);
  }
  const machine =
    lease.state === "assigning"
      ? await make(services, request, lease)
      : lease.state === "ready" && (await cache.read({ tenantId, id: lease.machineId }));
  if (!machine) throw hasEnded(lease);
  return { ownerToken, machine };
}

/** Whether its branch has failed, and the caller went away before. */
const hasFailed = async ({ context }: MachineServices, { tenantId, operationId }: LeaseRow): Promise<boolean> =>
  (await freshOperationId(context, tenantId, operationId)) !== operationId;

/**
 * The machine of a new lease, with what its task needs. A lease for which it cannot be made is forgotten, but
 * not one whose caller went away: the same request continues it, or the loop ends it.
 */
async function make(services: MachineServices, request: LeaseRequest, lease: LeaseRow): Promise<MachineRecord> {
  const { db } = services.context;
  const { tenantId, keyId, machineId, ports, signal } = request;
  try {
    const { operationId } = lease;
    const [machine] = await branchMachine(services, {
      ...{ operationId, tenantId, keyId, machineId, names: [null], ports, signal },
      // What the task may know is said by the request.
      secrets: "refuse",
    });
    if (machine === undefined) throw new Error("the branch made no machine");
    await place(services, request, machine);
    if ((await markReady(db, lease)) !== undefined) return machine;
  } catch (error) {
    if (!signal.aborted) {
      await deleteIfMade(services, machineOf(lease));
      await deleteUnmade(db, lease);
    }
    throw error;
  }
  await deleteIfMade(services, machineOf(lease));
  throw hasEnded((await findLease(db, lease)) ?? lease);
}

/** Writes what the task needs into the machine. */
async function place(services: MachineServices, request: LeaseRequest, machine: MachineRecord): Promise<void> {
  const { tenantId, keyId, files, task, secrets, signal, recordSent } = request;
  const json = (path: string, value: unknown) =>
    value === undefined || value === null ? [] : [{ path, content: Buffer.from(JSON.stringify(value)) }];
  const all = [...files, ...json(TASK_PATH, task), ...json(SECRETS_PATH, secrets)];
  for (const { path, content } of all) {
    const target = { tenantId, keyId, id: machine.id, signal, recordSent, path };
    await writeFile(services, target, { body: Readable.from([content]), sha256: undefined, bytes: content.byteLength });
  }
}

/** Its owner works. Throws a Refusal when it is not ready, or the token is another's. */
export async function heartbeat(services: MachineServices, name: LeaseName, ownerToken: string): Promise<LeaseRow> {
  const lease = await ownedLease(services, name, ownerToken);
  const noted = await noteHeartbeat(services.context.db, name);
  if (noted !== undefined) return noted;
  throw hasEnded((await findLease(services.context.db, name)) ?? lease);
}

/** Ends it and deletes its machine. One that has ended stays as it ended. */
export async function completeLease(
  services: MachineServices,
  name: LeaseName,
  { ownerToken, ...end }: Parameters<typeof endLease>[2] & { readonly ownerToken: string },
): Promise<LeaseRow> {
  const { db } = services.context;
  const lease = await ownedLease(services, name, ownerToken);
  if (lease.state === "assigning")
    throw new Refusal("conflict", `lease ${name.id} is being made; try again when the request for it is answered`);
  const ended = await endLease(db, name, end);
  if (ended !== undefined) await deleteLeased(services, ended);
  return ended ?? (await findLease(db, name)) ?? lease;
}

/** Deletes the machine of a lease that has ended. */
export async function deleteLeased(services: MachineServices, lease: LeaseRow): Promise<void> {
  await deleteIfMade(services, machineOf(lease));
  await noteDeleted(services.context.db, lease);
}

const machineOf = ({ tenantId, machineId: id }: LeaseRow): MachineName => ({ tenantId, id });

async function ownedLease(
  { context: { db } }: MachineServices,
  name: LeaseName,
  ownerToken: string,
): Promise<LeaseRow> {
  const lease = await findLease(db, name);
  if (lease === undefined) throw leaseNotFound(name.id);
  if (timingSafeEqual(lease.ownerHash, hashOf(ownerToken))) return lease;
  throw new Refusal(
    "not_owner",
    `the token is not that of the owner of lease ${name.id}; it was in the answer that made the lease`,
  );
}

export const leaseNotFound = (id: string): Refusal => new Refusal("not_found", `lease ${id} was not found`);

const hasEnded = ({ id, reason }: LeaseRow): Refusal =>
  new Refusal(
    "conflict",
    `lease ${id} has ended${reason === null ? "" : ` (${reason})`}; a new lease needs another leaseId`,
  );

/** The names of tenants have no line break, so no two leases have one text. */
const tokenOf = ({ secrets }: MachineServices, { tenantId, id }: LeaseName): string =>
  secrets.derive(`lease\n${tenantId}\n${id}`).toString("base64url");

const hashOf = (token: string): Buffer => createHash("sha256").update(token).digest();
