/**
 * Stops the machines of tenants whose plan says so once their monthly budget is used up.
 *
 * Always:
 * - An activation reads all tenants with two queries, one more for each test clock that is ahead, and one more if some are over their budget.
 * - Two servers may find the same tenant; each machine is stopped by one fenced write.
 * - A month costs more than its budget by at most what its machines cost in a period of this loop and while they stop.
 */
import { listDesiredRunning } from "../machines/lifetime/store.ts";
import { stopForTenant } from "../machines/lifetime/end.ts";
import type { MachineServices } from "../machines/services.ts";
import { readUsageOf } from "../usage/intervals-store.ts";
import { listStoppable } from "../usage/store.ts";
import { costBreakdown, monthUpTo } from "../usage/usage.ts";
import type { Reconciler } from "./driver.ts";
import { each } from "./each.ts";

export const BUDGET_PERIOD_MS = 15_000;
const NOTHING_STOPPED = { counts: { stopped: 0 }, errors: [] };

export function budgetReconciler(services: MachineServices): Reconciler {
  const { context } = services;
  return {
    name: "budgets",
    purpose: "stops the machines of tenants whose monthly budget is used up, where their plan says so",
    periodMs: BUDGET_PERIOD_MS,
    wakeOn: ["clocks"],
    async activate() {
      const tenants = await listStoppable(context.db);
      if (tenants.length === 0) return NOTHING_STOPPED;
      const now = context.clock.now();
      const over: { readonly tenantId: string }[] = [];
      // Tenants whose test clocks differ may be in different months.
      for (const [aheadMs, group] of Map.groupBy(tenants, ({ clockAheadMs }) => clockAheadMs)) {
        const tenantIds = group.map(({ tenantId }) => tenantId);
        const usage = await readUsageOf(context.db, { tenantIds, now, ...monthUpTo(now + aheadMs) });
        const used = (tenantId: string): number => costBreakdown(usage.get(tenantId)?.lines ?? []).totalMicros;
        over.push(...group.filter(({ tenantId, monthlyBudgetMicros }) => used(tenantId) >= monthlyBudgetMicros));
      }
      if (over.length === 0) return NOTHING_STOPPED;
      const machines = await listDesiredRunning(
        context,
        over.map(({ tenantId }) => tenantId),
      );
      const done = await each(machines, (name) => stopForTenant(services, name, "the monthly budget is used up"));
      return { counts: { stopped: done.count }, errors: done.errors };
    },
  };
}
