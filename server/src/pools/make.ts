/**
 * Makes and starts machines of pools, and deletes those that are not wanted.
 */
import { ABSENT_MAX } from "@flotilla/contract/link/reports";
import type { CreateMachineRequest } from "@flotilla/contract/machines";
import { createMachine } from "../machines/create.ts";
import type { MachineRecord } from "../machines/record.ts";
import { deleteIfMade } from "../machines/remove.ts";
import type { ConvergeServices, MachineServices } from "../machines/services.ts";
import { startMachine } from "../machines/start.ts";
import { listDiscardedOf, type PoolRecord } from "./store.ts";

/** Names the pool of a machine, also after a claim. */
const LABEL = "flotilla-pool";

const requestOf = (pool: PoolRecord): CreateMachineRequest => ({
  source: { type: "image", reference: pool.image },
  resources: { cpus: pool.cpus, memoryMb: pool.memoryMb },
  network: { mode: pool.hasNetwork ? "open" : "blocked" },
  labels: { [LABEL]: pool.id },
});

/**
 * Creates and starts the machine with this id; repeated calls make one. `waits`: for a claim, so that it may
 * be replaced. Throws the Refusals of a create and of a start.
 */
export async function makeMachine(
  services: MachineServices,
  pool: PoolRecord,
  how: { readonly id: string; readonly keyId: string; readonly waits: boolean; readonly signal: AbortSignal },
): Promise<MachineRecord> {
  const { tenantId } = pool;
  const { id, keyId, waits, signal } = how;
  await createMachine(services, { id, tenantId, keyId, request: requestOf(pool), isFenced: waits });
  return await startMachine(services, { id, tenantId, keyId, isAutomatic: false, isDetached: waits, signal });
}

/**
 * Deletes the machines of a node that are to be deleted: the server that decided it may have died before. A
 * node that was lost is back, and must not run what was replaced.
 */
export async function deleteDiscarded(
  services: ConvergeServices & Pick<MachineServices, "inBackground">,
  nodeId: string,
): Promise<void> {
  const machines = await listDiscardedOf(services.context.db, nodeId, ABSENT_MAX);
  for (const machine of machines) await deleteIfMade(services, machine);
}
