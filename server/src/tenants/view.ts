/**
 * From a row of tenants to what callers see.
 */
import type { TenantInfo } from "@flotilla/contract/tenants";
import type { Static } from "@flotilla/contract/schema";
import type { TenantRow } from "./store.ts";

export const tenantInfo = (row: TenantRow): Static<typeof TenantInfo> => ({
  id: row.id,
  name: row.name,
  status: row.status,
  createdAt: row.created_at.toISOString(),
  updatedAt: row.updated_at.toISOString(),
  planId: row.plan_id,
  externalBillingId: row.external_billing_id,
  maxApps: row.max_apps,
  maxCpus: row.max_cpus,
  maxMemoryMb: row.max_memory_mb,
  maxDiskGb: row.max_disk_gb,
  // Pools are a plan's matter here; the field is part of the shape that clients read.
  maxSandboxPools: null,
});
