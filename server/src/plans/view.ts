/**
 * From a row of plans to what callers see.
 */
import type { PlanInfo } from "@flotilla/contract/plans";
import type { Static } from "@flotilla/contract/schema";
import type { PlanRow } from "./store.ts";

export const planInfo = (row: PlanRow): Static<typeof PlanInfo> => ({
  id: row.id,
  name: row.name,
  isDefault: row.is_default,
  budgetPolicy: row.budget_policy,
  maxApps: row.max_apps,
  maxCpus: row.max_cpus,
  maxMemoryMb: row.max_memory_mb,
  maxDiskGb: row.max_disk_gb,
  maxMachines: row.max_machines,
  maxConcurrentMachines: row.max_concurrent_machines,
  maxTotalCpus: row.max_total_cpus,
  maxTotalMemoryMb: row.max_total_memory_mb,
  maxTotalDiskGb: row.max_total_disk_gb,
  rateCpuHourMicros: row.rate_cpu_hour_micros,
  rateMemoryGbHourMicros: row.rate_memory_gb_hour_micros,
  rateExecMicros: row.rate_exec_micros,
  rateRequestsPerSecond: row.rate_requests_per_second,
  rateBurst: row.rate_burst,
  maxEgressGb: row.max_egress_gb,
  monthlyBudgetMicros: row.monthly_budget_micros,
  createdAt: row.created_at.toISOString(),
});
