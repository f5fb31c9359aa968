/**
 * Converts a row of tenants to an API answer.
 */
import type { TenantInfo } from "@flotilla/contract/tenants";
import type { Static } from "@flotilla/contract/schema";
import type { TenantRow } from "./store.ts";

/**
 * The billing time of a tenant with a test clock; null without one. `now`: epoch milliseconds of real time.
 */
export const testClockView = ({ hasTestClock, clockAheadMs }: TenantRow, now: number): string | null =>
  hasTestClock ? new Date(now + clockAheadMs).toISOString() : null;

export const tenantInfo = (row: TenantRow, now: number): Static<typeof TenantInfo> => ({
  id: row.id,
  name: row.name,
  status: row.status,
  createdAt: new Date(row.createdAt).toISOString(),
  updatedAt: new Date(row.updatedAt).toISOString(),
  planId: row.planId,
  externalBillingId: row.externalBillingId,
  maxApps: row.maxApps,
  maxCpus: row.maxCpus,
  maxMemoryMb: row.maxMemoryMb,
  maxDiskGb: row.maxDiskGb,
  testClock: testClockView(row, now),
  // Plans limit pools; existing clients expect the field.
  maxSandboxPools: null,
  freeCreditMicros: row.creditMicros,
});
