/**
 * Stops the machines of tenants whose plan says so once their monthly budget is used up.
 *
 * Two servers may find the same tenant; each machine is stopped by one fenced write. A month may cost more than its budget by
 * what its machines cost in a period of this loop and while they stop.
 */
import { listDesiredRunning } from "../machines/lifetime/store.ts";
import { stopForTenant } from "../machines/lifetime/end.ts";
import type { MachineServices } from "../machines/services.ts";
import { costOfMonth } from "../usage/budget.ts";
import { listStoppable } from "../usage/store.ts";
import type { Reconciler } from "./driver.ts";
import { each } from "./each.ts";

export const BUDGET_PERIOD_MS = 15_000;

export function budgetReconciler(services: MachineServices): Reconciler {
  const { context } = services;
  return {
    name: "budgets",
    purpose: "stops the machines of tenants whose monthly budget is used up, where their plan says so",
    periodMs: BUDGET_PERIOD_MS,
    wakeOn: [],
    async activate() {
      const errors: string[] = [];
      let stopped = 0;
      for (const { tenantId, monthlyBudgetMicros } of await listStoppable(context.db)) {
        if ((await costOfMonth(context, tenantId)) < monthlyBudgetMicros) continue;
        const machines = await listDesiredRunning(context, tenantId);
        const done = await each(machines, (name) => stopForTenant(services, name, "the monthly budget is used up"));
        stopped += done.count;
        errors.push(...done.errors);
      }
      return { counts: { stopped }, errors };
    },
  };
}
