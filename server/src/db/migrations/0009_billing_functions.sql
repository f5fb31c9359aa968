-- The rules of billing that the database keeps: functions and triggers over tenants, machines, usage and
-- billing. docs/billing-in-the-database.md says what each guarantees and when it runs.
--
-- Triggers write usage in the transaction that writes the run or the machine, so that neither can be recorded
-- without the other, whichever statement wrote it.

-- ======== Prices ========

-- The price of each tenant for each time. The prices of one plan are found by index. For a tenant whose test
-- clock is ahead, a price does not begin before it was made, as for every other tenant.
CREATE VIEW tenant_rates AS
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

-- The parts of [from_at, to_at) with one rate each, in order; at least one, also of no length.
CREATE FUNCTION rated_parts(
  tenant text, from_at timestamptz, to_at timestamptz
) RETURNS TABLE(rate_id text, started_at timestamptz, ended_at timestamptz) LANGUAGE sql STABLE AS $$
  SELECT t.rate_id, greatest(t.active_from, from_at), least(t.active_until, to_at) FROM tenant_rates t
  WHERE t.tenant_id = tenant AND (t.active_from < to_at OR t.active_from = from_at) AND t.active_until > from_at
  ORDER BY 2
$$;

-- From which instant on a tenant has another plan: not before the end of anything that was recorded at the
-- rate of the old one, nor before the end of a month that is invoiced.
CREATE FUNCTION change_tenant_plan(tenant text, plan text, at timestamptz) RETURNS void LANGUAGE sql AS $$
  INSERT INTO tenant_plans (tenant_id, plan_id, active_from)
  SELECT tenant, plan, greatest(at,
    (SELECT max(u.ended_at) FROM usage_intervals u WHERE u.tenant_id = tenant),
    (SELECT (max(i.month) + interval '1 month') AT TIME ZONE 'UTC' FROM invoices i WHERE i.tenant_id = tenant),
    (SELECT max(p.active_from) + interval '1 millisecond' FROM tenant_plans p WHERE p.tenant_id = tenant))
$$;

-- The first rate of a plan holds since the epoch. A new default plan becomes the plan of tenants without
-- their own.
CREATE FUNCTION record_plan() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO rates (plan_id, active_from, cpu_hour_micros, memory_gb_hour_micros, egress_gb_micros, registry_gb_hour_micros, created_at)
  VALUES (NEW.id, 'epoch', NEW.rate_cpu_hour_micros, NEW.rate_memory_gb_hour_micros, NEW.rate_egress_gb_micros,
    NEW.rate_registry_gb_hour_micros, NEW.created_at);
  IF NEW.is_default THEN
    PERFORM change_tenant_plan(t.id, NEW.id, billing_time(t.id, NEW.created_at))
    FROM (SELECT id FROM tenants WHERE plan_id IS NULL ORDER BY id FOR UPDATE) t;
  END IF;
  RETURN NULL;
END $$;

-- Records the plan of a new tenant since the epoch, and each change of it in billing time. The lock comes
-- first, so that the clock is not moved in between.
CREATE FUNCTION record_tenant_plan() RETURNS trigger LANGUAGE plpgsql AS $$
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

CREATE TRIGGER plans_rate AFTER INSERT ON plans FOR EACH ROW EXECUTE FUNCTION record_plan();
CREATE TRIGGER tenants_plan AFTER INSERT OR UPDATE OF plan_id ON tenants
  FOR EACH ROW EXECUTE FUNCTION record_tenant_plan();
CREATE TRIGGER rates_immutable BEFORE DELETE OR UPDATE ON rates FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER rates_not_truncated BEFORE TRUNCATE ON rates FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER tenant_plans_immutable BEFORE DELETE OR UPDATE ON tenant_plans
  FOR EACH ROW EXECUTE FUNCTION refuse_change();

-- ======== Usage ========

