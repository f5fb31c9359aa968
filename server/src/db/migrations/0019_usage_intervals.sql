-- What was used, by whom, when and at which rate: the intervals that bills are computed from.
--
-- Triggers write them in the transaction that writes the run or the machine, so that neither can be recorded without the
-- other, whichever statement wrote it.

CREATE EXTENSION IF NOT EXISTS btree_gist;

CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'rows of % are never changed', TG_TABLE_NAME;
END $$;

CREATE TABLE rates (
  id text PRIMARY KEY DEFAULT 'rate-' || replace(gen_random_uuid()::text, '-', '') CHECK (id ~ '^rate-[0-9a-f]{32}$'),
  plan_id text NOT NULL REFERENCES plans (id),
  active_from timestamptz NOT NULL,
  cpu_hour_micros bigint NOT NULL CHECK (cpu_hour_micros >= 0),
  memory_gb_hour_micros bigint NOT NULL CHECK (memory_gb_hour_micros >= 0),
  created_at timestamptz NOT NULL,
  UNIQUE (plan_id, active_from)
);
COMMENT ON TABLE rates IS 'Prices of a plan, each from an instant until the next one. Rows are never changed. Written by server/src/plans/rates-store.ts, the first of a plan by a trigger.';
COMMENT ON COLUMN rates.id IS 'rate-<32 hex>.';
COMMENT ON COLUMN rates.plan_id IS 'Whose prices they are.';
COMMENT ON COLUMN rates.active_from IS 'They hold from then on. The first rate of a plan holds since the epoch, so that every instant has one.';
COMMENT ON COLUMN rates.cpu_hour_micros IS 'Micros for one virtual processor for an hour.';
COMMENT ON COLUMN rates.memory_gb_hour_micros IS 'Micros for one GiB of memory for an hour.';
COMMENT ON COLUMN rates.created_at IS 'When it was made; before active_from, but for the first.';
CREATE TRIGGER rates_immutable BEFORE UPDATE OR DELETE ON rates FOR EACH ROW EXECUTE FUNCTION refuse_change();

CREATE TABLE tenant_plans (
  tenant_id text NOT NULL REFERENCES tenants (id),
  plan_id text NOT NULL REFERENCES plans (id),
  active_from timestamptz NOT NULL,
  PRIMARY KEY (tenant_id, active_from)
);
COMMENT ON TABLE tenant_plans IS 'Which plan a tenant was on, from an instant until the next row. Written by triggers of tenants and plans only; rows are never changed.';
COMMENT ON COLUMN tenant_plans.tenant_id IS 'The tenant.';
COMMENT ON COLUMN tenant_plans.plan_id IS 'Its own plan, or the one that was the default.';
COMMENT ON COLUMN tenant_plans.active_from IS 'The first row of a tenant holds since the epoch, so that every instant has one.';
CREATE TRIGGER tenant_plans_immutable BEFORE UPDATE OR DELETE ON tenant_plans FOR EACH ROW EXECUTE FUNCTION refuse_change();

CREATE VIEW tenant_rates AS
SELECT p.tenant_id, r.id AS rate_id, greatest(p.active_from, r.active_from) AS active_from,
  least(p.active_until, r.active_until) AS active_until
FROM (
  SELECT *, coalesce(lead(active_from) OVER (PARTITION BY tenant_id ORDER BY active_from), 'infinity') AS active_until
  FROM tenant_plans) p
JOIN (
  SELECT *, coalesce(lead(active_from) OVER (PARTITION BY plan_id ORDER BY active_from), 'infinity') AS active_until
  FROM rates) r ON r.plan_id = p.plan_id AND p.active_from < r.active_until AND r.active_from < p.active_until;
COMMENT ON VIEW tenant_rates IS 'Which rate holds for a tenant, when. Every instant has exactly one.';

