-- Test clocks: the billing time of a tenant that was created with one is moved forward by its operator.

ALTER TABLE tenants
  ADD COLUMN has_test_clock boolean NOT NULL DEFAULT false,
  ADD COLUMN clock_ahead_ms bigint NOT NULL DEFAULT 0 CHECK (clock_ahead_ms >= 0);
ALTER TABLE tenants ADD CONSTRAINT only_test_clocks_move CHECK (has_test_clock OR clock_ahead_ms = 0);
COMMENT ON COLUMN tenants.has_test_clock IS 'Whether its billing time can be moved. Chosen when it is created, and never changed.';
COMMENT ON COLUMN tenants.clock_ahead_ms IS 'How far its billing time is ahead of real time, in milliseconds. 0 without a test clock; never smaller than before.';

CREATE FUNCTION refuse_clock_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'tenant % cannot get or lose a test clock, and a test clock is never set back', OLD.id;
END $$;
CREATE TRIGGER tenants_clock BEFORE UPDATE OF has_test_clock, clock_ahead_ms ON tenants FOR EACH ROW
  WHEN (NEW.has_test_clock <> OLD.has_test_clock OR NEW.clock_ahead_ms < OLD.clock_ahead_ms)
  EXECUTE FUNCTION refuse_clock_change();

CREATE TABLE clock_advances (
  tenant_id text NOT NULL REFERENCES tenants (id),
  active_from timestamptz NOT NULL,
  advanced_at timestamptz NOT NULL,
  ahead_ms bigint NOT NULL CHECK (ahead_ms > 0),
  PRIMARY KEY (tenant_id, ahead_ms)
);
COMMENT ON TABLE clock_advances IS 'How far the billing time of a tenant with a test clock is ahead, from an instant on. Rows are never changed. Written by server/src/tenants/store.ts.';
COMMENT ON COLUMN clock_advances.tenant_id IS 'The tenant, which has a test clock.';
COMMENT ON COLUMN clock_advances.active_from IS 'In real time. Not before that of a smaller ahead_ms, so billing time never goes back.';
COMMENT ON COLUMN clock_advances.advanced_at IS 'When the operator moved the clock, in real time; not before active_from.';
COMMENT ON COLUMN clock_advances.ahead_ms IS 'Milliseconds.';
CREATE TRIGGER clock_advances_immutable BEFORE UPDATE OR DELETE OR TRUNCATE ON clock_advances
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

CREATE FUNCTION check_clock_advance() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NOT (SELECT t.has_test_clock FROM tenants t WHERE t.id = NEW.tenant_id)
    OR EXISTS (SELECT FROM clock_advances c WHERE c.tenant_id = NEW.tenant_id
      AND (c.ahead_ms >= NEW.ahead_ms OR c.active_from > NEW.active_from)) THEN
    RAISE EXCEPTION 'tenant % has no test clock, or it would be set back', NEW.tenant_id;
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER clock_advances_checked BEFORE INSERT ON clock_advances FOR EACH ROW EXECUTE FUNCTION check_clock_advance();

-- The billing time of a tenant at an instant of real time: the same instant, unless its test clock is ahead.
CREATE FUNCTION billing_time(tenant text, real_at timestamptz) RETURNS timestamptz LANGUAGE sql STABLE AS $$
  SELECT real_at + coalesce((
    SELECT max(c.ahead_ms) FROM clock_advances c WHERE c.tenant_id = tenant AND c.active_from <= real_at), 0) * interval '1 millisecond'
$$;
COMMENT ON COLUMN usage_intervals.started_at IS 'By the clock of the node; of a disk by the server''s. This and all other times of billing: in the billing time of the tenant.';

-- As before. For a tenant whose test clock is ahead, a price does not begin before it was made, as for every other tenant.
CREATE OR REPLACE VIEW tenant_rates AS
SELECT p.tenant_id, r.id AS rate_id, greatest(p.active_from, r.active_from) AS active_from,
  least(p.active_until, r.active_until) AS active_until
