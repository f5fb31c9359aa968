/**
 * Claims a machine from a pool: the one that has waited longest, or one that is made for the claim.
 *
 * Always: a repeated claim, with the same `claimId`, gets the same machine, and concurrent ones get different
 * machines.
 */
import { Refusal } from "@flotilla/contract/errors";
import type { Caller } from "../auth/caller.ts";
import { liftFence } from "../machines/lift-fences.ts";
import type { MachineRecord } from "../machines/record.ts";
import type { MachineServices } from "../machines/services.ts";
import { deleteIfMade } from "../machines/remove.ts";
import { makeMachine } from "./make.ts";
import { addClaimed, claimMember, findPool } from "./store.ts";

export interface Claim {
  readonly poolId: string;
  /** The machine's id, if one is made. */
  readonly claimId: string;
  readonly signal: AbortSignal;
}

/** Claims a running machine. undefined: the caller sees no such pool. Throws Refusals of create and start. */
export async function claimMachine(
  services: MachineServices,
  { tenantId, keyId }: Pick<Caller, "tenantId" | "keyId">,
  { poolId, claimId, signal }: Claim,
): Promise<MachineRecord | undefined> {
  const { context, cache, activity } = services;
  const { db, clock } = context;
  const name = { tenantId, id: poolId };
  const claimed = await claimMember(db, name, { claimId, now: clock.now() });
  if (claimed !== undefined && claimed !== claimId) {
    void db.notify("pools", poolId);
    services.inBackground(`the fence of ${claimed}`, () => liftFence(services, claimed));
    const machine = cache.current({ tenantId, id: claimed }) ?? (await cache.read({ tenantId, id: claimed }));
    if (machine !== undefined) {
      activity.note(claimed, { type: "machine.claimed", data: { poolId } });
      return machine;
    }
  }
  const pool = await findPool(db, name);
  if (pool === undefined) return undefined;
  await addClaimed(db, { poolId, machineId: claimId, now: clock.now() });
  try {
    return await makeMachine(services, pool, { id: claimId, keyId, waits: false, signal });
  } catch (error) {
    // The caller does not learn the machine's id. After a 5xx it may be running, and a repeated claim returns
    // it. A machine that has run was the answer of another copy of this claim, so it has an owner.
    if (error instanceof Refusal && error.status < 500)
      await deleteIfMade(services, { tenantId, id: claimId, ifUnused: true });
    throw error;
  }
}
