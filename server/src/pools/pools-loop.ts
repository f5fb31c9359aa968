/**
 * Keeps pools at their size (fill.ts), and lifts the fence of machines that were taken from them
 * (machines/lift-fences.ts).
 *
 * Reads pools, machine_owners and machines; writes them through store.ts and the machines family. Two
 * servers may fill one pool at once: rows are added under the pool's lock, and a machine is made once for its
 * id. If the server dies between the row and its machine, the next activation of any server makes it.
 */
import { ownMessageOf } from "@flotilla/base/errors";
import { finishLifts, liftFence } from "../machines/lift-fences.ts";
import type { MachineServices } from "../machines/services.ts";
import { fillPool } from "./fill.ts";
import { listGiven, listPoolsToFill } from "./store.ts";
import type { Reconciler } from "../family.ts";

const POOLS_AT_A_TIME = 64;
/** Each makes a few machines at the same time. */
const FILLED_AT_A_TIME = 4;
const GIVEN_AT_A_TIME = 64;

export function poolReconciler(services: MachineServices): Reconciler {
  return {
    name: "pools",
    purpose: "keeps as many machines started and waiting in each pool as it is to have",
    periodMs: 2_000,
    wakeOn: ["pools"],
    async activate(signal) {
      const filled = await fillAll(services, signal);
      // Machines of claims whose server died before.
      const given = await listGiven(services.context.db, GIVEN_AT_A_TIME);
      for (const id of given) await liftFence(services, id);
      const errors = [...filled.errors, ...(await finishLifts(services))];
      return { counts: { ...filled.counts, lifted: given.length }, errors };
    },
  };
}

async function fillAll(services: MachineServices, signal: AbortSignal) {
  const counts = { made: 0, discarded: 0 };
  const errors: string[] = [];
  let after = "";
  for (;;) {
    const pools = await listPoolsToFill(services.context.db, after, POOLS_AT_A_TIME);
    for (let first = 0; first < pools.length; first += FILLED_AT_A_TIME) {
      await Promise.all(
        pools.slice(first, first + FILLED_AT_A_TIME).map(async (pool) => {
          try {
            const { made, discarded } = await fillPool(services, pool, signal);
            counts.made += made;
            counts.discarded += discarded;
          } catch (error) {
            errors.push(`${pool.id}: ${ownMessageOf(error)}`);
          }
        }),
      );
    }
    after = pools.at(-1)?.id ?? after;
    if (pools.length < POOLS_AT_A_TIME || signal.aborted) return { counts, errors };
  }
}
