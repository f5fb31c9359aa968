/**
 * Serves /v1/me, /v1/account, /v1/usage and /v1/billing/meters.
 */
import { Refusal } from "@flotilla/contract/errors";
import type { Static } from "@flotilla/contract/schema";
import type { TenantMeter } from "@flotilla/contract/usage";
import type { Context } from "../context.ts";
import type { HandlersOf } from "../api/handler.ts";
import { listPage } from "../api/list-page.ts";
import { parsePeriod } from "../api/period.ts";
import { getPlanOf } from "../plans/store.ts";
import { planInfo } from "../plans/view.ts";
import { findTenant, listTenants, type TenantRow } from "../tenants/store.ts";
import { testClockView } from "../tenants/view.ts";
import { readHeld } from "../usage/holds-store.ts";
import { eachUsageOf, readTenantUsage } from "../usage/intervals-store.ts";
import { readBillingTime, readCeilings } from "../usage/store.ts";
import { costBreakdown, costOrNull, monthUpTo, type Usage, usageResponse } from "../usage/usage.ts";
import { notFound } from "../missing.ts";

export function accountHandlers(context: Context): HandlersOf<"getCaller" | "getAccount" | "getUsage" | "listMeters"> {
  const { clock, db } = context;
  return {
    getCaller: async ({ caller }) => {
      const tenant = await findTenant(db, caller.tenantId);
      if (tenant === undefined) throw new Refusal("not_found", `no tenant ${caller.tenantId}`);
      const body = {
        subject: caller.keyId,
        scopes: [...caller.scopes],
        tenantId: tenant.id,
        tenantName: tenant.name,
        tenantStatus: tenant.status,
        registryNamespace: `tenants/${tenant.id}`,
      };
      return { status: 200, body };
    },
    getAccount: async ({ caller: { tenantId } }) => {
      const now = clock.now();
      const tenant = await findTenant(db, tenantId);
      if (tenant === undefined) throw notFound("tenant", tenantId);
      const billingNow = now + tenant.clockAheadMs;
      const [plan, ceilings, usage, heldMicros] = await Promise.all([
        getPlanOf(db, tenantId, billingNow),
        readCeilings(db, tenantId),
        readTenantUsage(db, { tenantId, now, ...monthUpTo(billingNow) }),
        readHeld(db, { tenantId, now }),
      ]);
      const periodCost = costBreakdown(usage.lines);
      const budget = plan.monthlyBudgetMicros;
      const body = {
        tenantId,
        status: tenant.status,
        testClock: testClockView(tenant, now),
        plan: planInfo(plan),
        effectiveMaxCpus: ceilings.maxCpus,
        effectiveMaxMemoryMb: ceilings.maxMemoryMb,
        effectiveMaxMachines: ceilings.maxMachines,
        effectiveMaxDiskGb: ceilings.maxDiskGb,
        effectiveMaxTotalCpus: ceilings.maxTotalCpus,
        effectiveMaxTotalMemoryMb: ceilings.maxTotalMemoryMb,
        effectiveMaxTotalDiskGb: ceilings.maxTotalDiskGb,
        monthlyBudgetMicros: budget,
        budgetRemainingMicros: budget === null ? null : Math.max(0, budget - periodCost.totalMicros),
        heldMicros,
        prepaidCreditMicros: tenant.creditMicros,
        lowBalanceThresholdMicros: 0,
        periodUsage: usageResponse(usage),
        periodCost,
      };
      return { status: 200, body };
    },
    getUsage: async ({ caller: { tenantId }, query }) => {
      const now = clock.now();
      const end = await readBillingTime(db, tenantId, now);
      const period = parsePeriod(query, { end, startOf: (to) => monthUpTo(to).from });
      return { status: 200, body: usageResponse(await readTenantUsage(db, { tenantId, now, ...period })) };
    },
    listMeters: async ({ query }) => {
      const keyOf = ({ createdAt, id }: TenantRow): string => `${createdAt} ${id}`;
      const { body, headers } = listPage(await listTenants(db), query, { path: "/v1/billing/meters", keyOf });
      return { status: 200, headers, body: await meters(context, body) };
    },
  };
}

/** What each of the tenants has used in its current month. */
async function meters({ clock, db }: Context, tenants: readonly TenantRow[]): Promise<Static<typeof TenantMeter>[]> {
  const now = clock.now();
  const period = monthUpTo(now);
  const used = new Map<string, Usage>();
  const inRealTime = tenants.filter(({ clockAheadMs }) => clockAheadMs === 0).map(({ id }) => id);
  for await (const usage of eachUsageOf(db, { tenantIds: inRealTime, now, ...period })) used.set(usage.tenantId, usage);
  // Tenants whose test clock is ahead may be in another month.
  for (const { id: tenantId, clockAheadMs } of tenants.filter((tenant) => tenant.clockAheadMs > 0))
    used.set(tenantId, await readTenantUsage(db, { tenantId, now, ...monthUpTo(now + clockAheadMs) }));
  return tenants.map((tenant) => {
    const nothing = { ...period, tenantId: tenant.id, lines: [], machineCount: 0, execCount: 0, execDurationMs: 0 };
    const usage = used.get(tenant.id) ?? nothing;
    const { cpuHours, memoryGbHours, diskGbHours, egressGb, registryGbHours, execCount } = usageResponse(usage);
    const cost = costOrNull(usage.lines);
    const { id: tenantId, externalBillingId } = tenant;
    const hours = { cpuHours, memoryGbHours, diskGbHours, registryGbHours };
    return { tenantId, ...hours, egressGb, execCount, cost, externalBillingId };
  });
}