-- The attribution of what a machine uses from now on; null: there is no such machine.
CREATE FUNCTION attribution_of(machine text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  found bigint;
  tags jsonb;
  key text;
  hash bytea;
BEGIN
  SELECT m.labels, coalesce(m.started_by, m.created_by), sha256(convert_to(m.labels::text, 'UTF8'))
  INTO tags, key, hash FROM machines m WHERE m.id = machine;
  IF hash IS NULL THEN RETURN NULL; END IF;
  SELECT a.id INTO found FROM usage_attributions a
  WHERE a.machine_id = machine AND a.labels_hash = hash AND a.key_id IS NOT DISTINCT FROM key;
  IF found IS NOT NULL THEN RETURN found; END IF;
  INSERT INTO usage_attributions (machine_id, key_id, labels, labels_hash) VALUES (machine, key, tags, hash)
  ON CONFLICT DO NOTHING RETURNING id INTO found;
  IF found IS NOT NULL THEN RETURN found; END IF;
  -- Another transaction has just written it.
  SELECT a.id INTO found FROM usage_attributions a
  WHERE a.machine_id = machine AND a.labels_hash = hash AND a.key_id IS NOT DISTINCT FROM key;
  RETURN found;
END $$;

-- Ends what a boot, or a machine's disk, uses.
CREATE FUNCTION close_usage(subject text, at timestamptz) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  used usage_intervals[];
BEGIN
  SELECT array_agg(u ORDER BY u.id) INTO used FROM usage_intervals u
  WHERE coalesce(u.boot_id, u.machine_id) = subject AND u.ended_at IS NULL;
  PERFORM close_intervals(used, at);
END $$;

-- Records the use of all runs that a statement inserts together. An open run of a tenant without a test clock
-- begins with the price that is in force then; the others, of which there are few, have several parts.
-- The settings make it look up each machine by its key, whatever the number of machines was when its plan was
-- made.
CREATE FUNCTION record_runs() RETURNS trigger
LANGUAGE plpgsql SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
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

-- Ends what a run used with the run, or with its machine, and bounds it when the machine leaves the node.
CREATE FUNCTION record_run() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.ended_at IS NOT NULL OR NEW.counted_until IS NOT NULL THEN
    PERFORM close_usage(NEW.boot_id, least(NEW.ended_at, NEW.left_at, NEW.counted_until));
  ELSIF NEW.left_at IS DISTINCT FROM OLD.left_at THEN
    UPDATE usage_intervals u SET left_at = greatest(u.started_at, billing_time(u.tenant_id, NEW.left_at))
    WHERE coalesce(u.boot_id, u.machine_id) = NEW.boot_id AND u.ended_at IS NULL;
  END IF;
  RETURN NULL;
END $$;

-- Records what a run has sent since its node said so last, in the millisecond in which the server learned of
-- it: not before the run began, and not after it or its machine ended. It runs before record_run, which ends
-- the interval that says whose cost the run is. The lock is that of close_usage.
CREATE FUNCTION record_egress() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  at timestamptz;
  attribution bigint;
BEGIN
  PERFORM 1 FROM tenants t WHERE t.id = NEW.tenant_id FOR KEY SHARE;
  at := date_trunc('milliseconds', billing_time(NEW.tenant_id,
    greatest(NEW.started_at, least(NEW.egress_at, NEW.ended_at, NEW.left_at, NEW.counted_until))));
  SELECT u.attribution_id INTO attribution FROM usage_intervals u
  WHERE coalesce(u.boot_id, u.machine_id) = NEW.boot_id AND u.ended_at IS NULL LIMIT 1;
  INSERT INTO usage_intervals (tenant_id, machine_id, boot_id, attribution_id, meter, quantity, started_at, ended_at, rate_id, recorded_at)
  SELECT NEW.tenant_id, NEW.machine_id, NEW.boot_id, coalesce(attribution, attribution_of(NEW.machine_id)), 'egress',
    NEW.egress_bytes - CASE TG_OP WHEN 'UPDATE' THEN OLD.egress_bytes ELSE 0 END, at, at + interval '1 millisecond', p.rate_id,
    billing_time(NEW.tenant_id, clock_timestamp())
  FROM rated_parts(NEW.tenant_id, at, at) p;
  RETURN NULL;
END $$;

-- Records the use of a machine's disk from its creation to its delete, with its memory while it is suspended:
-- an interval for each size.
CREATE FUNCTION record_disk() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  start_at timestamptz := billing_time(NEW.tenant_id, CASE TG_OP WHEN 'INSERT' THEN NEW.created_at ELSE NEW.updated_at END);
  since_at timestamptz;
  attribution bigint;
BEGIN
  IF TG_OP = 'UPDATE' THEN
    SELECT max(u.started_at) INTO since_at FROM usage_intervals u
    WHERE coalesce(u.boot_id, u.machine_id) = NEW.id AND u.ended_at IS NULL;
    IF since_at IS NULL THEN RETURN NULL; END IF;
    start_at := greatest(start_at, since_at);
    PERFORM close_usage(NEW.id, coalesce(NEW.deleted_at, NEW.updated_at));
  END IF;
  IF NEW.deleted_at IS NULL THEN
    attribution := attribution_of(NEW.id);
    INSERT INTO usage_intervals (tenant_id, machine_id, attribution_id, meter, quantity, started_at, rate_id, recorded_at)
    SELECT NEW.tenant_id, NEW.id, attribution, 'disk', NEW.held_disk_gb, start_at, p.rate_id, billing_time(NEW.tenant_id, clock_timestamp())
    FROM rated_parts(NEW.tenant_id, start_at, start_at) p;
  END IF;
  RETURN NULL;
END $$;

-- Notes when and in which order the end of an interval was recorded. Both orders (ids and closed_in) are read
-- under a lock of the tenant (KEY SHARE: the foreign key of machine_runs and machines takes it before their
-- triggers run, and close_usage takes it), so an invoice, which locks the tenant FOR UPDATE, knows every
-- interval with a lower number.
CREATE FUNCTION note_closing() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  NEW.closed_at := billing_time(NEW.tenant_id, clock_timestamp());
  NEW.closed_in := nextval('usage_intervals_id_seq');
  RETURN NEW;
END $$;

-- Checks what intervals refer to, for all rows of a statement together and without a lock: rates and
-- attributions are never deleted and never change. The setting makes it look up each row by its key, whatever
-- the size of the table was when its plan was made.
CREATE FUNCTION check_intervals() RETURNS trigger LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
  IF EXISTS (
    SELECT FROM (SELECT DISTINCT rate_id FROM written) w
    LEFT JOIN LATERAL (SELECT r.id FROM rates r WHERE r.id = w.rate_id LIMIT 1) r ON true WHERE r.id IS NULL) THEN
    RAISE foreign_key_violation USING MESSAGE = 'a usage interval names a rate that does not exist';
  END IF;
  IF EXISTS (
    SELECT FROM (SELECT DISTINCT attribution_id FROM written WHERE attribution_id IS NOT NULL) w
    LEFT JOIN LATERAL (SELECT u.id FROM usage_attributions u WHERE u.id = w.attribution_id LIMIT 1) u ON true WHERE u.id IS NULL) THEN
    RAISE foreign_key_violation USING MESSAGE = 'a usage interval names an attribution that does not exist';
  END IF;
  RETURN NULL;
END $$;

CREATE TRIGGER machine_runs_recorded AFTER INSERT ON machine_runs REFERENCING NEW TABLE AS added
  FOR EACH STATEMENT EXECUTE FUNCTION record_runs();
CREATE TRIGGER machine_runs_sent AFTER UPDATE OF egress_bytes ON machine_runs
  FOR EACH ROW WHEN (new.egress_bytes > old.egress_bytes) EXECUTE FUNCTION record_egress();
CREATE TRIGGER machine_runs_sent_before AFTER INSERT ON machine_runs
  FOR EACH ROW WHEN (new.egress_bytes > 0) EXECUTE FUNCTION record_egress();
CREATE TRIGGER machine_runs_used AFTER UPDATE OF ended_at, left_at, counted_until ON machine_runs
  FOR EACH ROW EXECUTE FUNCTION record_run();
CREATE TRIGGER machines_made AFTER INSERT ON machines FOR EACH ROW EXECUTE FUNCTION record_disk();
CREATE TRIGGER machines_used AFTER UPDATE OF deleted_at, held_disk_gb ON machines
  FOR EACH ROW WHEN (old.deleted_at IS DISTINCT FROM new.deleted_at OR old.held_disk_gb <> new.held_disk_gb)
  EXECUTE FUNCTION record_disk();
CREATE TRIGGER usage_intervals_noted BEFORE INSERT OR UPDATE ON usage_intervals
  FOR EACH ROW WHEN (new.ended_at IS NOT NULL) EXECUTE FUNCTION note_closing();
CREATE TRIGGER usage_intervals_refer AFTER INSERT ON usage_intervals REFERENCING NEW TABLE AS written
  FOR EACH STATEMENT EXECUTE FUNCTION check_intervals();
CREATE TRIGGER usage_intervals_still_refer AFTER UPDATE ON usage_intervals REFERENCING NEW TABLE AS written
  FOR EACH STATEMENT EXECUTE FUNCTION check_intervals();

-- A run that has ended does not change.
CREATE FUNCTION refuse_change_of_ended_run() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'run % has ended and cannot change', OLD.boot_id;
END $$;

-- What a run has sent never becomes less: the next growth would be billed again.
CREATE FUNCTION refuse_less_egress() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'run % has sent % bytes, which cannot become %', OLD.boot_id, OLD.egress_bytes, NEW.egress_bytes;
END $$;

-- A run that something was billed for is never deleted.
CREATE FUNCTION refuse_delete_of_billed_run() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (SELECT FROM usage_intervals u WHERE u.machine_id = OLD.machine_id AND u.boot_id = OLD.boot_id) THEN
    RAISE EXCEPTION 'run % of machine % has usage intervals, which invoices are computed from: it cannot be deleted', OLD.boot_id, OLD.machine_id;
  END IF;
  RETURN OLD;
END $$;

CREATE TRIGGER machine_runs_final BEFORE UPDATE ON machine_runs
  FOR EACH ROW WHEN (old.ended_at IS NOT NULL) EXECUTE FUNCTION refuse_change_of_ended_run();
CREATE TRIGGER machine_runs_grow BEFORE UPDATE OF egress_bytes ON machine_runs
  FOR EACH ROW WHEN (new.egress_bytes < old.egress_bytes) EXECUTE FUNCTION refuse_less_egress();
CREATE TRIGGER machine_runs_kept BEFORE DELETE ON machine_runs
  FOR EACH ROW EXECUTE FUNCTION refuse_delete_of_billed_run();
CREATE TRIGGER machine_runs_not_truncated BEFORE TRUNCATE ON machine_runs
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER usage_attributions_immutable BEFORE DELETE OR UPDATE ON usage_attributions
  FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER usage_attributions_not_truncated BEFORE TRUNCATE ON usage_attributions
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER usage_intervals_immutable BEFORE UPDATE ON usage_intervals
  FOR EACH ROW WHEN (old.ended_at IS NOT NULL) EXECUTE FUNCTION refuse_change();
CREATE TRIGGER usage_intervals_kept BEFORE DELETE ON usage_intervals FOR EACH ROW EXECUTE FUNCTION refuse_change();

-- ======== Budgets ========

-- The start of the month in UTC that has an instant.
CREATE FUNCTION month_of(at timestamptz) RETURNS timestamptz LANGUAGE sql IMMUTABLE AS $$
  SELECT date_trunc('month', at AT TIME ZONE 'UTC') AT TIME ZONE 'UTC'
$$;

-- What an amount (quantity × milliseconds) of a meter costs, in micros, rounded down. As lineMicros in
-- server/src/usage/usage.ts.
CREATE FUNCTION usage_micros(
  meter text, amount numeric, rate rates
) RETURNS numeric LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE meter WHEN 'cpu' THEN div(amount * rate.cpu_hour_micros, 3600000)
    WHEN 'memory' THEN div(amount * rate.memory_gb_hour_micros, 3686400000)
    WHEN 'registry' THEN div(amount * rate.registry_gb_hour_micros, 3686400000)
    WHEN 'egress' THEN div(amount * rate.egress_gb_micros, 1073741824) ELSE 0 END
$$;

-- What the usage of a tenant costs in its current month, in micros: as usage/intervals-store.ts sums and
-- usage.ts prices it. More than 2^53 micros, which is more than any budget, counts as 2^53.
-- Of closed intervals it adds those after the subtotal to it. Intervals of the subtotal that end after
-- real_at count up to then. Each part reads one index: the conditions with "closed_in - cut" are not for the
-- other one.
CREATE FUNCTION spent_in_month(tenant text, real_at timestamptz) RETURNS bigint LANGUAGE sql STABLE AS $$
  WITH month AS MATERIALIZED (
    SELECT b.at AS to_at, month_of(b.at) AS from_at, (month_of(b.at) AT TIME ZONE 'UTC' + interval '1 month') AT TIME ZONE 'UTC' AS until_at
    FROM (SELECT billing_time(tenant, real_at) AS at) b),
  subtotal AS MATERIALIZED (
    SELECT s.* FROM usage_subtotals s WHERE s.tenant_id = tenant AND s.month = (SELECT from_at AT TIME ZONE 'UTC' FROM month)::date),
  parts AS (
    SELECT u.meter, u.quantity, u.rate_id, u.started_at, u.ended_at FROM usage_intervals u
    WHERE u.tenant_id = tenant AND u.meter IN ('cpu', 'memory', 'egress', 'registry') AND u.ended_at > (SELECT from_at FROM month) AND NOT EXISTS (SELECT FROM subtotal)
    UNION ALL
    SELECT u.meter, u.quantity, u.rate_id, u.started_at, u.ended_at FROM usage_intervals u
    WHERE u.tenant_id = tenant AND u.meter IN ('cpu', 'memory', 'egress', 'registry') AND u.closed_in >= (SELECT cut FROM subtotal)
    UNION ALL
    SELECT u.meter, u.quantity, p.rate_id, p.started_at, p.ended_at
    FROM usage_intervals u
    LEFT JOIN machines m ON m.id = u.machine_id
    LEFT JOIN nodes n ON n.id = m.node_id
    CROSS JOIN LATERAL rated_parts(tenant, u.started_at,
      greatest(u.started_at, least(u.left_at, billing_time(tenant, least(real_at, CASE WHEN u.left_at IS NULL THEN n.last_heartbeat_at END))))) p
    WHERE u.tenant_id = tenant AND u.meter IN ('cpu', 'memory', 'egress', 'registry') AND u.ended_at IS NULL),
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
    FROM month m CROSS JOIN subtotal s JOIN usage_intervals u ON u.tenant_id = tenant AND u.meter IN ('cpu', 'memory', 'egress', 'registry')
      AND u.ended_at > (SELECT to_at FROM month) AND u.closed_in - s.cut < 0),
  lines AS (SELECT meter, rate_id, sum(amount) AS amount FROM amounts GROUP BY 1, 2)
  SELECT least(coalesce(sum(usage_micros(l.meter, l.amount, r)), 0), 9007199254740991)::bigint
  FROM lines l JOIN rates r ON r.id = l.rate_id
