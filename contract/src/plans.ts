/**
 * Plans: a tenant's ceilings and per-unit rates. Rates are integer micros.
 */
import { endpoint, json } from "./endpoint.ts";
import { RECORD_ID } from "./patterns.ts";
import { int32, int64, nullable, oneOf, optional, PageQuery, type Static, text, timestamp, Type } from "./schema.ts";

/** What happens when a tenant's monthly budget is used up. */
export const BUDGET_POLICIES = ["none", "notify", "block", "stop"] as const;
export type BudgetPolicy = (typeof BUDGET_POLICIES)[number];

/**
 * 1000 units of the currency an hour. What a plan's totals cost in a month is bounded too
 * (server/src/plans/price-bound.ts).
 */
export const RATE_MICROS_MAX = 1_000_000_000;
const price = (description?: string) =>
  int64({ maximum: RATE_MICROS_MAX, ...(description === undefined ? {} : { description }) });

const ceilings = {
  maxApps: int32(),
  maxCpus: int32({ description: "per machine" }),
  maxMemoryMb: int64({ description: "per machine" }),
  maxDiskGb: int64({ description: "per machine" }),
  maxMachines: int32({ description: "in all states" }),
  maxConcurrentMachines: int32({ description: "started and creating" }),
  maxTotalCpus: int64({ description: "sum of all machines that are started or creating" }),
  maxTotalMemoryMb: int64({ description: "sum of all machines that are started or creating" }),
  maxTotalDiskGb: int64({ description: "sum of all machines in any state, and of the memory of suspended ones" }),
  rateCpuHourMicros: int64({ description: "as it is now; `/v1/plans/{id}/rates` has every price with its time" }),
  rateMemoryGbHourMicros: int64({ description: "as it is now" }),
  rateExecMicros: int64({ description: "commands are free" }),
  rateBaseHourMicros: int64({ description: "0: there is no price per machine" }),
  rateDiskGbHourMicros: int64({ description: "0: disks have no price" }),
  rateEgressGbMicros: int64({ description: "per GB that machines send, 2^30 bytes; as it is now" }),
  rateRegistryGbHourMicros: int64({ description: "per GB in the registry and hour; as it is now" }),
  monthlyFeeMicros: int64({ description: "0: plans have no fee" }),
  freeCreditMicros: int64({ description: "0: a plan gives no credit" }),
  rateRequestsPerSecond: int32({ description: "refill of the tenant's token bucket" }),
  rateBurst: int32({ description: "size of the tenant's token bucket" }),
};

export const PlanInfo = Type.Object({
  id: Type.String(),
  name: Type.String(),
  isDefault: Type.Boolean(),
  budgetPolicy: oneOf(BUDGET_POLICIES),
  ...ceilings,
  maxEgressGb: nullable(
    int64({
      description:
        "GB that all machines may send in a calendar month; then starts are refused and running machines are stopped",
    }),
  ),
  maxPackageGb: nullable(int64({ description: "GB that a tenant may store in the registry" })),
  monthlyBudgetMicros: nullable(int64()),
  createdAt: timestamp(),
});
export type PlanInfo = Static<typeof PlanInfo>;

/** What a plan is made with, and what may be changed of it. */
const chosenCeilings = {
  budgetPolicy: optional(oneOf(BUDGET_POLICIES)),
  maxApps: optional(int32()),
  maxCpus: optional(int32()),
  maxMemoryMb: optional(int64()),
  maxDiskGb: optional(int64()),
  maxMachines: optional(int32()),
  maxConcurrentMachines: optional(int32()),
  maxTotalCpus: optional(int64()),
  maxTotalMemoryMb: optional(int64()),
  maxTotalDiskGb: optional(int64()),
};
const chosenRates = {
  rateExecMicros: optional(int64()),
  rateRequestsPerSecond: optional(int32({ minimum: 1 })),
  rateBurst: optional(int32({ minimum: 1 })),
};

export const CreatePlanRequest = Type.Object({
  name: text({ minLength: 1, maxLength: 100 }),
  id: optional(Type.String({ pattern: RECORD_ID })),
  isDefault: optional(Type.Boolean()),
  ...chosenCeilings,
  rateCpuHourMicros: optional(price()),
  rateMemoryGbHourMicros: optional(price()),
  rateEgressGbMicros: optional(price()),
  rateRegistryGbHourMicros: optional(price()),
  ...chosenRates,
  maxEgressGb: optional(int64()),
  maxPackageGb: optional(int64()),
  monthlyBudgetMicros: optional(int64()),
});
export type CreatePlanRequest = Static<typeof CreatePlanRequest>;