FROM (
  SELECT *, coalesce(lead(active_from) OVER (PARTITION BY tenant_id ORDER BY active_from), 'infinity') AS active_until
  FROM tenant_plans) p
CROSS JOIN LATERAL (
  SELECT f.id, f.active_from, coalesce(lead(f.active_from) OVER (ORDER BY f.active_from, f.set_for), 'infinity') AS active_until
  FROM (
    SELECT o.id, o.active_from AS set_for,
      CASE WHEN o.active_from = 'epoch' OR a.ahead_ms IS NULL THEN o.active_from
        ELSE greatest(o.active_from, o.created_at + a.ahead_ms * interval '1 millisecond' + interval '1 minute') END AS active_from
    FROM rates o CROSS JOIN LATERAL (
      SELECT max(c.ahead_ms) AS ahead_ms FROM clock_advances c
      WHERE c.tenant_id = p.tenant_id AND c.advanced_at <= o.created_at) a
    WHERE o.plan_id = p.plan_id) f) r
WHERE p.active_from < r.active_until AND r.active_from < p.active_until AND r.active_from < r.active_until;

-- As before, in billing time. The lock comes first, so that the clock is not moved in between.
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
  FOR part IN SELECT * FROM rated_parts(
    used[1].tenant_id, used[1].started_at, greatest(billing_time(used[1].tenant_id, at), used[1].started_at))
  LOOP
    IF is_first THEN
      UPDATE usage_intervals u SET rate_id = part.rate_id, ended_at = part.ended_at
      WHERE coalesce(u.boot_id, u.machine_id) = subject AND u.ended_at IS NULL;
      is_first := false;
    ELSE
      INSERT INTO usage_intervals (tenant_id, machine_id, boot_id, attribution_id, meter, quantity, started_at, ended_at, rate_id, recorded_at)
      SELECT u.tenant_id, u.machine_id, u.boot_id, u.attribution_id, u.meter, u.quantity, part.started_at, part.ended_at, part.rate_id,
        u.recorded_at
      FROM unnest(used) u;
    END IF;
  END LOOP;
END $$;

CREATE OR REPLACE FUNCTION record_run() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  is_open boolean := NEW.ended_at IS NULL AND NEW.counted_until IS NULL;
  start_at timestamptz;
  end_at timestamptz;
  attribution bigint;
BEGIN
  IF TG_OP = 'INSERT' THEN
    start_at := billing_time(NEW.tenant_id, NEW.started_at);
    end_at := CASE WHEN is_open THEN start_at
      ELSE greatest(start_at, billing_time(NEW.tenant_id, least(NEW.ended_at, NEW.counted_until))) END;
    attribution := attribution_of(NEW.machine_id);
    INSERT INTO usage_intervals (tenant_id, machine_id, boot_id, attribution_id, meter, quantity, started_at, ended_at, rate_id, recorded_at)
    SELECT NEW.tenant_id, NEW.machine_id, NEW.boot_id, attribution, m.meter, m.quantity, p.started_at,
      CASE WHEN NOT is_open THEN p.ended_at END, p.rate_id, billing_time(NEW.tenant_id, clock_timestamp())
    FROM rated_parts(NEW.tenant_id, start_at, end_at) p
    CROSS JOIN (VALUES ('uptime', 1::bigint), ('cpu', NEW.cpus), ('memory', NEW.memory_mb)) AS m(meter, quantity);
  ELSIF NOT is_open THEN
    PERFORM close_usage(NEW.boot_id, least(NEW.ended_at, NEW.counted_until));
  END IF;
  RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION record_disk() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  start_at timestamptz;
  attribution bigint;
