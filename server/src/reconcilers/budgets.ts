/**
 * Renews what is held for running machines, and stops the machines of tenants whose plan says so once their monthly budget has no room
 * for that.
 *
 * Reads usage; writes ledger_holds (usage/holds-store.ts), stops (machines/lifetime/end.ts) and the event of the full budget
 * (usage/notices-store.ts).
 *
 * Always:
 * - A hold that this loop renewed lasts HOLD_MS. If it does not fit, the machines are stopped while the one before lasts: what was held
 *   then is at least HOLD_MS less this loop's period.
 * - An activation makes five statements, one more for each test clock that is ahead, two more if some are over their budget, and one more
 *   for each hundred tenants after the first.
 * - Two servers may find the same tenant; each machine is stopped by one fenced write.
 *
 * A crash between renewing and stopping leaves the stop to the next activation of any server.
 */
import { listDesiredRunning } from "../machines/lifetime/store.ts";
import { stopForTenant } from "../machines/lifetime/end.ts";
import type { MachineServices } from "../machines/services.ts";
import { renewHolds } from "../usage/holds-store.ts";
import { costsOf } from "../usage/intervals-store.ts";
import { isUsedUp, NOTICE_PERCENTS, noticesOf } from "../usage/notices.ts";
import { insertNotices } from "../usage/notices-store.ts";
import { listStoppable } from "../usage/store.ts";
import { monthUpTo } from "../usage/usage.ts";
import type { Reconciler } from "./driver.ts";
import { each } from "./each.ts";

const BUDGET_PERIOD_MS = 15_000;

export function budgetReconciler(services: MachineServices): Reconciler {
  const { context } = services;
  return {
    name: "budgets",
    purpose:
      "holds what running machines cost next, and stops those of tenants whose monthly budget has no room for it",
    periodMs: BUDGET_PERIOD_MS,
    wakeOn: ["clocks"],
    async activate() {
      const { clock, db, ids } = context;
      const now = clock.now();
      const held = await renewHolds(db, now);
      const over: string[] = [];
      // Tenants whose test clocks differ may be in different months.
      for (const [aheadMs, group] of Map.groupBy(await listStoppable(db, now), (tenant) => tenant.clockAheadMs)) {
        const tenantIds = group.map(({ tenantId }) => tenantId);
        const month = monthUpTo(now + aheadMs);
        const costs = await costsOf(db, { tenantIds, now, ...month });
        const used = (tenantId: string): number => costs.get(tenantId) ?? 0;
        const full = group.filter((tenant) => isUsedUp(tenant, used(tenant.tenantId)));
        if (full.length === 0) continue;
        const notices = full.flatMap((tenant) =>
          noticesOf(tenant, used(tenant.tenantId), () => ids.make("event"), NOTICE_PERCENTS),
        );
        await insertNotices(db, { notices, month: month.from, now });
        over.push(...full.map(({ tenantId }) => tenantId));
      }
      if (over.length === 0) return { counts: { held, stopped: 0 }, errors: [] };
      const machines = await listDesiredRunning(context, over);
      const done = await each(machines, (name) => stopForTenant(services, name, "the monthly budget is used up"));
      return { counts: { held, stopped: done.count }, errors: done.errors };
    },
  };
}
