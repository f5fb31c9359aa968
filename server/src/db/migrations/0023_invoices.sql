-- Invoices: what each tenant owes for each calendar month, computed from intervals and kept for good.

-- When an interval became known, so that a past answer can be given again.
ALTER TABLE usage_intervals ADD COLUMN recorded_at timestamptz, ADD COLUMN closed_at timestamptz, ADD COLUMN closed_in bigint;
ALTER TABLE usage_intervals DISABLE TRIGGER usage_intervals_immutable;
UPDATE usage_intervals SET recorded_at = started_at, closed_at = ended_at, closed_in = CASE WHEN ended_at IS NOT NULL THEN 0 END;
ALTER TABLE usage_intervals ENABLE TRIGGER usage_intervals_immutable;
ALTER TABLE usage_intervals ALTER COLUMN recorded_at SET NOT NULL, ALTER COLUMN recorded_at SET DEFAULT clock_timestamp();
ALTER TABLE usage_intervals ADD CONSTRAINT closed_with_its_end
  CHECK ((ended_at IS NULL) = (closed_at IS NULL) AND (ended_at IS NULL) = (closed_in IS NULL));
COMMENT ON COLUMN usage_intervals.id IS 'The order in which intervals were recorded, among ids and closed_in.';
COMMENT ON COLUMN usage_intervals.recorded_at IS 'When its start was recorded, by the clock of the database. A part that was split off has the instant of the whole.';
COMMENT ON COLUMN usage_intervals.closed_at IS 'When its end was recorded, by the clock of the database. Null while it has no end.';
COMMENT ON COLUMN usage_intervals.closed_in IS 'The order in which its end was recorded, among ids and closed_in. Null while it has no end; 0: before invoices existed.';
CREATE INDEX usage_intervals_closed ON usage_intervals (tenant_id, closed_in) WHERE closed_in IS NOT NULL;

-- Both orders are read under a lock of the tenant (KEY SHARE: the foreign key of machine_runs and machines takes it before
-- their triggers run, and close_usage takes it), so an invoice, which locks the tenant FOR UPDATE, knows what has a lower number.
CREATE FUNCTION note_closing() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  NEW.closed_at := clock_timestamp();
  NEW.closed_in := nextval(pg_get_serial_sequence('usage_intervals', 'id'));
  RETURN NEW;
END $$;
CREATE TRIGGER usage_intervals_noted BEFORE INSERT OR UPDATE ON usage_intervals FOR EACH ROW
  WHEN (NEW.ended_at IS NOT NULL) EXECUTE FUNCTION note_closing();

-- As before; a part that is split off was recorded with the whole.
CREATE OR REPLACE FUNCTION close_usage(subject text, at timestamptz) RETURNS void LANGUAGE plpgsql AS $$
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
        INSERT INTO usage_intervals (tenant_id, machine_id, boot_id, meter, quantity, started_at, ended_at, rate_id, recorded_at)
        VALUES (used.tenant_id, used.machine_id, used.boot_id, used.meter, used.quantity, part.started_at, part.ended_at,
          part.rate_id, used.recorded_at);
      END IF;
    END LOOP;
  END LOOP;
END $$;

-- What an amount (quantity × milliseconds) of a meter costs, in micros, rounded down. As lineMicros in server/src/usage/usage.ts.
CREATE FUNCTION usage_micros(meter text, amount numeric, cpu_hour_micros bigint, memory_gb_hour_micros bigint)
RETURNS numeric LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE meter WHEN 'cpu' THEN div(amount * cpu_hour_micros, 3600000)
    WHEN 'memory' THEN div(amount * memory_gb_hour_micros, 3686400000) ELSE 0 END
$$;

CREATE TABLE invoice_counter (
  is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),
  last_number bigint NOT NULL
);
INSERT INTO invoice_counter (last_number) VALUES (0);
COMMENT ON TABLE invoice_counter IS 'One row. Its lock makes transactions that finalize invoices take turns, so that numbers have no gaps.';
COMMENT ON COLUMN invoice_counter.is_only IS 'Always true.';
COMMENT ON COLUMN invoice_counter.last_number IS 'The number of the newest invoice; 0: there is none.';

CREATE TABLE invoices (
  tenant_id text NOT NULL REFERENCES tenants (id),
  month date NOT NULL CHECK (date_trunc('month', month) = month),
  number bigint NOT NULL UNIQUE CHECK (number >= 1),
  cut bigint NOT NULL,
  finalized_at timestamptz NOT NULL,
  line_count int NOT NULL,
  total_micros bigint NOT NULL,
  PRIMARY KEY (tenant_id, month)
);
COMMENT ON TABLE invoices IS 'Final invoices; rows are never changed. Drafts are computed when they are read. Written by server/src/billing/store.ts.';
COMMENT ON COLUMN invoices.tenant_id IS 'Who owes it.';
COMMENT ON COLUMN invoices.month IS 'The first day of its calendar month in UTC. A tenant has one for each month since it was made, without gaps.';
COMMENT ON COLUMN invoices.number IS 'Counts the invoices of the installation, without gaps.';
COMMENT ON COLUMN invoices.cut IS 'It knows the starts and ends of intervals with a lower id or closed_in.';
COMMENT ON COLUMN invoices.finalized_at IS 'When it became final, by the clock of the database.';
COMMENT ON COLUMN invoices.line_count IS 'How many lines it has.';
COMMENT ON COLUMN invoices.total_micros IS 'The sum of its lines, in micros. Negative when adjustments are larger than the usage.';