CREATE TABLE usage_intervals (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  tenant_id text NOT NULL,
  machine_id text NOT NULL,
  boot_id text,
  meter text NOT NULL CHECK (meter IN ('uptime', 'cpu', 'memory', 'disk')),
  quantity bigint NOT NULL CHECK (quantity >= 1),
  started_at timestamptz NOT NULL,
  ended_at timestamptz CHECK (ended_at >= started_at),
  rate_id text NOT NULL REFERENCES rates (id),
  CONSTRAINT disk_outlives_boots CHECK ((meter = 'disk') = (boot_id IS NULL)),
  CONSTRAINT nothing_twice EXCLUDE USING gist (
    coalesce(boot_id, machine_id) WITH =, meter WITH =, tstzrange(started_at, ended_at) WITH &&)
);
COMMENT ON TABLE usage_intervals IS 'What was used. Split where the rate changes; never changed once it has an end; outlives its machine. Written by triggers of machine_runs and machines only.';
COMMENT ON COLUMN usage_intervals.id IS 'The order in which they were begun.';
COMMENT ON COLUMN usage_intervals.tenant_id IS 'Who pays.';
COMMENT ON COLUMN usage_intervals.machine_id IS 'Which machine; it may be gone.';
COMMENT ON COLUMN usage_intervals.boot_id IS 'Which run of it; null for its disk.';
COMMENT ON COLUMN usage_intervals.meter IS 'What was used.';
COMMENT ON COLUMN usage_intervals.quantity IS 'How much at a time: 1 of uptime, virtual processors, MiB of memory, GiB of disk.';
COMMENT ON COLUMN usage_intervals.started_at IS 'By the clock of the node; of a disk by the server''s.';
COMMENT ON COLUMN usage_intervals.ended_at IS 'Null as long as it is in use.';
COMMENT ON COLUMN usage_intervals.rate_id IS 'The rate that held; while it has no end, the one it began with.';
CREATE INDEX usage_intervals_of_tenant ON usage_intervals (tenant_id, ended_at);
CREATE INDEX usage_intervals_of_machine ON usage_intervals (machine_id, ended_at);
CREATE INDEX usage_intervals_open ON usage_intervals (coalesce(boot_id, machine_id)) WHERE ended_at IS NULL;
CREATE TRIGGER usage_intervals_immutable BEFORE UPDATE ON usage_intervals FOR EACH ROW
  WHEN (OLD.ended_at IS NOT NULL) EXECUTE FUNCTION refuse_change();
CREATE TRIGGER usage_intervals_kept BEFORE DELETE ON usage_intervals FOR EACH ROW EXECUTE FUNCTION refuse_change();

-- The parts of [from_at, to_at) with one rate each, in order; at least one, also of no length.
CREATE FUNCTION rated_parts(tenant text, from_at timestamptz, to_at timestamptz)
RETURNS TABLE (rate_id text, started_at timestamptz, ended_at timestamptz) LANGUAGE sql STABLE AS $$
  SELECT t.rate_id, greatest(t.active_from, from_at), least(t.active_until, to_at) FROM tenant_rates t
  WHERE t.tenant_id = tenant AND (t.active_from < to_at OR t.active_from = from_at) AND t.active_until > from_at
  ORDER BY 2
$$;

CREATE FUNCTION open_usage(tenant text, machine text, boot text, used_meter text, used bigint, at timestamptz)
RETURNS void LANGUAGE sql AS $$
  INSERT INTO usage_intervals (tenant_id, machine_id, boot_id, meter, quantity, started_at, rate_id)
  SELECT tenant, machine, boot, used_meter, used, at, p.rate_id FROM rated_parts(tenant, at, at) p
$$;

-- Ends what a boot, or a machine's disk, uses. The lock, which starts of machines do not wait for, keeps a change of the
-- tenant's plan from beginning before this end.
CREATE FUNCTION close_usage(subject text, at timestamptz) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  used usage_intervals;
  part record;
  is_first boolean;
BEGIN
  FOR used IN SELECT * FROM usage_intervals u WHERE coalesce(u.boot_id, u.machine_id) = subject AND u.ended_at IS NULL LOOP
    PERFORM 1 FROM tenants t WHERE t.id = used.tenant_id FOR KEY SHARE;
    is_first := true;
    FOR part IN SELECT * FROM rated_parts(used.tenant_id, used.started_at, greatest(at, used.started_at)) LOOP
      IF is_first THEN
        UPDATE usage_intervals u SET rate_id = part.rate_id, ended_at = part.ended_at WHERE u.id = used.id;
        is_first := false;
      ELSE
        INSERT INTO usage_intervals (tenant_id, machine_id, boot_id, meter, quantity, started_at, ended_at, rate_id)
        VALUES (used.tenant_id, used.machine_id, used.boot_id, used.meter, used.quantity, part.started_at, part.ended_at,
          part.rate_id);
      END IF;
    END LOOP;
  END LOOP;
END $$;

CREATE FUNCTION record_run() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'INSERT' THEN
    PERFORM open_usage(NEW.tenant_id, NEW.machine_id, NEW.boot_id, 'uptime', 1, NEW.started_at),
      open_usage(NEW.tenant_id, NEW.machine_id, NEW.boot_id, 'cpu', NEW.cpus, NEW.started_at),
      open_usage(NEW.tenant_id, NEW.machine_id, NEW.boot_id, 'memory', NEW.memory_mb, NEW.started_at);
  END IF;
  IF NEW.ended_at IS NOT NULL THEN
    PERFORM close_usage(NEW.boot_id, NEW.ended_at);
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER machine_runs_used AFTER INSERT OR UPDATE OF ended_at ON machine_runs FOR EACH ROW EXECUTE FUNCTION record_run();

