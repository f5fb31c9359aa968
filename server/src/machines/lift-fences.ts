/**
 * Lifts the fence of machines that were given to a user: their VMs do not end any more when their node is cut
 * off.
 *
 * Always: the row says so first, and that it is not finished until the node has confirmed it. So any server
 * finishes it, at the latest when the node reports again. Until then the VM may still end; the machine then
 * boots again with its disk.
 */
import { ownMessageOf } from "@flotilla/base/errors";
import { converge } from "./converge.ts";
import { machineNotFound } from "../auth/not-found.ts";
import { beginLift, endLift, listLifting, takeFromPool } from "./fence-store.ts";
import type { MachineRecord } from "./record.ts";
import type { ConvergeServices, MachineServices } from "./services.ts";

const LIFTED_AT_A_TIME = 64;

/**
 * Gives a machine that may wait in a pool to its user, before it is used: its pool neither deletes nor
 * replaces it any more. Throws a Refusal if the pool is to delete it. A machine without a fence costs no
 * query.
 */
export async function claimForUse(
  services: ConvergeServices & Pick<MachineServices, "inBackground">,
  { id, fence }: Pick<MachineRecord, "id" | "fence">,
): Promise<void> {
  if (fence !== "on") return;
  const { db, clock } = services.context;
  if (!(await takeFromPool(db, id, clock.now()))) throw machineNotFound(id);
  await liftFence(services, id);
}

/** Lifts one now. The node is called in the background. */
export async function liftFence(
  services: ConvergeServices & Pick<MachineServices, "inBackground">,
  id: string,
): Promise<void> {
  const [machine] = await services.cache.keep([id], () => beginLift(services.context, [id]));
  if (machine === undefined) return;
  services.inBackground(`the fence of ${id}`, () => converge(services, machine, { waitMs: 0 }));
}

/** Finishes what other calls began. Returns errors for the log. */
export async function finishLifts(services: ConvergeServices): Promise<readonly string[]> {
  const { db } = services.context;
  const machines = await listLifting(db, LIFTED_AT_A_TIME);
  const done = machines.filter((machine) => !mayBeFenced(machine));
  if (done.length > 0) await endLift(db, done);
  const errors = await Promise.all(
    machines.filter(mayBeFenced).map((machine) =>
      converge(services, machine, { waitMs: 0 }).then(
        () => [],
        (error: unknown) => [`fence of ${machine.id}: ${ownMessageOf(error)}`],
      ),
    ),
  );
  return errors.flat();
}

/**
 * Whether a VM of it may still have a fence. One whose node has not answered since its start was requested
 * may get one.
 */
const mayBeFenced = ({ deletedAt, nodeId, observedDetails, observedGeneration, generation }: MachineRecord): boolean =>
  deletedAt === null && nodeId !== null && (observedDetails.isFenced || observedGeneration < generation);