CREATE TABLE invoice_lines (
  tenant_id text NOT NULL,
  month date NOT NULL,
  usage_month date NOT NULL CHECK (date_trunc('month', usage_month) = usage_month),
  meter text NOT NULL CHECK (meter IN ('uptime', 'cpu', 'memory', 'disk')),
  rate_id text NOT NULL REFERENCES rates (id),
  amount numeric NOT NULL CHECK (amount = trunc(amount)),
  micros bigint NOT NULL,
  PRIMARY KEY (tenant_id, month, usage_month, meter, rate_id),
  FOREIGN KEY (tenant_id, month) REFERENCES invoices,
  CHECK (usage_month <= month)
);
COMMENT ON TABLE invoice_lines IS 'Lines of final invoices; rows are never changed. Written by server/src/billing/store.ts.';
COMMENT ON COLUMN invoice_lines.tenant_id IS 'With month: the invoice.';
COMMENT ON COLUMN invoice_lines.month IS 'With tenant_id: the invoice.';
COMMENT ON COLUMN invoice_lines.usage_month IS 'When it was used. An earlier month than the invoice''s: an adjustment of that month.';
COMMENT ON COLUMN invoice_lines.meter IS 'What was used.';
COMMENT ON COLUMN invoice_lines.rate_id IS 'The price.';
COMMENT ON COLUMN invoice_lines.amount IS 'Quantity × milliseconds; of an adjustment the difference from what was invoiced before.';
COMMENT ON COLUMN invoice_lines.micros IS 'The price of all that was used in usage_month at this rate, rounded down once, less what was invoiced before.';

CREATE TABLE invoice_limits (
  tenant_id text NOT NULL,
  month date NOT NULL,
  interval_id bigint NOT NULL REFERENCES usage_intervals (id),
  counted_until timestamptz NOT NULL,
  PRIMARY KEY (tenant_id, month, interval_id),
  FOREIGN KEY (tenant_id, month) REFERENCES invoices
);
COMMENT ON TABLE invoice_limits IS 'Intervals without an end that an invoice did not count to the end of its month, because their node had not reported. Rows are never changed.';
COMMENT ON COLUMN invoice_limits.tenant_id IS 'With month: the invoice.';
COMMENT ON COLUMN invoice_limits.month IS 'With tenant_id: the invoice.';
COMMENT ON COLUMN invoice_limits.interval_id IS 'The interval.';
COMMENT ON COLUMN invoice_limits.counted_until IS 'How far it was counted: the last heartbeat of its node.';

CREATE TRIGGER invoices_immutable BEFORE UPDATE OR DELETE OR TRUNCATE ON invoices FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER invoice_lines_immutable BEFORE UPDATE OR DELETE OR TRUNCATE ON invoice_lines FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER invoice_limits_immutable BEFORE UPDATE OR DELETE OR TRUNCATE ON invoice_limits FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- Refuses an invoice whose lines do not add up to it, so also a line that is added later, and a number out of turn.
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
CREATE TRIGGER invoices_checked AFTER INSERT ON invoices REFERENCING NEW TABLE AS added
  FOR EACH STATEMENT EXECUTE FUNCTION check_invoices();
CREATE TRIGGER invoice_lines_checked AFTER INSERT ON invoice_lines REFERENCING NEW TABLE AS added
  FOR EACH STATEMENT EXECUTE FUNCTION check_invoices();

CREATE FUNCTION check_invoice_numbers() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF (SELECT max(a.number) - min(a.number) + 1 <> count(*)
      OR min(a.number) <> 1 + coalesce((SELECT max(i.number) FROM invoices i WHERE i.number < min(a.number)), 0)
      OR max(a.number) <> (SELECT last_number FROM invoice_counter) FROM added a HAVING count(*) > 0) THEN
    RAISE EXCEPTION 'the numbers of invoices have a gap';
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER invoices_numbered AFTER INSERT ON invoices REFERENCING NEW TABLE AS added
  FOR EACH STATEMENT EXECUTE FUNCTION check_invoice_numbers();

-- As before; and not before the end of a month that is invoiced.
CREATE OR REPLACE FUNCTION change_tenant_plan(tenant text, plan text, at timestamptz) RETURNS void LANGUAGE sql AS $$
  INSERT INTO tenant_plans (tenant_id, plan_id, active_from)
  SELECT tenant, plan, greatest(at,
    (SELECT max(u.ended_at) FROM usage_intervals u WHERE u.tenant_id = tenant),
    (SELECT (max(i.month) + interval '1 month') AT TIME ZONE 'UTC' FROM invoices i WHERE i.tenant_id = tenant),
    (SELECT max(p.active_from) + interval '1 millisecond' FROM tenant_plans p WHERE p.tenant_id = tenant))
$$;
