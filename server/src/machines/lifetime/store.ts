/**
 * Finds machines that are idle, expired or of a suspended tenant. Reads only; end.ts writes, with the fences of the machines
 * family.
 */
import type { Context } from "../../context.ts";
import { sql } from "../../db/database.ts";
import type { MachineName } from "../record.ts";
import { instantOf } from "../../db/instant.ts";

/** Machines that are older than their ttl, in any state; 0 means none. */
export function listExpired(context: Context, limit: number): Promise<readonly MachineName[]> {
  const now = instantOf(context.clock.now());
  return context.db.query<MachineName>(sql`
    SELECT id, tenant_id AS "tenantId" FROM machines
    WHERE ttl_seconds > 0 AND deleted_at IS NULL AND extract(epoch FROM ${now}::timestamptz - created_at) >= ttl_seconds
    ORDER BY created_at LIMIT ${limit}`);
}

/** Machines whose desired state is `running` although their tenant is suspended. */
export function listSuspended(context: Context, limit: number): Promise<readonly MachineName[]> {
  return context.db.query<MachineName>(sql`
    SELECT m.id, m.tenant_id AS "tenantId" FROM tenants t JOIN LATERAL (
      SELECT id, tenant_id FROM machines
      WHERE tenant_id = t.id AND deleted_at IS NULL AND desired_state = 'running' LIMIT ${limit}) m ON true
    WHERE t.status = 'suspended' LIMIT ${limit}`);
}

/** Running machines that were idle for their autoStopSeconds, and at least for `idleMinSeconds`. */
export function listIdle(
  context: Context,
  { limit, idleMinSeconds }: { readonly limit: number; readonly idleMinSeconds: number },
): Promise<readonly MachineName[]> {
  const now = instantOf(context.clock.now());
  return context.db.query<MachineName>(sql`
    SELECT id, tenant_id AS "tenantId" FROM machines
    WHERE auto_stop_seconds > 0 AND desired_state = 'running' AND ready_at IS NOT NULL
      AND extract(epoch FROM ${now}::timestamptz - greatest(ready_at, last_activity_at))
        >= greatest(auto_stop_seconds, ${idleMinSeconds}::int)
    ORDER BY id LIMIT ${limit}`);
}

/** Machines of these tenants whose desired state is `running`. */
export function listDesiredRunning(context: Context, tenantIds: readonly string[]): Promise<readonly MachineName[]> {
  return context.db.query<MachineName>(sql`
    SELECT id, tenant_id AS "tenantId" FROM machines
    WHERE tenant_id = ANY(${tenantIds}::text[]) AND desired_state = 'running' AND is_active ORDER BY tenant_id, id`);
}
