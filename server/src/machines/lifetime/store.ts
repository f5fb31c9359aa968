/**
 * Finds machines that are idle, expired or of a suspended tenant. Reads only; end.ts writes, with the fences
 * of the machines family.
 */
import type { Context } from "../../context.ts";
import { sql } from "../../db/database.ts";
import { AHEAD_MS_MAX, instantOf } from "../../db/instant.ts";
import type { MachineName } from "../record.ts";
import { UNREACHABLE_STATUSES } from "../state.ts";

/** Machines whose ttl is over and whose end is to come; a ttl of 0 means none. */
export function listExpired(context: Context, limit: number): Promise<readonly MachineName[]> {
  const now = instantOf(context.clock.now());
  return context.db.query<MachineName>(sql`
    SELECT id, tenant_id AS "tenantId" FROM machines
    WHERE ttl_seconds > 0 AND deleted_at IS NULL AND extract(epoch FROM ${now}::timestamptz - created_at) >= ttl_seconds
      AND (at_end = 'delete' OR desired_state = 'running')
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

/** How long a machine may take until it is ready. One that never is must not run for ever. */
const UNREADY_SECONDS = 600;

/**
 * Running machines that were idle for their autoStopSeconds, and at least for `idleMinSeconds`. Not those on
 * nodes that do not report, whose activity is unknown: as many of them as `limit` would keep all others from
 * their turn. A machine that is not ready is idle since its start was requested, and for UNREADY_SECONDS at
 * least. A start that a wrong clock wrote does not count; such activity is corrected elsewhere
 * (reconcilers/clocks.ts).
 */
export function listIdle(
  context: Context,
  { limit, idleMinSeconds }: { readonly limit: number; readonly idleMinSeconds: number },
): Promise<readonly MachineName[]> {
  const now = instantOf(context.clock.now());
  const latest = instantOf(context.clock.now() + AHEAD_MS_MAX);
  return context.db.query<MachineName>(sql`
    SELECT id, tenant_id AS "tenantId" FROM machines m
    WHERE auto_stop_seconds > 0 AND desired_state = 'running' AND observed_state = 'running'
      AND NOT EXISTS (SELECT FROM nodes n WHERE n.id = m.node_id AND n.status = ANY(${[...UNREACHABLE_STATUSES]}::text[]))
      AND extract(epoch FROM ${now}::timestamptz
          - greatest(CASE WHEN coalesce(ready_at, desired_at) <= ${latest} THEN coalesce(ready_at, desired_at) END, last_activity_at))
        >= greatest(auto_stop_seconds, CASE WHEN ready_at IS NULL THEN ${UNREADY_SECONDS}::int ELSE ${idleMinSeconds}::int END)
    ORDER BY id LIMIT ${limit}`);
}

/** Machines of these tenants whose desired state is `running`. */
export function listDesiredRunning(context: Context, tenantIds: readonly string[]): Promise<readonly MachineName[]> {
  return context.db.query<MachineName>(sql`
    SELECT id, tenant_id AS "tenantId" FROM machines
    WHERE tenant_id = ANY(${tenantIds}::text[]) AND desired_state = 'running' AND is_active ORDER BY tenant_id, id`);
}
