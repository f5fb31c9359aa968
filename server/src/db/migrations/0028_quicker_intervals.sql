-- Intervals are written by fewer statements, whose plans are kept for the connection. What is written is as before.

-- As before; the rates of one plan are found by index instead of reading those of all plans.
CREATE OR REPLACE VIEW tenant_rates AS
SELECT p.tenant_id, r.id AS rate_id, greatest(p.active_from, r.active_from) AS active_from,
  least(p.active_until, r.active_until) AS active_until
FROM (
  SELECT *, coalesce(lead(active_from) OVER (PARTITION BY tenant_id ORDER BY active_from), 'infinity') AS active_until
  FROM tenant_plans) p
CROSS JOIN LATERAL (
  SELECT o.id, o.active_from, coalesce(lead(o.active_from) OVER (ORDER BY o.active_from), 'infinity') AS active_until
  FROM rates o WHERE o.plan_id = p.plan_id) r
WHERE p.active_from < r.active_until AND r.active_from < p.active_until;

-- Ends what a boot, or a machine's disk, uses: all meters of it at once, since they began together. The lock, which starts of
-- machines do not wait for, keeps a change of the tenant's plan from beginning before this end.
CREATE OR REPLACE FUNCTION close_usage(subject text, at timestamptz) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  used usage_intervals[];
  part record;
  is_first boolean := true;
BEGIN
  SELECT array_agg(u ORDER BY u.id) INTO used FROM usage_intervals u
  WHERE coalesce(u.boot_id, u.machine_id) = subject AND u.ended_at IS NULL;
  IF used IS NULL THEN RETURN; END IF;
  PERFORM 1 FROM tenants t WHERE t.id = used[1].tenant_id FOR KEY SHARE;
  FOR part IN SELECT * FROM rated_parts(used[1].tenant_id, used[1].started_at, greatest(at, used[1].started_at)) LOOP
    IF is_first THEN
      UPDATE usage_intervals u SET rate_id = part.rate_id, ended_at = part.ended_at
      WHERE coalesce(u.boot_id, u.machine_id) = subject AND u.ended_at IS NULL;
      is_first := false;
    ELSE
      INSERT INTO usage_intervals (tenant_id, machine_id, boot_id, meter, quantity, started_at, ended_at, rate_id, recorded_at)
      SELECT u.tenant_id, u.machine_id, u.boot_id, u.meter, u.quantity, part.started_at, part.ended_at, part.rate_id, u.recorded_at
      FROM unnest(used) u;
    END IF;
  END LOOP;
END $$;

CREATE OR REPLACE FUNCTION record_run() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  end_at timestamptz := greatest(NEW.started_at, least(NEW.ended_at, NEW.counted_until));
  is_open boolean := NEW.ended_at IS NULL AND NEW.counted_until IS NULL;
BEGIN
  IF TG_OP = 'INSERT' THEN
    INSERT INTO usage_intervals (tenant_id, machine_id, boot_id, meter, quantity, started_at, ended_at, rate_id)
    SELECT NEW.tenant_id, NEW.machine_id, NEW.boot_id, m.meter, m.quantity, p.started_at,
      CASE WHEN NOT is_open THEN p.ended_at END, p.rate_id
    FROM rated_parts(NEW.tenant_id, NEW.started_at, CASE WHEN is_open THEN NEW.started_at ELSE end_at END) p
    CROSS JOIN (VALUES ('uptime', 1::bigint), ('cpu', NEW.cpus), ('memory', NEW.memory_mb)) AS m(meter, quantity);
  ELSIF NOT is_open THEN
    PERFORM close_usage(NEW.boot_id, end_at);
  END IF;
  RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION record_disk() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'INSERT' THEN
    INSERT INTO usage_intervals (tenant_id, machine_id, meter, quantity, started_at, rate_id)
    SELECT NEW.tenant_id, NEW.id, 'disk', NEW.disk_gb, NEW.created_at, p.rate_id
    FROM rated_parts(NEW.tenant_id, NEW.created_at, NEW.created_at) p;
  ELSIF NEW.deleted_at IS NOT NULL THEN
    PERFORM close_usage(NEW.id, NEW.deleted_at);
  END IF;
  RETURN NULL;
END $$;
DROP FUNCTION open_usage(text, text, text, text, bigint, timestamptz);
