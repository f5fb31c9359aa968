/**
 * Reads and renews holds: what active machines may still cost until they are checked again, of tenants whose
 * budget blocks or stops.
 *
 * Always, enforced by the database (migration 0052):
 * - A trigger of machines places a hold in the statement that lets a machine run, and ends it in the one that
 *   ends that.
 * - A machine has at most one open hold. A hold ends once, as posted or voided, and does not change then.
 * - The micros of a hold are its range at the tenant's rates, rounded up: what is spent and held is never
 *   less than what is used when the range ends.
 *
 * A renewal waits for no lock: what another transaction changes at that moment is renewed the next time.
 */
import { type Queryable, sql } from "../db/database.ts";
import { instantOf } from "../db/instant.ts";

/** How far ahead a machine is held. As the function hold_until. */
export const HOLD_MS = 60_000;
/** A hold that another server renewed within this time is not renewed. */
const RENEW_AFTER_MS = 10_000;
/** Max tenants whose usage one statement sums. */
const TENANTS_PER_STATEMENT_MAX = 100;

/** Tenants with such a budget. */
const BUDGETED = sql`
    budgeted AS MATERIALIZED (
      SELECT t.id FROM plans p JOIN tenants t ON p.id = coalesce(t.plan_id, (SELECT id FROM plans WHERE is_default))
      WHERE p.budget_policy IN ('block', 'stop') AND p.monthly_budget_micros IS NOT NULL)`;

/**
 * Renews the holds of all tenants: ends those of tenants without such a budget, places missing ones, as after
 * a change of a plan, and moves the others to the window that begins where usage is counted. Holds of
 * machines on nodes that do not report stay as they are. Returns how many it wrote.
 */
export async function renewHolds(db: Queryable, now: number): Promise<number> {
  const at = sql`${instantOf(now)}::timestamptz`;
  const ended = await db.execute(sql`
    WITH ${BUDGETED},
    due AS (
      SELECT h.number FROM ledger_holds h LEFT JOIN machines m ON m.id = h.machine_id
      WHERE h.ended_at IS NULL AND (m.is_active IS NOT TRUE OR h.tenant_id NOT IN (SELECT id FROM budgeted))
      FOR UPDATE OF h SKIP LOCKED)
    UPDATE ledger_holds h SET outcome = hold_outcome(h.machine_id, h.placed_at),
      ended_at = greatest(h.placed_at, billing_time(h.tenant_id, ${at}))
    FROM due WHERE h.number = due.number AND h.ended_at IS NULL`);
  const placed = await db.execute(sql`
    WITH ${BUDGETED},
    missing AS (
      SELECT m.id, m.tenant_id, m.cpus, m.memory_mb FROM budgeted b JOIN machines m ON m.tenant_id = b.id AND m.is_active
      WHERE NOT EXISTS (SELECT FROM ledger_holds h WHERE h.machine_id = m.id AND h.ended_at IS NULL)
      FOR NO KEY UPDATE OF m SKIP LOCKED)
    INSERT INTO ledger_holds (tenant_id, machine_id, placed_at, held_from, held_until, micros)
    SELECT m.tenant_id, m.id, b.at, b.at, hold_until(b.at), hold_micros(m.tenant_id, m.cpus, m.memory_mb, b.at, hold_until(b.at))
    FROM missing m CROSS JOIN LATERAL (SELECT billing_time(m.tenant_id, ${at}) AS at) b
    ORDER BY m.id ON CONFLICT DO NOTHING`);
  const renewed = await db.execute(sql`
    WITH due AS (
      SELECT h.number, m.cpus, m.memory_mb, hold_until(b.at) AS held_until,
        greatest(h.placed_at, month_of(b.at), least(b.at, billing_time(h.tenant_id, n.last_heartbeat_at))) AS held_from
      FROM ledger_holds h JOIN machines m ON m.id = h.machine_id AND m.is_active JOIN nodes n ON n.id = m.node_id
      CROSS JOIN LATERAL (SELECT billing_time(h.tenant_id, ${at}) AS at) b
      WHERE h.ended_at IS NULL AND n.status NOT IN ('unreachable', 'revoked')
        AND h.held_until <= hold_until(b.at) - ${RENEW_AFTER_MS} * interval '1 millisecond'
      FOR UPDATE OF h SKIP LOCKED)
    UPDATE ledger_holds h SET held_from = d.held_from, held_until = d.held_until,
      micros = hold_micros(h.tenant_id, d.cpus, d.memory_mb, d.held_from, d.held_until)
    FROM due d WHERE h.number = d.number AND h.ended_at IS NULL`);
  return ended + placed + renewed;
}

