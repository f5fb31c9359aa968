/**
 * Moves machines to their desired state: finishes what the handler of a dead server began, sends desired
 * states to nodes that were unreachable, ends what takes too long, deletes ephemeral machines that have
 * stopped.
 *
 * Owns no table: claims rows whose `reconcile_at` has come (SKIP LOCKED, with a lease), and writes through
 * the machines family with its fences. Two servers never hold the same row at the same time, and would do no
 * harm.
 *
 * If the server dies between claim and write, the lease ends and another one claims the row.
 */
import { ownMessageOf } from "@flotilla/base/errors";
import { NodeUnreachable } from "../link/refusals.ts";
import { abandon } from "./change.ts";
import { converge } from "./converge.ts";
import type { MachineRecord } from "./record.ts";
import type { ConvergeServices } from "./services.ts";
import { phaseOf } from "./state.ts";
import { claimDueMachines, removeMachine, settleMachine } from "./store.ts";
import type { Reconciler, Report } from "../family.ts";
import { abandonText, type MachineAction, planMachine } from "./plan.ts";

const MACHINES_PER_ACTIVATION_MAX = 64;
/** Longer than a node takes to answer a call that does not wait. */
const LEASE_MS = 12_000;

export function machineReconciler(services: ConvergeServices): Reconciler {
  return {
    name: "machines",
    purpose: "moves machines to their desired state, and ends what takes too long",
    periodMs: 1_000,
    wakeOn: [],
    async activate(signal) {
      const due = await claimDueMachines(services.context, { limit: MACHINES_PER_ACTIVATION_MAX, leaseMs: LEASE_MS });
      const outcomes = await Promise.all(due.map((machine) => reconcile(services, machine, signal)));
      return report(outcomes);
    },
  };
}

interface Outcome {
  readonly action: MachineAction;
  readonly error: string | null;
}

async function reconcile(services: ConvergeServices, machine: MachineRecord, signal: AbortSignal): Promise<Outcome> {
  const { action, when } = planMachine(machine, services.context.clock.now());
  services.context.log.debug({ machineId: machine.id, action, when, phase: phaseOf(machine) }, "a machine is due");
  try {
    await apply(services, machine, action, signal);
    return { action, error: null };
  } catch (error) {
    // The node's own report, or the next activation, continues from here.
    if (error instanceof NodeUnreachable || signal.aborted) return { action: "wait", error: null };
    return { action, error: `${machine.id}: ${ownMessageOf(error)}` };
  }
}

async function apply(
  services: ConvergeServices,
  machine: MachineRecord,
  action: MachineAction,
  signal: AbortSignal,
): Promise<void> {
  const { context, cache } = services;
  switch (action) {
    case "remove":
      await removeMachine(context, { tenantId: machine.tenantId, id: machine.id, revision: machine.revision });
      cache.forget(machine.id);
      return;
    case "settle":
      return await settleMachine(context.db, machine);
    case "abandon":
      await cache.write([abandon(machine, abandonText(machine), context.clock.now())]);
      return;
    case "wait":
      return;
    case "send":
      await converge(services, machine, { waitMs: 0, signal });
  }
}

function report(outcomes: readonly Outcome[]): Report {
  const counts: Record<string, number> = {};
  for (const { action } of outcomes) counts[action] = (counts[action] ?? 0) + 1;
  return {
    counts,
    errors: outcomes.flatMap(({ error }) => (error === null ? [] : [error])),
    hasMore: outcomes.length === MACHINES_PER_ACTIVATION_MAX,
  };
}
