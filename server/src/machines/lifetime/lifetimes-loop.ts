/**
 * Ends machines whose time is over: stops those that were idle for their autoStopSeconds and those of
 * suspended tenants, and deletes, suspends or stops those that are older than their ttlSeconds, as their
 * atEnd says. (The machine loop deletes ephemeral machines that have stopped.)
 *
 * Reads machines; writes through the machines family with its fences. Two servers may find the same machine;
 * one of them ends it. If the server dies in between, the machine loop sends a stop or a delete that was
 * written to the node.
 */
import { ACTIVITY_DELAY_MAX_MS } from "../activity.ts";
import { endExpired, stopIdle, stopForTenant } from "./end.ts";
import { listExpired, listIdle, listSuspended } from "./store.ts";
import type { ConvergeServices, MachineServices } from "../services.ts";
import type { Reconciler } from "../../family.ts";
import { each } from "./each.ts";

const MACHINES_PER_ACTIVATION_MAX = 64;

export function lifetimeReconciler(
  services: ConvergeServices & Pick<MachineServices, "activity" | "inBackground" | "nodeWaitMs">,
): Reconciler {
  const limit = MACHINES_PER_ACTIVATION_MAX;
  return {
    name: "lifetimes",
    purpose: "stops idle machines and those of suspended tenants, and ends those that have reached their maximum age",
    periodMs: 15_000,
    wakeOn: ["tenants"],
    async activate() {
      const expired = await listExpired(services.context, limit);
      const ended = await each(expired, (name) => endExpired(services, name));
      // By then, every server knows of commands that run on another one.
      const idle = await listIdle(services.context, { limit, idleMinSeconds: ACTIVITY_DELAY_MAX_MS / 1000 });
      const stopped = await each(idle, (name) => stopIdle(services, name));
      const ofSuspended = await listSuspended(services.context, limit);
      const suspended = await each(ofSuspended, (name) => stopForTenant(services, name, "the tenant is suspended"));
      return {
        counts: { ended: ended.count, stopped: stopped.count, suspended: suspended.count },
        errors: [...ended.errors, ...stopped.errors, ...suspended.errors],
        // Machines that could not be ended are found again: a full batch of them must not become a busy loop.
        hasMore: [ended, stopped, suspended].some(({ count }) => count === limit),
      };
    },
  };
}
