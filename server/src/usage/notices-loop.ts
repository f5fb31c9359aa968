/**
 * Writes an event for a tenant when 80 % and 100 % of its monthly budget are used or held, under any policy.
 *
 * Reads the usage of recently active tenants; writes budget_notices and tenant_events in one statement
 * (notices-store.ts), so an event is written once by any number of servers. A crash before the write
 * leaves the event to the next activation.
 */
import type { Context } from "../context.ts";
import { costsOf } from "./intervals-store.ts";
import { insertNotices, listBudgeted } from "./notices-store.ts";
import { noticesOf } from "./notices.ts";
import { monthUpTo } from "./usage.ts";
import type { Reconciler } from "../family.ts";

const TENANTS_PER_ACTIVATION_MAX = 500;

export function noticeReconciler(context: Context): Reconciler {
  // Where the next activation continues, so that each tenant has its turn.
  let after = "";
  return {
    name: "notices",
    purpose: "writes an event when 80 % and 100 % of a tenant's monthly budget are used",
    periodMs: 30_000,
    wakeOn: ["clocks"],
    async activate() {
      const { clock, db } = context;
      const now = clock.now();
      const budgeted = await listBudgeted(db, { now, after, limit: TENANTS_PER_ACTIVATION_MAX });
      const hasMore = budgeted.length === TENANTS_PER_ACTIVATION_MAX;
      after = hasMore ? (budgeted.at(-1)?.tenantId ?? "") : "";
      let noted = 0;
      // Tenants whose test clocks differ may be in different months.
      for (const [aheadMs, tenants] of Map.groupBy(budgeted, ({ clockAheadMs }) => clockAheadMs)) {
        const period = monthUpTo(now + aheadMs);
        const costs = await costsOf(db, { tenantIds: tenants.map(({ tenantId }) => tenantId), now, ...period });
        const notices = tenants.flatMap((each) => noticesOf(each, costs.get(each.tenantId) ?? 0));
        if (notices.length > 0) noted += await insertNotices(db, { notices, month: period.from, now });
      }
      return { counts: { noted }, errors: [], hasMore };
    },
  };
}
