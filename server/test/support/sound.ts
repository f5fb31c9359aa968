/**
 * What must be true of recorded intervals, invoices and the ledger at any time, as queries over the whole
 * database.
 */
import assert from "node:assert/strict";
import { type Queryable, sql } from "../../src/db/database.ts";

/**
 * Without test clocks: exactly one open interval of each meter for each run that is open and each machine
 * that is there; no gap, no overlap. Numbers of invoices have no gap, the ledger adds up to what was
 * invoiced, and nothing is held for machines that do not run. Throws otherwise.
 */
export async function assertSound(db: Queryable): Promise<void> {
  const wrong = await db.query(sql`
    WITH subjects AS (
      SELECT boot_id AS subject, started_at,
        CASE WHEN ended_at IS NOT NULL OR counted_until IS NOT NULL THEN least(ended_at, left_at, counted_until) END AS ended_at,
        least(left_at, counted_until) AS counted_until, unnest(ARRAY['uptime', 'cpu', 'memory']) AS meter FROM machine_runs
      WHERE tenant_id NOT IN (SELECT id FROM tenants WHERE has_test_clock)
      UNION ALL SELECT id, created_at, deleted_at, NULL, 'disk' FROM machines
      WHERE tenant_id NOT IN (SELECT id FROM tenants WHERE has_test_clock)),
    parts AS (
      SELECT coalesce(boot_id, machine_id) AS subject, meter, min(started_at) AS started_at,
        CASE WHEN bool_and(ended_at IS NOT NULL) THEN max(ended_at) END AS ended_at,
        coalesce(range_agg(tstzrange(started_at, ended_at)), '{}') AS covered, count(*) FILTER (WHERE ended_at IS NULL) AS open
      FROM usage_intervals GROUP BY 1, 2)
    SELECT s.*, p.covered FROM subjects s LEFT JOIN parts p USING (subject, meter)
    WHERE p.subject IS NULL OR p.started_at <> s.started_at OR p.open > 1
      OR (p.ended_at IS DISTINCT FROM s.ended_at AND p.ended_at IS DISTINCT FROM s.counted_until)
      OR (p.covered <> '{}' AND p.covered <> tstzmultirange(tstzrange(s.started_at, p.ended_at)))`);
  assert.deepEqual(wrong, []);
  const numbers = await db.queryOne(
    sql`SELECT coalesce(max(number), 0)::int - count(number)::int AS gaps FROM invoices`,
  );
  assert.deepEqual(numbers, { gaps: 0 });
  const unbalanced = await db.query(sql`
    WITH invoiced AS (SELECT tenant_id, sum(total_micros) AS micros FROM invoices GROUP BY 1),
    owed AS (
      SELECT t.tenant_id, sum(e.micros) AS micros FROM ledger_transactions t
      JOIN ledger_entries e ON e.transaction_id = t.id WHERE e.account = 'balance' GROUP BY 1)
    SELECT * FROM invoiced i FULL JOIN owed o USING (tenant_id) WHERE coalesce(i.micros, 0) + coalesce(o.micros, 0) <> 0`);
  assert.deepEqual(unbalanced, []);
  const all = await db.queryOne(sql`SELECT coalesce(sum(micros), 0)::int AS sum FROM ledger_entries`);
  assert.deepEqual(all, { sum: 0 });
  const wrongHolds = await db.query(sql`
    SELECT h.number, h.machine_id FROM ledger_holds h LEFT JOIN machines m ON m.id = h.machine_id AND m.is_active
    WHERE h.ended_at IS NULL AND m.id IS NULL`);
  assert.deepEqual(wrongHolds, [], "nothing is held for what does not run");
}
