-- The cluster, plans with their prices, tenants and their clocks, API keys, and first answers to idempotent
-- requests.

-- An instant in epoch milliseconds, as statements return it. Its body becomes part of the statement that
-- calls it.
CREATE FUNCTION ms(at timestamptz) RETURNS bigint LANGUAGE sql STABLE AS $$
  SELECT floor(extract(epoch FROM at) * 1000)::bigint
$$;

-- One row: the identity of this cluster.
CREATE TABLE cluster (
  -- Always true, so that a second row cannot exist.
  is_only_row boolean PRIMARY KEY DEFAULT true CHECK (is_only_row),
  -- Random, made once; shown by /health.
  id text NOT NULL,
  -- When the database was first set up.
  created_at timestamptz NOT NULL DEFAULT now()
);

-- Ceilings and per-unit rates that tenants have. Written by server/src/plans/store.ts only.
CREATE TABLE plans (
  -- plan-<32 hex>, or what its creator chose.
  id text PRIMARY KEY,
  -- Named in refusals over a ceiling.
  name text NOT NULL UNIQUE,
  -- The plan of tenants that name none; exactly one has it.
  is_default boolean NOT NULL DEFAULT false,
  -- Apps a tenant may have.
  max_apps integer NOT NULL CHECK (max_apps >= 0),
  -- Machines a tenant may have, in any state.
  max_machines integer NOT NULL CHECK (max_machines >= 0),
  -- Machines that may be started or creating at once.
  max_concurrent_machines integer NOT NULL CHECK (max_concurrent_machines >= 0),
  -- Processors of one machine.
  max_cpus integer NOT NULL CHECK (max_cpus >= 0),
  -- Memory of one machine in MiB.
  max_memory_mb bigint NOT NULL CHECK (max_memory_mb >= 0),
  -- Disk of one machine in GiB.
  max_disk_gb bigint NOT NULL CHECK (max_disk_gb >= 0),
  -- Processors of all machines of a tenant that are active, together.
  max_total_cpus bigint NOT NULL CHECK (max_total_cpus >= 0),
  -- Memory in MiB of all machines of a tenant that are active, together.
  max_total_memory_mb bigint NOT NULL CHECK (max_total_memory_mb >= 0),
  -- Disk in GiB of all machines of a tenant in any state, together.
  max_total_disk_gb bigint NOT NULL CHECK (max_total_disk_gb >= 0),
  -- GiB that all machines of a tenant may send in a calendar month; null: no ceiling.
  max_egress_gb bigint CHECK (max_egress_gb >= 0),
  -- GiB that a tenant may store in the registry; null: no ceiling.
  max_package_gb bigint DEFAULT 50 CHECK (max_package_gb >= 0),
  -- What happens when the monthly budget is used up.
  budget_policy text NOT NULL DEFAULT 'none' CHECK (budget_policy IN ('none', 'notify', 'block', 'stop')),
  -- Budget per calendar month; null: none.
  monthly_budget_micros bigint CHECK (monthly_budget_micros >= 0),
  -- The price per virtual processor and hour it was made with; rates says which holds.
  rate_cpu_hour_micros bigint NOT NULL DEFAULT 0 CHECK (rate_cpu_hour_micros >= 0),
  -- The price per GiB of memory and hour it was made with; rates says which holds.
  rate_memory_gb_hour_micros bigint NOT NULL DEFAULT 0 CHECK (rate_memory_gb_hour_micros >= 0),
  -- The price per GiB that machines send it was made with; rates says which holds.
  rate_egress_gb_micros bigint NOT NULL DEFAULT 0 CHECK (rate_egress_gb_micros >= 0),
  -- The price per GiB in the registry and hour it was made with; rates says which holds.
  rate_registry_gb_hour_micros bigint NOT NULL DEFAULT 0 CHECK (rate_registry_gb_hour_micros >= 0),
  -- Price of one exec in millionths.
  rate_exec_micros bigint NOT NULL DEFAULT 0 CHECK (rate_exec_micros >= 0),
  -- Refill of the tenant's token bucket.
  rate_requests_per_second integer NOT NULL DEFAULT 200 CHECK (rate_requests_per_second >= 1),
  -- Size of the tenant's token bucket.
  rate_burst integer NOT NULL DEFAULT 1000 CHECK (rate_burst >= 1),
  -- The id that the request which made it would have given it: a repetition has the same one.
  made_as text,
  -- When it was created.
  created_at timestamptz NOT NULL DEFAULT now()
);
CREATE UNIQUE INDEX plans_one_default ON plans (is_default) WHERE is_default;

