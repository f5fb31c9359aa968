/**
 * Writes an event for a tenant when 80 % and 100 % of its monthly budget are used or held, under any policy,
 * or of what its machines may send in a month.
 *
 * Reads the usage of recently active tenants; writes budget_notices and tenant_events in one statement
 * (notices-store.ts), so an event is written once by any number of servers. A crash before the write
 * leaves the event to the next activation.
 */
import type { Context } from "../context.ts";
import { listCeiled } from "./egress-store.ts";
import { costsOf } from "./intervals-store.ts";
import { insertNotices, listBudgeted } from "./notices-store.ts";
import { egressNoticesOf, noticesOf } from "./notices.ts";
import { monthUpTo } from "./usage.ts";
import type { Reconciler } from "../family.ts";

const TENANTS_PER_ACTIVATION_MAX = 500;

export function noticeReconciler(context: Context): Reconciler {
  // Where the next activation continues, so that each tenant has its turn.
  const after = { budget: "", egress: "" };
  return {
    name: "notices",
    purpose: "writes an event when 80 % and 100 % of a tenant's monthly budget or egress are used",
    periodMs: 30_000,
    wakeOn: ["clocks"],
    async activate() {
      const { clock, db } = context;
      const now = clock.now();
      const limit = TENANTS_PER_ACTIVATION_MAX;
      const budgeted = await listBudgeted(db, { now, after: after.budget, limit });
      const ceiled = await listCeiled(db, { now, after: after.egress, limit });
      after.budget = lastOf(budgeted);
      after.egress = lastOf(ceiled);
      let noted = 0;
      // Tenants whose test clocks differ may be in different months.
      for (const [aheadMs, tenants] of Map.groupBy(budgeted, ({ clockAheadMs }) => clockAheadMs)) {
        const period = monthUpTo(now + aheadMs);
        const costs = await costsOf(db, { tenantIds: tenants.map(({ tenantId }) => tenantId), now, ...period });
        const notices = tenants.flatMap((each) => noticesOf(each, costs.get(each.tenantId) ?? 0));
        if (notices.length > 0) noted += await insertNotices(db, { notices, month: period.from, now });
      }
      for (const [aheadMs, tenants] of Map.groupBy(ceiled, ({ clockAheadMs }) => clockAheadMs)) {
        const notices = tenants.flatMap((each) => egressNoticesOf(each));
        const { from: month } = monthUpTo(now + aheadMs);
        if (notices.length > 0) noted += await insertNotices(db, { notices, month, now });
      }
      return { counts: { noted }, errors: [], hasMore: after.budget !== "" || after.egress !== "" };
    },
  };
}

/** The tenant after which the next activation continues; empty: with the first. */
const lastOf = (tenants: readonly { readonly tenantId: string }[]): string =>
  tenants.length === TENANTS_PER_ACTIVATION_MAX ? (tenants.at(-1)?.tenantId ?? "") : "";