export const UpdatePlanRequest = Type.Object({
  name: optional(text({ minLength: 1, maxLength: 100 })),
  isDefault: optional(Type.Boolean({ description: "only as it is: a new default plan is made with POST /v1/plans" })),
  ...chosenCeilings,
  rateCpuHourMicros: optional(price("only as it is: prices are set with POST /v1/plans/{id}/rates")),
  rateMemoryGbHourMicros: optional(price("only as it is")),
  rateEgressGbMicros: optional(price("only as it is")),
  rateRegistryGbHourMicros: optional(price("only as it is")),
  ...chosenRates,
  maxEgressGb: optional(int64({ description: "null: no limit" })),
  maxPackageGb: optional(int64({ description: "null: no limit" })),
  monthlyBudgetMicros: optional(int64({ description: "null: no budget" })),
});
export type UpdatePlanRequest = Static<typeof UpdatePlanRequest>;

/**
 * How long before its time a price is made at the latest, so that nothing is recorded at an older one
 * meanwhile.
 */
export const RATE_NOTICE_MS = 60_000;

export const RateInfo = Type.Object({
  id: Type.String(),
  planId: Type.String(),
  activeFrom: timestamp("it holds from then on, until the next one"),
  rateCpuHourMicros: int64(),
  rateMemoryGbHourMicros: int64(),
  rateEgressGbMicros: int64(),
  rateRegistryGbHourMicros: int64(),
  createdAt: timestamp(),
});
export type RateInfo = Static<typeof RateInfo>;

export const CreateRateRequest = Type.Object({
  activeFrom: optional(text({ description: "RFC 3339, at least a minute ahead; default: in a minute" })),
  rateCpuHourMicros: optional(price("default: as before")),
  rateMemoryGbHourMicros: optional(price("default: as before")),
  rateEgressGbMicros: optional(price("default: as before")),
  rateRegistryGbHourMicros: optional(price("default: as before")),
});
export type CreateRateRequest = Static<typeof CreateRateRequest>;

export const planEndpoints = {
  listPlans: endpoint({
    method: "GET",
    path: "/v1/plans",
    family: "plans",
    summary: "List all plans",
    access: ["admin"],
    query: PageQuery,
    answers: { 200: json(Type.Array(PlanInfo)) },
    errors: ["invalid_body"],
  }),
  createPlan: endpoint({
    method: "POST",
    path: "/v1/plans",
    family: "plans",
    summary: "Create a plan; omitted values are the default plan's",
    access: ["admin"],
    body: { kind: "json", schema: CreatePlanRequest },
    answers: { 201: json(PlanInfo) },
    errors: ["invalid_json", "invalid_body", "name_taken"],
  }),
  getPlan: endpoint({
    method: "GET",
    path: "/v1/plans/{id}",
    family: "plans",
    summary: "Read one plan",
    access: ["admin"],
    answers: { 200: json(PlanInfo) },
    errors: ["not_found"],
    isExtra: true,
  }),
  updatePlan: endpoint({
    method: "PATCH",
    path: "/v1/plans/{id}",
    family: "plans",
    summary: "Change a plan's name, ceilings or budget, for all of its tenants",
    description:
      "Omitted fields keep their value; of `maxEgressGb`, `maxPackageGb` and `monthlyBudgetMicros`, null is none. Machines that run keep running when a ceiling is lowered below what they use.",
    access: ["admin"],
    body: { kind: "json", schema: UpdatePlanRequest },
    answers: { 200: json(PlanInfo) },
    errors: ["invalid_json", "invalid_request", "invalid_body", "not_found", "name_taken"],
    isExtra: true,
  }),
  listRates: endpoint({
    method: "GET",
    path: "/v1/plans/{id}/rates",
    family: "plans",
    summary: "List a plan's prices, past and future, in the order of their times",
    access: ["admin"],
    query: PageQuery,
    answers: { 200: json(Type.Array(RateInfo)) },
    errors: ["not_found", "invalid_body"],
    isExtra: true,
  }),
  createRate: endpoint({
    method: "POST",
    path: "/v1/plans/{id}/rates",
    family: "plans",
    summary: "Set a plan's prices from an instant on; what was used before keeps its price",
    access: ["admin"],
    body: { kind: "json", schema: CreateRateRequest },
    answers: { 201: json(RateInfo) },
    errors: ["invalid_json", "invalid_body", "invalid_request", "not_found", "name_taken"],
    isExtra: true,
  }),
} as const;