-- Prices of a plan, each from an instant until the next one. Rows are never changed. Written by
-- server/src/plans/rates-store.ts, the first of a plan by a trigger.
CREATE TABLE rates (
  -- rate-<32 hex>.
  id text PRIMARY KEY DEFAULT 'rate-' || replace(gen_random_uuid()::text, '-', '') CHECK (id ~ '^rate-[0-9a-f]{32}$'),
  -- Whose prices they are.
  plan_id text NOT NULL REFERENCES plans,
  -- They hold from then on. The first rate of a plan holds since the epoch, so that every instant has one.
  active_from timestamptz NOT NULL,
  -- Micros for one virtual processor for an hour.
  cpu_hour_micros bigint NOT NULL CHECK (cpu_hour_micros >= 0),
  -- Micros for one GiB of memory for an hour.
  memory_gb_hour_micros bigint NOT NULL CHECK (memory_gb_hour_micros >= 0),
  -- Micros for one GiB that machines send.
  egress_gb_micros bigint NOT NULL DEFAULT 0 CHECK (egress_gb_micros >= 0),
  -- Micros for one GiB in the registry for an hour.
  registry_gb_hour_micros bigint NOT NULL DEFAULT 0 CHECK (registry_gb_hour_micros >= 0),
  -- When it was made; before active_from, but for the first.
  created_at timestamptz NOT NULL,
  UNIQUE (plan_id, active_from)
);

-- The owners of machines, apps and keys. Written by server/src/tenants/store.ts only.
CREATE TABLE tenants (
  -- tenant-<32 hex>, or what its creator chose.
  id text PRIMARY KEY,
  -- Name for people; unique.
  name text NOT NULL UNIQUE,
  -- suspended: every call of the tenant is answered with 402.
  status text NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'suspended')),
  -- null: the default plan.
  plan_id text REFERENCES plans,
  -- The tenant's id in the operator's billing system.
  external_billing_id text,
  -- Instead of the plan's ceiling; null: the plan's.
  max_apps integer CHECK (max_apps >= 0),
  -- Instead of the plan's ceiling; null: the plan's.
  max_cpus integer CHECK (max_cpus >= 0),
  -- Instead of the plan's ceiling; null: the plan's.
  max_memory_mb bigint CHECK (max_memory_mb >= 0),
  -- Instead of the plan's ceiling; null: the plan's.
  max_disk_gb bigint CHECK (max_disk_gb >= 0),
  -- Whether its billing time can be moved. Chosen when it is created, and never changed.
  has_test_clock boolean NOT NULL DEFAULT false,
  -- How far its billing time is ahead of real time, in milliseconds. 0 without a test clock; never smaller
  -- than before.
  clock_ahead_ms bigint NOT NULL DEFAULT 0 CHECK (clock_ahead_ms >= 0),
  -- The id that the request which made it would have given it: a repetition has the same one.
  made_as text,
  -- When it was created.
  created_at timestamptz NOT NULL DEFAULT now(),
  -- When it was last changed.
  updated_at timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT only_test_clocks_move CHECK (has_test_clock OR clock_ahead_ms = 0)
);

-- Which plan a tenant was on, from an instant until the next row. Written by triggers of tenants and plans
-- only; rows are never changed.
CREATE TABLE tenant_plans (
  -- The tenant.
  tenant_id text NOT NULL REFERENCES tenants,
  -- Its own plan, or the one that was the default.
  plan_id text NOT NULL REFERENCES plans,
  -- The first row of a tenant holds since the epoch, so that every instant has one.
  active_from timestamptz NOT NULL,
  PRIMARY KEY (tenant_id, active_from)
);

-- How far the billing time of a tenant with a test clock is ahead, from an instant on. Rows are never
-- changed. Written by server/src/tenants/store.ts.
CREATE TABLE clock_advances (
  -- The tenant, which has a test clock.
  tenant_id text NOT NULL REFERENCES tenants,
  -- In real time. Not before that of a smaller ahead_ms, so billing time never goes back.
  active_from timestamptz NOT NULL,
  -- When the operator moved the clock, in real time; not before active_from.
  advanced_at timestamptz NOT NULL,
  -- Milliseconds.
  ahead_ms bigint NOT NULL CHECK (ahead_ms > 0),
  PRIMARY KEY (tenant_id, ahead_ms)
);

