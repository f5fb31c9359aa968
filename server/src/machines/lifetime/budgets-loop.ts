/**
 * Renews the holds on budgets for running machines. Once a monthly budget has no room for them, stops the
 * tenant's machines if its plan says so, and once they have sent what the plan allows in a month.
 *
 * Reads usage; writes ledger_holds (usage/holds-store.ts), stops (machines/lifetime/end.ts), the event of the
 * full budget (usage/notices-store.ts), and subtotals (usage/subtotals-store.ts), so that no check reads all
 * intervals of a month.
 *
 * Always:
 * - A hold that this loop renewed lasts HOLD_MS. If it does not fit, the machines are stopped while the
 *   previous one lasts, which is at least HOLD_MS less this loop's period.
 * - An activation makes seven statements, one more for each test clock that is ahead, two more if some are
 *   over their budget, one more for each hundred tenants after the first, and a short transaction for each
 *   subtotal.
 * - Two servers may find the same tenant; each machine is stopped by one fenced write.
 *
 * A crash between renewing and stopping leaves the stop to the next activation of any server.
 */
import { ownMessageOf } from "@flotilla/base/errors";
import type { Database } from "../../db/database.ts";
import { listDesiredRunning } from "./store.ts";
import { stopForTenant } from "./end.ts";
import type { ConvergeServices, MachineServices } from "../services.ts";
import { HOLD_MS, readSpent, renewHolds } from "../../usage/holds-store.ts";
import { listRunningCeiled } from "../../usage/egress-store.ts";
import { egressNoticesOf, isEgressUsedUp, isUsedUp, NOTICE_PERCENTS, noticesOf } from "../../usage/notices.ts";
import { insertNotices } from "../../usage/notices-store.ts";
import { listStoppable } from "../../usage/store.ts";
import { listUnsummed, writeSubtotal } from "../../usage/subtotals-store.ts";
import { monthUpTo } from "../../usage/usage.ts";
import type { Reconciler } from "../../family.ts";
import { each } from "./each.ts";

const BUDGET_PERIOD_MS = 15_000;
/** Max tenants that get a subtotal in one activation. */
const SUMMED_MAX = 100;

export function budgetReconciler(
  services: ConvergeServices & Pick<MachineServices, "inBackground" | "nodeWaitMs">,
): Reconciler {
  const { context } = services;
  return {
    name: "budgets",
    purpose:
      "holds what running machines cost next, and stops those of tenants whose monthly budget or egress is used up",
    periodMs: BUDGET_PERIOD_MS,
    wakeOn: ["clocks"],
    async activate() {
      const { clock, db } = context;
      const now = clock.now();
      const held = await renewHolds(db, now);
      const stopped = await stopOverBudget(services, now);
      const summed = await writeSubtotals(db, now);
      return {
        counts: { held, stopped: stopped.count, summed: summed.count },
        errors: [...stopped.errors, ...summed.errors],
      };
    },
  };
}

interface Done {
  readonly count: number;
  readonly errors: readonly string[];
}

/** Stops the machines of tenants whose budget or egress is used up; returns how many. */
async function stopOverBudget(
  services: ConvergeServices & Pick<MachineServices, "inBackground" | "nodeWaitMs">,
  now: number,
): Promise<Done> {
  const { context } = services;
  const { db } = context;
  /** Why the machines of each of these tenants are stopped. */
  const over = new Map<string, string>();
  // Tenants whose test clocks differ may be in different months.
  for (const [aheadMs, group] of Map.groupBy(await listStoppable(db, now), (tenant) => tenant.clockAheadMs)) {
    const spent = await readSpent(db, { tenantIds: group.map(({ tenantId }) => tenantId), now });
    const used = (tenantId: string): number => spent.get(tenantId) ?? 0;
    const full = group.filter((tenant) => isUsedUp(tenant, used(tenant.tenantId)));
    if (full.length === 0) continue;
    const notices = full.flatMap((tenant) => noticesOf(tenant, used(tenant.tenantId), NOTICE_PERCENTS));
    await insertNotices(db, { notices, month: monthUpTo(now + aheadMs).from, now });
    for (const { tenantId, budgetMicros } of full) over.set(tenantId, whyStopped(used(tenantId) >= budgetMicros));
  }
  const senders = (await listRunningCeiled(db, now)).filter(isEgressUsedUp);
  for (const [aheadMs, group] of Map.groupBy(senders, (tenant) => tenant.clockAheadMs)) {
    const notices = group.flatMap((tenant) => egressNoticesOf(tenant, NOTICE_PERCENTS));
    await insertNotices(db, { notices, month: monthUpTo(now + aheadMs).from, now });
    for (const { tenantId, maxEgressGb } of group)
      over.set(tenantId, `its tenant's machines have sent the ${maxEgressGb} GB that they may send in a month`);
  }
  if (over.size === 0) return { count: 0, errors: [] };
  const machines = await listDesiredRunning(context, [...over.keys()]);
  return await each(machines, (name) => stopForTenant(services, name, over.get(name.tenantId) ?? whyStopped(true)));
}

const whyStopped = (isUsedUp: boolean): string =>
  isUsedUp
    ? "the monthly budget is used up"
    : `the next ${HOLD_MS / 1000} s of running machines do not fit in the monthly budget`;

/** Sums what is used of budgets whose checks would read many intervals; returns for how many tenants. */
async function writeSubtotals(db: Database, now: number): Promise<Done> {
  const errors: string[] = [];
  let count = 0;
  for (const tenantId of await listUnsummed(db, { now, limit: SUMMED_MAX })) {
    try {
      if (await writeSubtotal(db, { tenantId, now })) count += 1;
    } catch (error) {
      errors.push(`the subtotal of ${tenantId}: ${ownMessageOf(error)}`);
    }
  }
  return { count, errors };
}
