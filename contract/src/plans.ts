/**
 * Plans: a tenant's ceilings and per-unit rates. Rates are integer micros.
 */
import { endpoint, json } from "./endpoint.ts";
import { int32, int64, nullable, oneOf, optional, type Static, Type, text, timestamp, pageQuery } from "./schema.ts";

/** What happens when a tenant's monthly budget is used up. */
export const BUDGET_POLICIES = ["none", "notify", "block", "stop"] as const;
export type BudgetPolicy = (typeof BUDGET_POLICIES)[number];

const ceilings = {
  maxApps: int32(),
  maxCpus: int32({ description: "per machine" }),
  maxMemoryMb: int64({ description: "per machine" }),
  maxDiskGb: int64({ description: "per machine" }),
  maxMachines: int32({ description: "in all states" }),
  maxConcurrentMachines: int32({ description: "started and creating" }),
  maxTotalCpus: int64({ description: "sum of all machines that are started or creating" }),
  maxTotalMemoryMb: int64({ description: "sum of all machines that are started or creating" }),
  maxTotalDiskGb: int64({ description: "sum of all machines in any state" }),
  rateCpuHourMicros: int64(),
  rateMemoryGbHourMicros: int64(),
  rateExecMicros: int64(),
  rateRequestsPerSecond: int32({ description: "refill of the tenant's token bucket" }),
  rateBurst: int32({ description: "size of the tenant's token bucket" }),
};

export const PlanInfo = Type.Object({
  id: Type.String(),
  name: Type.String(),
  isDefault: Type.Boolean(),
  budgetPolicy: oneOf(BUDGET_POLICIES),
  ...ceilings,
  maxEgressGb: nullable(int64()),
  monthlyBudgetMicros: nullable(int64()),
  createdAt: timestamp(),
});
export type PlanInfo = Static<typeof PlanInfo>;

export const CreatePlanRequest = Type.Object({
  name: text({ minLength: 1, maxLength: 100 }),
  id: optional(Type.String({ pattern: "^[A-Za-z0-9_-]{1,64}$" })),
  isDefault: optional(Type.Boolean()),
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
  rateCpuHourMicros: optional(int64()),
  rateMemoryGbHourMicros: optional(int64()),
  rateExecMicros: optional(int64()),
  rateRequestsPerSecond: optional(int32({ minimum: 1 })),
  rateBurst: optional(int32({ minimum: 1 })),
  maxEgressGb: optional(int64()),
  monthlyBudgetMicros: optional(int64()),
});
export type CreatePlanRequest = Static<typeof CreatePlanRequest>;

export const planEndpoints = {
  listPlans: endpoint({
    method: "GET",
    path: "/v1/plans",
    family: "plans",
    summary: "List all plans",
    access: ["admin"],
    query: Type.Object(pageQuery),
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
} as const;