$$;

-- Bytes that the machines of a tenant have sent in its current month, as far as their nodes have said: of the
-- subtotal, and of intervals that it does not have. Each part reads one index, so the conditions of the
-- second one are not for the index of what was sent.
CREATE FUNCTION egress_in_month(tenant text, real_at timestamptz) RETURNS bigint LANGUAGE sql STABLE AS $$
  WITH month AS MATERIALIZED (
    SELECT b.from_at, (b.from_at AT TIME ZONE 'UTC' + interval '1 month') AT TIME ZONE 'UTC' AS until_at
    FROM (SELECT month_of(billing_time(tenant, real_at)) AS from_at) b),
  subtotal AS MATERIALIZED (
    SELECT s.* FROM usage_subtotals s WHERE s.tenant_id = tenant AND s.month = (SELECT from_at AT TIME ZONE 'UTC' FROM month)::date),
  parts AS (
    SELECT u.quantity AS bytes FROM usage_intervals u
    WHERE u.tenant_id = tenant AND u.meter = 'egress' AND u.ended_at > (SELECT from_at FROM month)
      AND u.ended_at <= (SELECT until_at FROM month) AND NOT EXISTS (SELECT FROM subtotal)
    UNION ALL
    SELECT CASE WHEN u.meter = 'egress' AND u.ended_at > m.from_at AND u.ended_at <= m.until_at THEN u.quantity END
    FROM month m CROSS JOIN usage_intervals u WHERE u.tenant_id = tenant AND u.closed_in >= (SELECT cut FROM subtotal)
    UNION ALL
    SELECT l.amount FROM subtotal s CROSS JOIN unnest(s.meters, s.amounts) AS l(meter, amount) WHERE l.meter = 'egress')
  SELECT least(coalesce(sum(bytes), 0), 9007199254740991)::bigint FROM parts
