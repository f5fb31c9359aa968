/**
 * Usage, cost, account and billing shapes. Money is integer micros of the currency unit; hours are fractions.
 */
import { endpoint, json } from "./endpoint.ts";
import { int32, int64, nullable, PageQuery, type Static, text, timestamp, Type } from "./schema.ts";
import { PlanInfo } from "./plans.ts";

export const UsageResponse = Type.Object({
  tenantId: Type.String(),
  from: timestamp(),
  to: timestamp(),
  totalUptimeSeconds: int64(),
  cpuHours: Type.Number(),
  memoryGbHours: Type.Number(),
  diskGbHours: Type.Number(),
  egressGb: Type.Number({ description: "what machines sent, in units of 2^30 bytes" }),
  registryGbHours: Type.Number({ description: "what the tenant had in the registry" }),
  machineCount: int32(),
  execCount: int32(),
  execDurationMs: int64(),
});
export type UsageResponse = Static<typeof UsageResponse>;

export const CostBreakdown = Type.Object({
  cpuMicros: int64(),
  memoryMicros: int64(),
  execMicros: int64({ description: "always 0: commands are free" }),
  diskMicros: int64({ description: "0: disks are metered and have no price" }),
  egressMicros: int64({ description: "what machines sent" }),
  registryMicros: int64({ description: "what the tenant had in the registry" }),
  baseMicros: int64({ description: "0: there is no price per machine" }),
  monthlyFeeMicros: int64({ description: "0: plans have no fee" }),
  volumeDiscountMicros: int64({ description: "0: there are no discounts" }),
  freeCreditMicros: int64({ description: "0: a plan gives no credit" }),
  creditAppliedMicros: int64({ description: "0: credit is applied to the balance" }),
  totalMicros: int64({ description: "the sum of the lines" }),
  amountDueMicros: int64({ description: "the total: credit is applied to the balance, when the month is invoiced" }),
});
export type CostBreakdown = Static<typeof CostBreakdown>;

export const AccountInfo = Type.Object({
  tenantId: Type.String(),
  status: Type.String(),
  testClock: nullable(timestamp("the tenant's billing time; null: it has no test clock")),
  plan: nullable(PlanInfo),
  effectiveMaxCpus: int32(),
  effectiveMaxMemoryMb: int64(),
  effectiveMaxMachines: int32(),
  effectiveMaxDiskGb: int64(),
  effectiveMaxTotalCpus: int64(),
  effectiveMaxTotalMemoryMb: int64(),
  effectiveMaxTotalDiskGb: int64(),
  monthlyBudgetMicros: nullable(int64()),
  budgetRemainingMicros: nullable(
    int64({ description: "the budget less the cost of the month; what is held is not subtracted" }),
  ),
  heldMicros: int64({
    description:
      "what running machines may still cost until they are checked again, at most 60 s later; 0 unless the budget's policy is block or stop",
  }),
  prepaidCreditMicros: int64({ description: "what is left of credit after the final invoices" }),
  lowBalanceThresholdMicros: int64({ description: "0: there is no notice of a low balance" }),
  periodUsage: UsageResponse,
  periodCost: CostBreakdown,
});
export type AccountInfo = Static<typeof AccountInfo>;

export const TenantMeter = Type.Object({
  tenantId: Type.String(),
  cpuHours: Type.Number(),
  memoryGbHours: Type.Number(),
  diskGbHours: Type.Number(),
  egressGb: Type.Number({ description: "what machines sent, in units of 2^30 bytes" }),
  registryGbHours: Type.Number({ description: "what the tenant had in the registry" }),
  execCount: int64(),
  cost: nullable(CostBreakdown),
  externalBillingId: nullable(Type.String()),
});

export const CallerInfo = Type.Object({
  subject: Type.String({ description: "the id of the key" }),
  scopes: Type.Array(Type.String()),
  tenantId: Type.String(),
  tenantName: Type.String(),
  tenantStatus: Type.String(),
  registryNamespace: Type.String(),
});
export type CallerInfo = Static<typeof CallerInfo>;

export const usageEndpoints = {
  getAccount: endpoint({
    method: "GET",
    path: "/v1/account",
    family: "account",
    summary: "The tenant's plan, ceilings, and this month's usage and cost",
    access: ["usage:read", "machine:read"],
    answers: { 200: json(AccountInfo) },
    errors: ["conflict"],
  }),
  getCaller: endpoint({
    method: "GET",
    path: "/v1/me",
    family: "account",
    summary: "The key's owner and permissions",
    access: "anyKey",
    answers: { 200: json(CallerInfo) },
    isExtra: true,
  }),
  listMeters: endpoint({
    method: "GET",
    path: "/v1/billing/meters",
    family: "billing",
    summary: "Every tenant's metered usage and cost of the current month",
    description: "`cost` is null for a tenant that costs more than 2^53 micros, which no JSON number holds exactly.",
    access: ["admin"],
    query: PageQuery,
    answers: { 200: json(Type.Array(TenantMeter)) },
    errors: ["invalid_body"],
  }),
  getUsage: endpoint({
    method: "GET",
    path: "/v1/usage",
    family: "usage",
    summary: "The tenant's usage over a time range; default: the current calendar month in UTC",
    access: ["usage:read", "machine:read"],
    query: Type.Object({
      from: Type.Optional(text({ description: "RFC 3339; default: the start of the month of `to`" })),
      to: Type.Optional(
        text({
          description:
            "RFC 3339; default: now. Commands count by whole minutes: those of each minute that begins in the range",
        }),
      ),
    }),
    answers: { 200: json(UsageResponse) },
    errors: ["invalid_request"],
  }),
} as const;
