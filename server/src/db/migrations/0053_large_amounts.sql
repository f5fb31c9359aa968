-- Prices of before the bound on prices may cost more than 2^53 micros a month, which is more than any budget: sums for budgets end there.
CREATE OR REPLACE FUNCTION spent_in_month(tenant text, real_at timestamptz) RETURNS bigint LANGUAGE sql STABLE AS $$
  WITH month AS MATERIALIZED (SELECT billing_time(tenant, real_at) AS to_at, month_of(billing_time(tenant, real_at)) AS from_at),
  parts AS (
    SELECT u.meter, u.quantity, u.rate_id, u.started_at, u.ended_at FROM usage_intervals u
    WHERE u.tenant_id = tenant AND u.meter IN ('cpu', 'memory') AND u.ended_at > (SELECT from_at FROM month)
    UNION ALL
    SELECT u.meter, u.quantity, p.rate_id, p.started_at, p.ended_at
    FROM usage_intervals u
    LEFT JOIN machines m ON m.id = u.machine_id
    LEFT JOIN nodes n ON n.id = m.node_id
    CROSS JOIN LATERAL rated_parts(tenant, u.started_at,
      greatest(u.started_at, billing_time(tenant, least(real_at, n.last_heartbeat_at)))) p
    WHERE u.tenant_id = tenant AND u.meter IN ('cpu', 'memory') AND u.ended_at IS NULL),
  lines AS (
    SELECT p.meter, p.rate_id, sum(p.quantity * greatest(0, floor(1000 * extract(epoch FROM
      least(p.ended_at, m.to_at) - greatest(p.started_at, m.from_at))))) AS amount
    FROM parts p CROSS JOIN month m GROUP BY 1, 2)
  SELECT least(coalesce(sum(usage_micros(l.meter, l.amount, r.cpu_hour_micros, r.memory_gb_hour_micros)), 0), 9007199254740991)::bigint
  FROM lines l JOIN rates r ON r.id = l.rate_id
$$;

CREATE OR REPLACE FUNCTION held_in_month(tenant text, real_at timestamptz, without_machine text) RETURNS bigint LANGUAGE sql STABLE AS $$
  SELECT least(coalesce(sum(h.micros), 0), 9007199254740991)::bigint FROM ledger_holds h
  WHERE h.tenant_id = tenant AND h.ended_at IS NULL AND h.machine_id IS DISTINCT FROM without_machine
    AND h.held_until > month_of(billing_time(tenant, real_at))
$$;