$$;

-- The monthly budget of a tenant's plan if it refuses starts or stops machines, in micros; null: there is
-- none.
CREATE FUNCTION held_budget(tenant text) RETURNS bigint LANGUAGE sql STABLE AS $$
  SELECT p.monthly_budget_micros FROM tenants t JOIN plans p ON p.id = coalesce(t.plan_id, (SELECT id FROM plans WHERE is_default))
  WHERE t.id = tenant AND p.budget_policy IN ('block', 'stop')
$$;

-- The end of the window of a hold that is placed or renewed at an instant.
CREATE FUNCTION hold_until(at timestamptz) RETURNS timestamptz LANGUAGE sql IMMUTABLE AS $$
  SELECT least(at + interval '60 seconds', (date_trunc('month', at AT TIME ZONE 'UTC') + interval '1 month') AT TIME ZONE 'UTC')
$$;

-- The price of a machine for a time, rounded up for each meter and rate: usage of that time never adds more
-- to a sum.
CREATE FUNCTION hold_micros(
  tenant text, cpus integer, memory_mb integer, from_at timestamptz, until_at timestamptz
) RETURNS bigint LANGUAGE sql STABLE AS $$
  SELECT coalesce(sum(div(cpus * p.ms * r.cpu_hour_micros + 3599999, 3600000)
    + div(memory_mb * p.ms * r.memory_gb_hour_micros + 3686399999, 3686400000)), 0)::bigint
  FROM (
    SELECT rate_id, sum(ceil(1000 * extract(epoch FROM ended_at - started_at))) AS ms FROM rated_parts(tenant, from_at, until_at) GROUP BY 1) p
  JOIN rates r ON r.id = p.rate_id