/** Money in micros. */
export interface Commitment {
  /** The cost of the current month. */
  readonly spent: number;
  /** What is held of the month's budget. */
  readonly held: number;
  /** The price of the first window of the machine that is to start. */
  readonly needed: number;
  /** Epoch milliseconds: when the tenant's next month begins. */
  readonly nextMonth: number;
}

/**
 * What a tenant's budget is taken by, at an instant of real time. `machine`: one that may be started; its own
 * hold is not counted.
 */
export async function readCommitment(
  db: Queryable,
  {
    tenantId,
    now,
    machine,
  }: {
    readonly tenantId: string;
    readonly now: number;
    readonly machine?: { readonly id: string; readonly cpus: number; readonly memoryMb: number } | undefined;
  },
): Promise<Commitment> {
  const row = await db.queryOne<Commitment>(sql`
    SELECT spent_in_month(${tenantId}, r.at) AS spent, held_in_month(${tenantId}, r.at, ${machine?.id ?? null}) AS held,
      hold_micros(${tenantId}, ${machine?.cpus ?? 0}::int, ${machine?.memoryMb ?? 0}::int, b.at, hold_until(b.at)) AS needed,
      ms((month_of(b.at) AT TIME ZONE 'UTC' + interval '1 month') AT TIME ZONE 'UTC') AS "nextMonth"
    FROM (SELECT ${instantOf(now)}::timestamptz AS at) r CROSS JOIN LATERAL (SELECT billing_time(${tenantId}, r.at) AS at) b`);
  if (row === undefined) throw new Error("a sum has no row");
  return row;
}

/** What the usage of each tenant costs in its current month, in micros, by their ids. `now`: real time. */
export async function readSpent(
  db: Queryable,
  { tenantIds, now }: { readonly tenantIds: readonly string[]; readonly now: number },
): Promise<ReadonlyMap<string, number>> {
  const spent = new Map<string, number>();
  for (let at = 0; at < tenantIds.length; at += TENANTS_PER_STATEMENT_MAX) {
    const some = tenantIds.slice(at, at + TENANTS_PER_STATEMENT_MAX);
    const rows = await db.query<{ readonly id: string; readonly spent: number }>(sql`
      SELECT id, spent_in_month(id, ${instantOf(now)}::timestamptz) AS spent FROM unnest(${some}::text[]) AS id`);
    for (const row of rows) spent.set(row.id, row.spent);
  }
  return spent;
}

/** An open hold. Money in micros, instants in epoch milliseconds of the tenant's billing time. */
export interface Hold {
  readonly number: number;
  readonly machineId: string;
  readonly placedAt: number;
  readonly until: number;
  readonly micros: number;
}

/** The open holds of a tenant, in the order in which they were placed. */
export const listHolds = (db: Queryable, tenantId: string): Promise<readonly Hold[]> =>
  db.query<Hold>(sql`
    SELECT number, machine_id AS "machineId", ms(placed_at) AS "placedAt",
      ms(held_until) AS until, micros
    FROM ledger_holds WHERE tenant_id = ${tenantId} AND ended_at IS NULL ORDER BY number`);

/** The sum of what is held of a tenant's current month. */
export async function readHeld(
  db: Queryable,
  { tenantId, now }: { readonly tenantId: string; readonly now: number },
): Promise<number> {
  const row = await db.queryOne<{ readonly held: number }>(sql`
    SELECT held_in_month(${tenantId}, ${instantOf(now)}::timestamptz, NULL) AS held`);
  return row?.held ?? 0;
}
