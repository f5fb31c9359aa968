/**
 * Brings a pool to its size: makes the machines that are missing, replaces those that ended or waited too
 * long, and deletes those of a deleted pool.
 *
 * Always:
 * - A row of machine_owners is written before its machine is made, with the machine's id, so a server that
 *   dies in between leaves nothing that another one does not finish.
 * - A machine is deleted only after its row was discarded, which a claim excludes.
 * - What was on a lost node is discarded and made elsewhere in one activation.
 * - After an error no machine is made for a while, twice as long after each further one (retryMs).
 */
import { ownMessageOf } from "@flotilla/base/errors";
import { Refusal } from "@flotilla/contract/errors";
import { takeFromPool } from "../machines/fence-store.ts";
import type { ConvergeServices, MachineServices } from "../machines/services.ts";
import { deleteIfMade } from "../machines/remove.ts";
import { makeMachine } from "./make.ts";
import { isFull, type Member, nextAction, retryMs } from "./state.ts";
import {
  addMembers,
  clearPoolFailures,
  discardLost,
  discardMember,
  forgetMember,
  listMembers,
  notePoolFailure,
  type PoolRecord,
  sweepPool,
} from "./store.ts";

/** When a node is lost its machines are made within seconds. */
const AT_A_TIME = 8;

type Found = Member & { readonly error: string | null };

/** How many machines were made and deleted. */
export interface Filled {
  readonly made: number;
  readonly discarded: number;
}

export async function fillPool(services: MachineServices, pool: PoolRecord, signal: AbortSignal): Promise<Filled> {
  const { db, clock, ids } = services.context;
  const now = clock.now();
  const isHeld = pool.retryAt !== null && pool.retryAt > now;
  let [made, discarded] = [0, 0];
  // Before the missing ones are counted.
  await discardLost(db, pool.id, now);
  if (!pool.isDeleted && !isHeld && pool.targetSize > 0) {
    const candidates = Array.from({ length: pool.targetSize }, () => ids.make("machine"));
    await addMembers(db, pool.id, candidates, now);
  }
  const members = await listMembers(db, pool.id);
  const planned = members.map((member) => ({ member, action: nextAction(member, pool, now) }));
  let error: string | null = null;
  const isOver = planned.filter(({ action }) => action !== "make" && action !== "wait");
  for (const part of parts(isOver)) {
    signal.throwIfAborted();
    await Promise.all(
      part.map(async ({ member, action }) => {
        if (action === "release") await takeFromPool(db, member.machineId, now);
        if (action === "forget") await forgetMember(db, member.machineId);
        if (action !== "discard") return;
        error ??= failureOf(member);
        if (await discard(services, pool, member)) discarded += 1;
      }),
    );
  }
  for (const part of parts(planned.filter(({ action }) => action === "make"))) {
    signal.throwIfAborted();
    if (isHeld || error !== null) break;
    const results = await Promise.all(part.map(({ member }) => make(services, pool, member, signal)));
    made += results.filter((result) => result === null).length;
    error = results.find((result) => result !== null) ?? null;
  }
  if (error !== null) await notePoolFailure(db, pool, { error, retryAt: clock.now() + retryMs(pool.failures) });
  else if (pool.error !== null && isFull(members, pool.targetSize)) await clearPoolFailures(db, pool.id);
  await sweepPool(db, pool.id, now);
  return { made, discarded };
}

const failureOf = ({ phase, error, isDiscarded }: Found): string | null =>
  phase === "failed" && !isDiscarded ? (error ?? "a machine could not be started") : null;

/** Divides a list, in its order, into parts whose items are worked on at the same time. */
const parts = <T>(all: readonly T[]): readonly (readonly T[])[] =>
  Array.from({ length: Math.ceil(all.length / AT_A_TIME) }, (_, part) =>
    all.slice(part * AT_A_TIME, (part + 1) * AT_A_TIME),
  );

/** Why it could not be made; null: it starts. */
async function make(
  services: MachineServices,
  pool: PoolRecord,
  { machineId: id }: Found,
  signal: AbortSignal,
): Promise<string | null> {
  try {
    await makeMachine(services, pool, { id, keyId: pool.createdBy, waits: true, signal });
    return null;
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    return ownMessageOf(error);
  }
}

async function discard(
  services: ConvergeServices & Pick<MachineServices, "inBackground">,
  { tenantId }: PoolRecord,
  { machineId, phase }: Found,
): Promise<boolean> {
  const { db, clock } = services.context;
  if (!(await discardMember(db, machineId, clock.now())) || phase === null) return false;
  await deleteIfMade(services, { tenantId, id: machineId });
  await forgetMember(db, machineId);
  return true;
}