$$;

-- Whether usage of the machine's runs was recorded for the time after an instant of billing time.
CREATE FUNCTION hold_outcome(machine text, since timestamptz) RETURNS text LANGUAGE sql STABLE AS $$
  SELECT CASE WHEN EXISTS (
    SELECT FROM usage_intervals u WHERE u.machine_id = machine AND u.boot_id IS NOT NULL AND (u.ended_at IS NULL OR u.ended_at > since))
    THEN 'posted' ELSE 'voided' END
$$;

-- What is held of a tenant's budget for its current month, in micros, without the machine.
CREATE FUNCTION held_in_month(tenant text, real_at timestamptz, without_machine text) RETURNS bigint
LANGUAGE sql STABLE AS $$
  SELECT least(coalesce(sum(h.micros), 0), 9007199254740991)::bigint FROM ledger_holds h
  WHERE h.tenant_id = tenant AND h.ended_at IS NULL AND h.machine_id IS DISTINCT FROM without_machine
    AND h.held_until > month_of(billing_time(tenant, real_at))
$$;

-- Whether what is spent, what is held and the first window of a machine fit in the budget of its tenant, or
-- it has no such budget. Starts of a tenant take turns, so that each sees the holds of those before.
CREATE FUNCTION budget_allows_start_locked(
  tenant text, machine text, cpus integer, memory_mb integer, real_at timestamptz
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  budget bigint;
  taken numeric;
  at timestamptz;
BEGIN
  PERFORM 1 FROM tenants WHERE id = tenant FOR NO KEY UPDATE;
  budget := held_budget(tenant);
  IF budget IS NULL THEN RETURN true; END IF;
  taken := spent_in_month(tenant, real_at)::numeric + held_in_month(tenant, real_at, machine);
  at := billing_time(tenant, real_at);
  RETURN taken < budget AND taken + hold_micros(tenant, cpus, memory_mb, at, hold_until(at)) <= budget;
END $$;

-- Places and ends holds: what machines of tenants whose budget refuses starts or stops machines may still
-- cost until they are checked again. It runs in the statement that makes a machine active or ends that,
-- whichever statement and server it is.
CREATE FUNCTION record_hold() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  held ledger_holds;
  at timestamptz;
BEGIN
  IF NEW.is_active THEN
    IF held_budget(NEW.tenant_id) IS NULL THEN RETURN NULL; END IF;
    at := billing_time(NEW.tenant_id, NEW.updated_at);
    INSERT INTO ledger_holds (tenant_id, machine_id, placed_at, held_from, held_until, micros)
    VALUES (NEW.tenant_id, NEW.id, at, at, hold_until(at), hold_micros(NEW.tenant_id, NEW.cpus, NEW.memory_mb, at, hold_until(at)))
    ON CONFLICT DO NOTHING;
  ELSE
    SELECT * INTO held FROM ledger_holds h WHERE h.machine_id = NEW.id AND h.ended_at IS NULL;
    IF NOT FOUND THEN RETURN NULL; END IF;
    UPDATE ledger_holds h SET outcome = hold_outcome(NEW.id, held.placed_at),
      ended_at = greatest(held.placed_at, billing_time(NEW.tenant_id, NEW.updated_at))
    WHERE h.number = held.number AND h.ended_at IS NULL;
  END IF;
  RETURN NULL;
END $$;

CREATE TRIGGER machines_held AFTER UPDATE ON machines
  FOR EACH ROW WHEN (old.is_active IS DISTINCT FROM new.is_active) EXECUTE FUNCTION record_hold();
CREATE TRIGGER ledger_holds_final BEFORE UPDATE ON ledger_holds
  FOR EACH ROW WHEN (old.ended_at IS NOT NULL OR old.tenant_id IS DISTINCT FROM new.tenant_id
    OR old.machine_id IS DISTINCT FROM new.machine_id OR old.placed_at IS DISTINCT FROM new.placed_at)
  EXECUTE FUNCTION refuse_change();
CREATE TRIGGER ledger_holds_kept BEFORE DELETE OR TRUNCATE ON ledger_holds
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- ======== Invoices ========

-- Refuses a number out of turn. Invoices of test clocks take no number, so they leave no gap for other
-- tenants.
CREATE FUNCTION check_invoice_numbers() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (SELECT FROM added a JOIN tenants t ON t.id = a.tenant_id WHERE t.has_test_clock <> (a.number IS NULL)) THEN
    RAISE EXCEPTION 'an invoice has a number unless its tenant has a test clock';
  END IF;
  IF EXISTS (SELECT FROM added a WHERE a.series <> current_invoice_series()) THEN
    RAISE EXCEPTION 'an invoice is not of the current series of numbers';
  END IF;
  IF (SELECT max(a.number) - min(a.number) + 1 <> count(*)
      OR min(a.number) <> 1 + coalesce(
        (SELECT max(i.number) FROM invoices i WHERE i.series = current_invoice_series() AND i.number < min(a.number)), 0)
      OR max(a.number) <> (SELECT last_number FROM invoice_counter)
    FROM added a WHERE a.number IS NOT NULL HAVING count(*) > 0) THEN
    RAISE EXCEPTION 'the numbers of invoices have a gap';
  END IF;
  RETURN NULL;
END $$;

-- Refuses an invoice whose lines do not add up to it, so also a line that is added later.
CREATE FUNCTION check_invoices() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (
    SELECT FROM (SELECT DISTINCT tenant_id, month FROM added) a
    JOIN invoices i USING (tenant_id, month)
    LEFT JOIN LATERAL (SELECT count(*) AS lines, coalesce(sum(micros), 0) AS micros FROM invoice_lines l
      WHERE l.tenant_id = a.tenant_id AND l.month = a.month) s ON true
    WHERE (s.lines, s.micros) <> (i.line_count, i.total_micros)) THEN
    RAISE EXCEPTION 'the lines of an invoice do not add up to it';
  END IF;
  RETURN NULL;
END $$;

CREATE TRIGGER invoices_numbered AFTER INSERT ON invoices REFERENCING NEW TABLE AS added
  FOR EACH STATEMENT EXECUTE FUNCTION check_invoice_numbers();
CREATE TRIGGER invoices_checked AFTER INSERT ON invoices REFERENCING NEW TABLE AS added
  FOR EACH STATEMENT EXECUTE FUNCTION check_invoices();
CREATE TRIGGER invoice_lines_checked AFTER INSERT ON invoice_lines REFERENCING NEW TABLE AS added
  FOR EACH STATEMENT EXECUTE FUNCTION check_invoices();
CREATE TRIGGER invoices_immutable BEFORE DELETE OR UPDATE OR TRUNCATE ON invoices
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER invoice_lines_immutable BEFORE DELETE OR UPDATE OR TRUNCATE ON invoice_lines
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER invoice_limits_immutable BEFORE DELETE OR UPDATE OR TRUNCATE ON invoice_limits
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- ======== Ledger ========

-- Posts invoices. Runs at the end of the statement that writes them, when their lines exist.
CREATE FUNCTION post_invoices() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  WITH posted AS (
    INSERT INTO ledger_transactions (id, tenant_id, kind, invoice_month, note, made_at)
    SELECT 'post-' || replace(gen_random_uuid()::text, '-', ''), tenant_id, 'invoice', month,
      coalesce('invoice ' || CASE WHEN series = '' THEN '' ELSE series || '-' END || number, 'invoice of a test clock'), finalized_at
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

-- Refuses a transaction whose entries do not add up to 0, and an entry that is added later.
CREATE FUNCTION check_ledger() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (
    SELECT FROM (SELECT DISTINCT transaction_id FROM added) a JOIN ledger_transactions t ON t.id = a.transaction_id
    WHERE t.made_in <> pg_current_xact_id()
      OR (SELECT sum(e.micros) FROM ledger_entries e WHERE e.transaction_id = a.transaction_id) <> 0) THEN
    RAISE EXCEPTION 'the entries of a transaction do not add up to 0, or it was posted before';
  END IF;
  RETURN NULL;
END $$;

CREATE TRIGGER invoices_posted AFTER INSERT ON invoices REFERENCING NEW TABLE AS added
  FOR EACH STATEMENT EXECUTE FUNCTION post_invoices();
CREATE TRIGGER ledger_entries_checked AFTER INSERT ON ledger_entries REFERENCING NEW TABLE AS added
  FOR EACH STATEMENT EXECUTE FUNCTION check_ledger();
CREATE TRIGGER ledger_transactions_immutable BEFORE DELETE OR UPDATE OR TRUNCATE ON ledger_transactions
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER ledger_entries_immutable BEFORE DELETE OR UPDATE OR TRUNCATE ON ledger_entries
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