BEGIN
  IF TG_OP = 'INSERT' THEN
    start_at := billing_time(NEW.tenant_id, NEW.created_at);
    attribution := attribution_of(NEW.id);
    INSERT INTO usage_intervals (tenant_id, machine_id, attribution_id, meter, quantity, started_at, rate_id, recorded_at)
    SELECT NEW.tenant_id, NEW.id, attribution, 'disk', NEW.disk_gb, start_at, p.rate_id, billing_time(NEW.tenant_id, clock_timestamp())
    FROM rated_parts(NEW.tenant_id, start_at, start_at) p;
  ELSIF NEW.deleted_at IS NOT NULL THEN
    PERFORM close_usage(NEW.id, NEW.deleted_at);
  END IF;
  RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION note_closing() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  NEW.closed_at := billing_time(NEW.tenant_id, clock_timestamp());
  NEW.closed_in := nextval('usage_intervals_id_seq');
  RETURN NEW;
END $$;

CREATE OR REPLACE FUNCTION record_tenant_plan() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  plan text := coalesce(NEW.plan_id, (SELECT id FROM plans WHERE is_default));
BEGIN
  IF TG_OP = 'INSERT' THEN
    INSERT INTO tenant_plans (tenant_id, plan_id, active_from) VALUES (NEW.id, plan, 'epoch');
  ELSIF NEW.plan_id IS DISTINCT FROM OLD.plan_id THEN
    PERFORM 1 FROM tenants WHERE id = NEW.id FOR UPDATE;
    PERFORM change_tenant_plan(NEW.id, plan, billing_time(NEW.id, NEW.updated_at));
  END IF;
  RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION record_plan() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO rates (plan_id, active_from, cpu_hour_micros, memory_gb_hour_micros, created_at)
  VALUES (NEW.id, 'epoch', NEW.rate_cpu_hour_micros, NEW.rate_memory_gb_hour_micros, NEW.created_at);
  IF NEW.is_default THEN
    PERFORM change_tenant_plan(t.id, NEW.id, billing_time(t.id, NEW.created_at))
    FROM (SELECT id FROM tenants WHERE plan_id IS NULL ORDER BY id FOR UPDATE) t;
  END IF;
  RETURN NULL;
END $$;

-- Invoices of test clocks take no number, so they leave no gap for anyone.
ALTER TABLE invoices ALTER COLUMN number DROP NOT NULL;
COMMENT ON COLUMN invoices.number IS 'Counts the invoices of the installation, without gaps. Null: of a tenant with a test clock.';
CREATE OR REPLACE FUNCTION check_invoice_numbers() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (SELECT FROM added a JOIN tenants t ON t.id = a.tenant_id WHERE t.has_test_clock <> (a.number IS NULL)) THEN
    RAISE EXCEPTION 'an invoice has a number unless its tenant has a test clock';
  END IF;
  IF (SELECT max(a.number) - min(a.number) + 1 <> count(*)
      OR min(a.number) <> 1 + coalesce((SELECT max(i.number) FROM invoices i WHERE i.number < min(a.number)), 0)
      OR max(a.number) <> (SELECT last_number FROM invoice_counter)
    FROM added a WHERE a.number IS NOT NULL HAVING count(*) > 0) THEN
    RAISE EXCEPTION 'the numbers of invoices have a gap';
  END IF;
  RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION post_invoices() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  WITH posted AS (
    INSERT INTO ledger_transactions (id, tenant_id, kind, invoice_month, note, made_at)
    SELECT 'post-' || replace(gen_random_uuid()::text, '-', ''), tenant_id, 'invoice', month,
      coalesce('invoice ' || number, 'invoice of a test clock'), finalized_at
    FROM added ORDER BY number, tenant_id
    RETURNING id, tenant_id, invoice_month),
  parts AS (
    SELECT p.id, CASE WHEN l.usage_month = l.month THEN 'usage' ELSE 'adjustment' END AS account, sum(l.micros) AS micros
    FROM posted p JOIN invoice_lines l ON l.tenant_id = p.tenant_id AND l.month = p.invoice_month
    GROUP BY 1, 2)
  INSERT INTO ledger_entries (transaction_id, account, micros)
  SELECT id, account, micros FROM parts WHERE micros <> 0
  UNION ALL SELECT id, 'balance', -sum(micros) FROM parts GROUP BY id HAVING sum(micros) <> 0;
  RETURN NULL;
END $$;
