-- What a start costs the database, again. Recording the use of a run was most of it: for each run, windows over the prices of its plan and
-- four look-ups of its tenant's clock, which only test clocks move; and for each of its intervals, two look-ups that lock what they find.

-- What refers to rows that are never deleted and never change is checked for all rows of a statement together, without a lock.
ALTER TABLE usage_intervals DROP CONSTRAINT usage_intervals_rate_id_fkey, DROP CONSTRAINT usage_intervals_attribution_id_fkey;

CREATE TRIGGER rates_not_truncated BEFORE TRUNCATE ON rates FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER usage_attributions_not_truncated BEFORE TRUNCATE ON usage_attributions
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- Of an insert and of an update.
CREATE FUNCTION check_intervals() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (SELECT FROM (SELECT DISTINCT rate_id FROM written) w LEFT JOIN rates r ON r.id = w.rate_id WHERE r.id IS NULL) THEN
    RAISE foreign_key_violation USING MESSAGE = 'a usage interval names a rate that does not exist';
  END IF;
  IF EXISTS (
    SELECT FROM (SELECT DISTINCT attribution_id FROM written WHERE attribution_id IS NOT NULL) w
    LEFT JOIN usage_attributions u ON u.id = w.attribution_id WHERE u.id IS NULL) THEN
    RAISE foreign_key_violation USING MESSAGE = 'a usage interval names an attribution that does not exist';
  END IF;
  RETURN NULL;
END $$;

CREATE TRIGGER usage_intervals_refer AFTER INSERT ON usage_intervals REFERENCING NEW TABLE AS written
  FOR EACH STATEMENT EXECUTE FUNCTION check_intervals();
CREATE TRIGGER usage_intervals_still_refer AFTER UPDATE ON usage_intervals REFERENCING NEW TABLE AS written
  FOR EACH STATEMENT EXECUTE FUNCTION check_intervals();

-- As before. An open run of a tenant whose clock is the real one begins with the price that is in force then; the others, of which there
-- are few, have several parts.
CREATE OR REPLACE FUNCTION record_runs() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  seen_at timestamptz := clock_timestamp();
  runs bigint;
  simple bigint;
BEGIN
  SELECT count(*), count(*) FILTER (WHERE a.ended_at IS NULL AND a.counted_until IS NULL AND NOT t.has_test_clock)
  INTO runs, simple FROM added a LEFT JOIN tenants t ON t.id = a.tenant_id;
  IF runs = 0 THEN RETURN NULL; END IF;
  INSERT INTO usage_attributions (machine_id, key_id, labels, labels_hash)
  SELECT DISTINCT ON (m.id) m.id, coalesce(m.started_by, m.created_by), m.labels, h.hash
  FROM added a JOIN machines m ON m.id = a.machine_id
  CROSS JOIN LATERAL (SELECT sha256(convert_to(m.labels::text, 'UTF8')) AS hash) h
  WHERE NOT EXISTS (
    SELECT FROM usage_attributions u
    WHERE u.machine_id = m.id AND u.labels_hash = h.hash AND u.key_id IS NOT DISTINCT FROM coalesce(m.started_by, m.created_by))
  ORDER BY m.id ON CONFLICT DO NOTHING;
  INSERT INTO usage_intervals (tenant_id, machine_id, boot_id, attribution_id, meter, quantity, started_at, rate_id, recorded_at)
  SELECT a.tenant_id, a.machine_id, a.boot_id, u.id, k.meter,
    CASE k.meter WHEN 'uptime' THEN 1::bigint WHEN 'cpu' THEN a.cpus ELSE a.memory_mb END, a.started_at, r.id, seen_at
  FROM added a
  JOIN tenants t ON t.id = a.tenant_id
  LEFT JOIN machines m ON m.id = a.machine_id
  LEFT JOIN usage_attributions u ON u.machine_id = m.id AND u.labels_hash = sha256(convert_to(m.labels::text, 'UTF8'))
    AND u.key_id IS NOT DISTINCT FROM coalesce(m.started_by, m.created_by)
  CROSS JOIN LATERAL (
    SELECT p.plan_id FROM tenant_plans p WHERE p.tenant_id = a.tenant_id AND p.active_from <= a.started_at
    ORDER BY p.active_from DESC LIMIT 1) p
  CROSS JOIN LATERAL (
    SELECT o.id FROM rates o WHERE o.plan_id = p.plan_id AND o.active_from <= a.started_at ORDER BY o.active_from DESC LIMIT 1) r
  CROSS JOIN (VALUES (1, 'uptime'), (2, 'cpu'), (3, 'memory')) AS k(place, meter)
  WHERE a.ended_at IS NULL AND a.counted_until IS NULL AND NOT t.has_test_clock
  ORDER BY a.machine_id, a.started_at, k.place;
  IF simple = runs THEN RETURN NULL; END IF;
  INSERT INTO usage_intervals (tenant_id, machine_id, boot_id, attribution_id, meter, quantity, started_at, ended_at, rate_id, recorded_at)
  SELECT a.tenant_id, a.machine_id, a.boot_id, u.id, q.meter, q.quantity, p.started_at, CASE WHEN NOT t.is_open THEN p.ended_at END,
    p.rate_id, t.recorded_at
  FROM added a
  JOIN tenants c ON c.id = a.tenant_id
  LEFT JOIN machines m ON m.id = a.machine_id
  LEFT JOIN usage_attributions u ON u.machine_id = m.id AND u.labels_hash = sha256(convert_to(m.labels::text, 'UTF8'))
    AND u.key_id IS NOT DISTINCT FROM coalesce(m.started_by, m.created_by)
  CROSS JOIN LATERAL (
    SELECT a.ended_at IS NULL AND a.counted_until IS NULL AS is_open, billing_time(a.tenant_id, a.started_at) AS start_at,
      billing_time(a.tenant_id, seen_at) AS recorded_at OFFSET 0) t
  CROSS JOIN LATERAL rated_parts(a.tenant_id, t.start_at, CASE WHEN t.is_open THEN t.start_at
    ELSE greatest(t.start_at, billing_time(a.tenant_id, least(a.ended_at, a.counted_until))) END) p
  CROSS JOIN (VALUES (1, 'uptime'), (2, 'cpu'), (3, 'memory')) AS k(place, meter)
  CROSS JOIN LATERAL (
    SELECT k.meter, CASE k.meter WHEN 'uptime' THEN 1::bigint WHEN 'cpu' THEN a.cpus ELSE a.memory_mb END AS quantity) q
  WHERE a.ended_at IS NOT NULL OR a.counted_until IS NOT NULL OR c.has_test_clock
  ORDER BY a.machine_id, a.started_at, p.started_at, k.place;
  RETURN NULL;
END $$;
