-- Holds: what machines may still cost until they are checked again, of tenants whose budget refuses starts or stops machines.
--
-- A trigger of machines writes them in the statement that lets a machine run or ends that, whichever statement and server it is.

CREATE TABLE ledger_holds (
  number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  tenant_id text NOT NULL REFERENCES tenants (id),
  machine_id text NOT NULL,
  placed_at timestamptz NOT NULL,
  held_from timestamptz NOT NULL CHECK (held_from >= placed_at),
  held_until timestamptz NOT NULL CHECK (held_until >= held_from),
  micros bigint NOT NULL CHECK (micros >= 0),
  outcome text CHECK (outcome IN ('posted', 'voided')),
  ended_at timestamptz CHECK (ended_at >= placed_at),
  CONSTRAINT ended_with_an_outcome CHECK ((ended_at IS NULL) = (outcome IS NULL))
) WITH (fillfactor = 50);
COMMENT ON TABLE ledger_holds IS 'What active machines may cost until they are checked again: from the account budget of their tenant to its account held. Only of tenants whose budget blocks or stops. Written by a trigger of machines, renewed by server/src/usage/holds-store.ts.';
COMMENT ON COLUMN ledger_holds.number IS 'The order in which they were placed.';
COMMENT ON COLUMN ledger_holds.tenant_id IS 'Whose budget.';
COMMENT ON COLUMN ledger_holds.machine_id IS 'Which machine; it may be gone.';
COMMENT ON COLUMN ledger_holds.placed_at IS 'When the machine was started, or its tenant got such a budget. This and the other times: in the billing time of the tenant.';
COMMENT ON COLUMN ledger_holds.held_from IS 'From then on its usage was not counted when this was last renewed.';
COMMENT ON COLUMN ledger_holds.held_until IS 'Not after the end of the month of held_from: the next one has its own budget.';
COMMENT ON COLUMN ledger_holds.micros IS 'The price from held_from to held_until, rounded up for each meter and rate.';
COMMENT ON COLUMN ledger_holds.outcome IS 'posted: usage of the machine replaced it; voided: the machine did not run. Null while it is held.';
COMMENT ON COLUMN ledger_holds.ended_at IS 'When it was posted or voided, which happens once. Null while it is held.';
-- Not of columns that a renewal changes, so that renewals write no index.
CREATE UNIQUE INDEX ledger_holds_open ON ledger_holds (machine_id) WHERE ended_at IS NULL;
CREATE INDEX ledger_holds_of_tenant ON ledger_holds (tenant_id) WHERE ended_at IS NULL;

CREATE TRIGGER ledger_holds_final BEFORE UPDATE ON ledger_holds FOR EACH ROW
  WHEN (OLD.ended_at IS NOT NULL OR (OLD.tenant_id, OLD.machine_id, OLD.placed_at) IS DISTINCT FROM (NEW.tenant_id, NEW.machine_id, NEW.placed_at))
  EXECUTE FUNCTION refuse_change();
CREATE TRIGGER ledger_holds_kept BEFORE DELETE OR TRUNCATE ON ledger_holds FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- The monthly budget of a tenant's plan if it refuses starts or stops machines, in micros; null: there is none.
CREATE FUNCTION held_budget(tenant text) RETURNS bigint LANGUAGE sql STABLE AS $$
  SELECT p.monthly_budget_micros FROM tenants t JOIN plans p ON p.id = coalesce(t.plan_id, (SELECT id FROM plans WHERE is_default))
  WHERE t.id = tenant AND p.budget_policy IN ('block', 'stop')
$$;

-- The start of the month in UTC that has an instant.
CREATE FUNCTION month_of(at timestamptz) RETURNS timestamptz LANGUAGE sql IMMUTABLE AS $$
  SELECT date_trunc('month', at AT TIME ZONE 'UTC') AT TIME ZONE 'UTC'
$$;

-- The end of the window of a hold that is placed or renewed at an instant.
CREATE FUNCTION hold_until(at timestamptz) RETURNS timestamptz LANGUAGE sql IMMUTABLE AS $$
  SELECT least(at + interval '60 seconds', (date_trunc('month', at AT TIME ZONE 'UTC') + interval '1 month') AT TIME ZONE 'UTC')
$$;

-- The price of a machine for a time, rounded up for each meter and rate: usage of that time never adds more to a sum.
CREATE FUNCTION hold_micros(tenant text, cpus int, memory_mb int, from_at timestamptz, until_at timestamptz)
RETURNS bigint LANGUAGE sql STABLE AS $$
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
CREATE TRIGGER machines_held AFTER UPDATE ON machines FOR EACH ROW
  WHEN (OLD.is_active IS DISTINCT FROM NEW.is_active) EXECUTE FUNCTION record_hold();

-- What the usage of a tenant costs in its current month, in micros: as usage/intervals-store.ts sums and usage.ts prices it.
CREATE FUNCTION spent_in_month(tenant text, real_at timestamptz) RETURNS bigint LANGUAGE sql STABLE AS $$
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
  SELECT coalesce(sum(usage_micros(l.meter, l.amount, r.cpu_hour_micros, r.memory_gb_hour_micros)), 0)::bigint
  FROM lines l JOIN rates r ON r.id = l.rate_id
$$;

-- What is held of a tenant's budget for its current month, in micros, without the machine.
CREATE FUNCTION held_in_month(tenant text, real_at timestamptz, without_machine text) RETURNS bigint LANGUAGE sql STABLE AS $$
  SELECT coalesce(sum(h.micros), 0)::bigint FROM ledger_holds h
  WHERE h.tenant_id = tenant AND h.ended_at IS NULL AND h.machine_id IS DISTINCT FROM without_machine
    AND h.held_until > month_of(billing_time(tenant, real_at))
$$;

-- Whether what is spent, what is held and the first window of a machine fit in the budget of its tenant, or it has no such budget.
-- Starts of a tenant take turns, so that each sees the holds of those before.
CREATE FUNCTION budget_allows_start_locked(tenant text, machine text, cpus int, memory_mb int, real_at timestamptz)
RETURNS boolean LANGUAGE plpgsql AS $$
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