-- API keys, by hash. Written by server/src/apikeys/store.ts only.
CREATE TABLE api_keys (
  -- key-<32 hex>.
  id text PRIMARY KEY,
  -- The tenant whose resources the key reaches.
  tenant_id text NOT NULL REFERENCES tenants,
  -- SHA-256 of the key; the key itself is kept nowhere.
  key_hash bytea NOT NULL UNIQUE CHECK (octet_length(key_hash) = 32),
  -- What the key may do; see contract/src/scopes.ts.
  scopes text[] NOT NULL CHECK (cardinality(scopes) > 0),
  -- Text for people.
  description text,
  -- The id of the key that created it; null: the server at its first start.
  created_by text,
  -- When it was created.
  created_at timestamptz NOT NULL DEFAULT now(),
  -- From then on it is refused; null: never.
  expires_at timestamptz,
  -- Written in batches, a few seconds late.
  last_used_at timestamptz,
  -- From then on it is unknown. The row stays, so that what it created has a name.
  revoked_at timestamptz
);
-- Keys are purged some time after they were revoked or have expired.
CREATE INDEX api_keys_ended ON api_keys (least(revoked_at, expires_at))
  WHERE revoked_at IS NOT NULL OR expires_at IS NOT NULL;
CREATE INDEX api_keys_of_creator ON api_keys (created_by) WHERE created_by IS NOT NULL;
CREATE INDEX api_keys_of_tenant ON api_keys (tenant_id, created_at);

-- How many keys of the tenant are valid, counted under a lock on the tenant (the head of the machines' file
-- says why).
CREATE FUNCTION good_keys_locked(tenant text, at timestamptz) RETURNS integer LANGUAGE plpgsql AS $$
BEGIN
  PERFORM 1 FROM tenants WHERE id = tenant FOR NO KEY UPDATE;
  RETURN (SELECT count(*) FROM api_keys
    WHERE tenant_id = tenant AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > at));
END $$;

-- First answers to POSTs with an Idempotency-Key. Written by server/src/http/idempotency.ts only.
CREATE TABLE idempotency_keys (
  -- The API key that called.
  key_id text NOT NULL REFERENCES api_keys,
  -- What the caller sent.
  idempotency_key text NOT NULL,
  -- SHA-256 over method, path with query, and body of the first request.
  fingerprint bytea NOT NULL,
  -- Ids of what the request makes are made from it; kept when a request that was lost runs again.
  seed text NOT NULL DEFAULT '',
  -- The request that holds the lease.
  owner text NOT NULL,
  -- While it runs it renews this; past it the request counts as lost and may run again.
  lease_until timestamptz NOT NULL,
  -- HTTP status of the answer; null while the request runs.
  status integer,
  -- Headers and body, encrypted with a key that only the bearer of the API key has; null: not kept.
  answer bytea,
  -- When the first request came.
  created_at timestamptz NOT NULL DEFAULT now(),
  -- From then on it is forgotten.
  expires_at timestamptz NOT NULL,
  PRIMARY KEY (key_id, idempotency_key),
  CHECK (answer IS NULL OR status IS NOT NULL)
);
CREATE INDEX idempotency_keys_by_expiry ON idempotency_keys (expires_at);

-- Refuses every statement that it is a trigger of.
CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'rows of % are never changed', TG_TABLE_NAME;
END $$;

-- The billing time of a tenant at an instant of real time: the same instant, unless its test clock is ahead.
-- Every recorded interval calls it, and PL/pgSQL keeps the plan of its query for the connection.
CREATE FUNCTION billing_time(tenant text, real_at timestamptz) RETURNS timestamptz
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN real_at + coalesce((
    SELECT max(c.ahead_ms) FROM clock_advances c WHERE c.tenant_id = tenant AND c.active_from <= real_at), 0) * interval '1 millisecond';
END $$;

-- Test clocks only move forward, and only tenants that were created with one have it.
CREATE FUNCTION check_clock_advance() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NOT (SELECT t.has_test_clock FROM tenants t WHERE t.id = NEW.tenant_id)
    OR EXISTS (SELECT FROM clock_advances c WHERE c.tenant_id = NEW.tenant_id
      AND (c.ahead_ms >= NEW.ahead_ms OR c.active_from > NEW.active_from)) THEN
    RAISE EXCEPTION 'tenant % has no test clock, or it would be set back', NEW.tenant_id;
  END IF;
  RETURN NEW;
END $$;

-- Refuses to give, take or set back a test clock.
CREATE FUNCTION refuse_clock_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'tenant % cannot get or lose a test clock, and a test clock is never set back', OLD.id;
END $$;

CREATE TRIGGER clock_advances_checked BEFORE INSERT ON clock_advances
  FOR EACH ROW EXECUTE FUNCTION check_clock_advance();
CREATE TRIGGER clock_advances_immutable BEFORE DELETE OR UPDATE OR TRUNCATE ON clock_advances
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER tenants_clock BEFORE UPDATE OF has_test_clock, clock_ahead_ms ON tenants
  FOR EACH ROW WHEN (new.has_test_clock <> old.has_test_clock OR new.clock_ahead_ms < old.clock_ahead_ms)
  EXECUTE FUNCTION refuse_clock_change();