CREATE FUNCTION record_disk() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'INSERT' THEN
    PERFORM open_usage(NEW.tenant_id, NEW.id, NULL, 'disk', NEW.disk_gb, NEW.created_at);
  ELSIF NEW.deleted_at IS NOT NULL THEN
    PERFORM close_usage(NEW.id, NEW.deleted_at);
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER machines_used AFTER INSERT OR UPDATE OF deleted_at ON machines FOR EACH ROW EXECUTE FUNCTION record_disk();

-- From which instant on a tenant has another plan: not before the end of anything that was recorded at the rate of the old one.
CREATE FUNCTION change_tenant_plan(tenant text, plan text, at timestamptz) RETURNS void LANGUAGE sql AS $$
  INSERT INTO tenant_plans (tenant_id, plan_id, active_from)
  SELECT tenant, plan, greatest(at,
    (SELECT max(u.ended_at) FROM usage_intervals u WHERE u.tenant_id = tenant),
    (SELECT max(p.active_from) + interval '1 millisecond' FROM tenant_plans p WHERE p.tenant_id = tenant))
$$;

CREATE FUNCTION record_tenant_plan() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  plan text := coalesce(NEW.plan_id, (SELECT id FROM plans WHERE is_default));
BEGIN
  IF TG_OP = 'INSERT' THEN
    INSERT INTO tenant_plans (tenant_id, plan_id, active_from) VALUES (NEW.id, plan, 'epoch');
  ELSIF NEW.plan_id IS DISTINCT FROM OLD.plan_id THEN
    PERFORM 1 FROM tenants WHERE id = NEW.id FOR UPDATE;
    PERFORM change_tenant_plan(NEW.id, plan, NEW.updated_at);
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER tenants_plan AFTER INSERT OR UPDATE OF plan_id ON tenants FOR EACH ROW EXECUTE FUNCTION record_tenant_plan();

CREATE FUNCTION record_plan() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO rates (plan_id, active_from, cpu_hour_micros, memory_gb_hour_micros, created_at)
  VALUES (NEW.id, 'epoch', NEW.rate_cpu_hour_micros, NEW.rate_memory_gb_hour_micros, NEW.created_at);
  IF NEW.is_default THEN
    PERFORM change_tenant_plan(t.id, NEW.id, NEW.created_at)
    FROM (SELECT id FROM tenants WHERE plan_id IS NULL ORDER BY id FOR UPDATE) t;
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER plans_rate AFTER INSERT ON plans FOR EACH ROW EXECUTE FUNCTION record_plan();
COMMENT ON COLUMN plans.rate_cpu_hour_micros IS 'The price per virtual processor and hour it was made with; rates says which holds.';
COMMENT ON COLUMN plans.rate_memory_gb_hour_micros IS 'The price per GiB of memory and hour it was made with; rates says which holds.';

-- What was there before. Changes of plans were not kept, so the past is rated as the present is.
INSERT INTO rates (plan_id, active_from, cpu_hour_micros, memory_gb_hour_micros, created_at)
SELECT id, 'epoch', rate_cpu_hour_micros, rate_memory_gb_hour_micros, created_at FROM plans;
INSERT INTO tenant_plans (tenant_id, plan_id, active_from)
SELECT id, coalesce(plan_id, (SELECT id FROM plans WHERE is_default)), 'epoch' FROM tenants;
INSERT INTO usage_intervals (tenant_id, machine_id, boot_id, meter, quantity, started_at, ended_at, rate_id)
SELECT r.tenant_id, r.machine_id, r.boot_id, m.meter, m.quantity, r.started_at, r.ended_at, t.rate_id
FROM machine_runs r
JOIN tenant_rates t ON t.tenant_id = r.tenant_id
CROSS JOIN LATERAL (VALUES ('uptime', 1::bigint), ('cpu', r.cpus), ('memory', r.memory_mb)) AS m(meter, quantity);
INSERT INTO usage_intervals (tenant_id, machine_id, meter, quantity, started_at, ended_at, rate_id)
SELECT m.tenant_id, m.id, 'disk', m.disk_gb, m.created_at, CASE WHEN m.deleted_at IS NOT NULL THEN greatest(m.created_at, m.deleted_at) END, t.rate_id
FROM machines m JOIN tenant_rates t ON t.tenant_id = m.tenant_id;

-- Commands outlive their machine too, and belong to the tenant.
ALTER TABLE machine_exec_months DROP CONSTRAINT machine_exec_months_machine_id_fkey;
ALTER TABLE machine_exec_months ADD COLUMN tenant_id text;
UPDATE machine_exec_months e SET tenant_id = m.tenant_id FROM machines m WHERE m.id = e.machine_id;
ALTER TABLE machine_exec_months ALTER COLUMN tenant_id SET NOT NULL;
COMMENT ON COLUMN machine_exec_months.tenant_id IS 'Its owner.';
CREATE INDEX machine_exec_months_of_tenant ON machine_exec_months (tenant_id, month);
