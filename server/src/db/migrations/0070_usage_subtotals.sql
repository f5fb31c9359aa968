-- Sums of what a tenant with a budget has used this month, so that its starts do not read all of its intervals each time.

CREATE TABLE usage_subtotals (
  tenant_id text PRIMARY KEY REFERENCES tenants (id),
  month date NOT NULL CHECK (date_trunc('month', month::timestamptz) = month),
  cut bigint NOT NULL,
  meters text[] NOT NULL,
  rate_ids text[] NOT NULL,
  amounts numeric[] NOT NULL,
  CONSTRAINT one_amount_each CHECK (cardinality(meters) = cardinality(rate_ids) AND cardinality(meters) = cardinality(amounts))
);
COMMENT ON TABLE usage_subtotals IS 'What of a month closed intervals of a tenant amount to, up to a cut: one row for each tenant, replaced by later ones. Only derived: may be deleted at any time. Written by server/src/usage/subtotals-store.ts.';
COMMENT ON COLUMN usage_subtotals.tenant_id IS 'Whose usage.';
COMMENT ON COLUMN usage_subtotals.month IS 'The first day of the month in UTC, in the billing time of the tenant.';
COMMENT ON COLUMN usage_subtotals.cut IS 'It has the intervals with a lower closed_in, and no others.';
COMMENT ON COLUMN usage_subtotals.meters IS 'cpu or memory, of each sum.';
COMMENT ON COLUMN usage_subtotals.rate_ids IS 'The rate of each sum.';
COMMENT ON COLUMN usage_subtotals.amounts IS 'Quantity × milliseconds of the whole month, of each sum.';

-- As before: what the usage of a tenant costs in its current month. Of closed intervals it adds those after the subtotal to it. Intervals of the
-- subtotal that end after real_at count up to then. Each part reads one index: the conditions with "closed_in - cut" are not for the other one.
CREATE OR REPLACE FUNCTION spent_in_month(tenant text, real_at timestamptz) RETURNS bigint LANGUAGE sql STABLE AS $$
  WITH month AS MATERIALIZED (
    SELECT b.at AS to_at, month_of(b.at) AS from_at, (month_of(b.at) AT TIME ZONE 'UTC' + interval '1 month') AT TIME ZONE 'UTC' AS until_at
    FROM (SELECT billing_time(tenant, real_at) AS at) b),
  subtotal AS MATERIALIZED (
    SELECT s.* FROM usage_subtotals s WHERE s.tenant_id = tenant AND s.month = (SELECT from_at AT TIME ZONE 'UTC' FROM month)::date),
  parts AS (
    SELECT u.meter, u.quantity, u.rate_id, u.started_at, u.ended_at FROM usage_intervals u
    WHERE u.tenant_id = tenant AND u.meter IN ('cpu', 'memory') AND u.ended_at > (SELECT from_at FROM month) AND NOT EXISTS (SELECT FROM subtotal)
    UNION ALL
    SELECT u.meter, u.quantity, u.rate_id, u.started_at, u.ended_at FROM usage_intervals u
    WHERE u.tenant_id = tenant AND u.meter IN ('cpu', 'memory') AND u.closed_in >= (SELECT cut FROM subtotal)
    UNION ALL
    SELECT u.meter, u.quantity, p.rate_id, p.started_at, p.ended_at
    FROM usage_intervals u
    LEFT JOIN machines m ON m.id = u.machine_id
    LEFT JOIN nodes n ON n.id = m.node_id
    CROSS JOIN LATERAL rated_parts(tenant, u.started_at,
      greatest(u.started_at, billing_time(tenant, least(real_at, n.last_heartbeat_at)))) p
    WHERE u.tenant_id = tenant AND u.meter IN ('cpu', 'memory') AND u.ended_at IS NULL),
  amounts AS (
    SELECT p.meter, p.rate_id, p.quantity * greatest(0, floor(1000 * extract(epoch FROM
      least(p.ended_at, m.to_at) - greatest(p.started_at, m.from_at)))) AS amount
    FROM parts p CROSS JOIN month m
    UNION ALL
    SELECT l.meter, l.rate_id, l.amount FROM subtotal s CROSS JOIN unnest(s.meters, s.rate_ids, s.amounts) AS l(meter, rate_id, amount)
    UNION ALL
    SELECT u.meter, u.rate_id, u.quantity * (
      greatest(0, floor(1000 * extract(epoch FROM m.to_at - greatest(u.started_at, m.from_at))))
      - greatest(0, floor(1000 * extract(epoch FROM least(u.ended_at, m.until_at) - greatest(u.started_at, m.from_at)))))
    FROM month m CROSS JOIN subtotal s JOIN usage_intervals u ON u.tenant_id = tenant AND u.meter IN ('cpu', 'memory')
      AND u.ended_at > (SELECT to_at FROM month) AND u.closed_in - s.cut < 0),
  lines AS (SELECT meter, rate_id, sum(amount) AS amount FROM amounts GROUP BY 1, 2)
  SELECT least(coalesce(sum(usage_micros(l.meter, l.amount, r.cpu_hour_micros, r.memory_gb_hour_micros)), 0), 9007199254740991)::bigint
  FROM lines l JOIN rates r ON r.id = l.rate_id
$$;
