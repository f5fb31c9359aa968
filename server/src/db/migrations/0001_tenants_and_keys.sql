-- The cluster, tenants and their plans, API keys, and the memory of idempotency keys.

CREATE TABLE cluster (
  id text NOT NULL,
  is_only_row boolean PRIMARY KEY DEFAULT true CHECK (is_only_row),
  created_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE cluster IS 'One row: the identity of this cluster.';
COMMENT ON COLUMN cluster.id IS 'Random, made once; shown by /health.';
COMMENT ON COLUMN cluster.is_only_row IS 'Always true, so that a second row cannot exist.';
COMMENT ON COLUMN cluster.created_at IS 'When the database was first set up.';
INSERT INTO cluster (id) VALUES (replace(gen_random_uuid()::text, '-', ''));

CREATE TABLE plans (
  id text PRIMARY KEY,
  name text NOT NULL UNIQUE,
  is_default boolean NOT NULL DEFAULT false,
  budget_policy text NOT NULL DEFAULT 'none' CHECK (budget_policy IN ('none', 'notify', 'block', 'stop')),
  max_apps integer NOT NULL CHECK (max_apps >= 0),
  max_cpus integer NOT NULL CHECK (max_cpus >= 0),
  max_memory_mb bigint NOT NULL CHECK (max_memory_mb >= 0),
  max_disk_gb bigint NOT NULL CHECK (max_disk_gb >= 0),
  max_machines integer NOT NULL CHECK (max_machines >= 0),
  max_concurrent_machines integer NOT NULL CHECK (max_concurrent_machines >= 0),
  rate_cpu_hour_micros bigint NOT NULL DEFAULT 0 CHECK (rate_cpu_hour_micros >= 0),
  rate_memory_gb_hour_micros bigint NOT NULL DEFAULT 0 CHECK (rate_memory_gb_hour_micros >= 0),
  rate_exec_micros bigint NOT NULL DEFAULT 0 CHECK (rate_exec_micros >= 0),
  rate_requests_per_second integer NOT NULL DEFAULT 200 CHECK (rate_requests_per_second >= 1),
  rate_burst integer NOT NULL DEFAULT 1000 CHECK (rate_burst >= 1),
  max_egress_gb bigint CHECK (max_egress_gb >= 0),
  monthly_budget_micros bigint CHECK (monthly_budget_micros >= 0),
  created_at timestamptz NOT NULL DEFAULT now()
);
CREATE UNIQUE INDEX plans_one_default ON plans (is_default) WHERE is_default;
COMMENT ON TABLE plans IS 'Ceilings and per-unit rates that tenants have. Written by server/src/plans/store.ts only.';
COMMENT ON COLUMN plans.id IS 'plan-<32 hex>, or what its creator chose.';
COMMENT ON COLUMN plans.name IS 'Named in refusals over a ceiling.';
COMMENT ON COLUMN plans.is_default IS 'The plan of tenants that name none; exactly one has it.';
COMMENT ON COLUMN plans.budget_policy IS 'What happens when the monthly budget is used up.';
COMMENT ON COLUMN plans.max_apps IS 'Apps a tenant may have.';
COMMENT ON COLUMN plans.max_cpus IS 'Processors of one machine.';
COMMENT ON COLUMN plans.max_memory_mb IS 'Memory of one machine in MiB.';
COMMENT ON COLUMN plans.max_disk_gb IS 'Disk of one machine in GiB.';
COMMENT ON COLUMN plans.max_machines IS 'Machines a tenant may have, in any state.';
COMMENT ON COLUMN plans.max_concurrent_machines IS 'Machines that may be started or creating at once.';
COMMENT ON COLUMN plans.rate_cpu_hour_micros IS 'Price of one processor for an hour in millionths of the currency.';
COMMENT ON COLUMN plans.rate_memory_gb_hour_micros IS 'Price of one GiB of memory for an hour in millionths.';
COMMENT ON COLUMN plans.rate_exec_micros IS 'Price of one exec in millionths.';
COMMENT ON COLUMN plans.rate_requests_per_second IS 'Refill of the tenant''s token bucket.';
COMMENT ON COLUMN plans.rate_burst IS 'Size of the tenant''s token bucket.';
COMMENT ON COLUMN plans.max_egress_gb IS 'Traffic out of machines per month; null: no ceiling.';
COMMENT ON COLUMN plans.monthly_budget_micros IS 'Budget per calendar month; null: none.';
COMMENT ON COLUMN plans.created_at IS 'When it was created.';

INSERT INTO plans (id, name, is_default, max_apps, max_cpus, max_memory_mb, max_disk_gb, max_machines, max_concurrent_machines)
VALUES
  ('plan-' || replace(gen_random_uuid()::text, '-', ''), 'default', true, 1000, 64, 1048576, 16384, 10000, 1000),
  ('plan-' || replace(gen_random_uuid()::text, '-', ''), 'standard', false, 20, 8, 32768, 1024, 20, 20);

CREATE TABLE tenants (
  id text PRIMARY KEY,
  name text NOT NULL UNIQUE,
  status text NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'suspended')),
  plan_id text REFERENCES plans (id),
  external_billing_id text,
  max_apps integer CHECK (max_apps >= 0),
  max_cpus integer CHECK (max_cpus >= 0),
  max_memory_mb bigint CHECK (max_memory_mb >= 0),
  max_disk_gb bigint CHECK (max_disk_gb >= 0),
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE tenants IS 'Who owns machines, apps and keys. Written by server/src/tenants/store.ts only.';
COMMENT ON COLUMN tenants.id IS 'tenant-<32 hex>, or what its creator chose.';
COMMENT ON COLUMN tenants.name IS 'For people; unique.';
COMMENT ON COLUMN tenants.status IS 'suspended: every call of the tenant is answered with 402.';
COMMENT ON COLUMN tenants.plan_id IS 'null: the default plan.';
COMMENT ON COLUMN tenants.external_billing_id IS 'The tenant''s id in the operator''s billing system.';
COMMENT ON COLUMN tenants.max_apps IS 'Instead of the plan''s ceiling; null: the plan''s.';
COMMENT ON COLUMN tenants.max_cpus IS 'Instead of the plan''s ceiling; null: the plan''s.';
COMMENT ON COLUMN tenants.max_memory_mb IS 'Instead of the plan''s ceiling; null: the plan''s.';
COMMENT ON COLUMN tenants.max_disk_gb IS 'Instead of the plan''s ceiling; null: the plan''s.';
COMMENT ON COLUMN tenants.created_at IS 'When it was created.';
COMMENT ON COLUMN tenants.updated_at IS 'When it was last changed.';

INSERT INTO tenants (id, name) VALUES ('tenant-' || replace(gen_random_uuid()::text, '-', ''), 'default');

CREATE TABLE api_keys (
  id text PRIMARY KEY,
  tenant_id text NOT NULL REFERENCES tenants (id),
  key_hash bytea NOT NULL UNIQUE CHECK (octet_length(key_hash) = 32),
  scopes text[] NOT NULL CHECK (cardinality(scopes) > 0),
  description text,
  created_by text,
  created_at timestamptz NOT NULL DEFAULT now(),
  expires_at timestamptz,
  last_used_at timestamptz,
  revoked_at timestamptz
);
CREATE INDEX api_keys_of_tenant ON api_keys (tenant_id, created_at);
COMMENT ON TABLE api_keys IS 'API keys, by hash. Written by server/src/apikeys/store.ts only.';
COMMENT ON COLUMN api_keys.id IS 'key-<32 hex>.';
COMMENT ON COLUMN api_keys.tenant_id IS 'The tenant whose resources the key reaches.';
COMMENT ON COLUMN api_keys.key_hash IS 'SHA-256 of the key; the key itself is kept nowhere.';
COMMENT ON COLUMN api_keys.scopes IS 'What the key may do; see contract/src/scopes.ts.';
COMMENT ON COLUMN api_keys.description IS 'For people.';
COMMENT ON COLUMN api_keys.created_by IS 'The id of the key that created it; null: the server at its first start.';
COMMENT ON COLUMN api_keys.created_at IS 'When it was created.';
COMMENT ON COLUMN api_keys.expires_at IS 'From then on it is refused; null: never.';
COMMENT ON COLUMN api_keys.last_used_at IS 'Written in batches, a few seconds late.';
COMMENT ON COLUMN api_keys.revoked_at IS 'From then on it is unknown. The row stays, so that what it created has a name.';

CREATE TABLE idempotency_keys (
  key_id text NOT NULL REFERENCES api_keys (id),
  idempotency_key text NOT NULL,
  fingerprint bytea NOT NULL,
  owner text NOT NULL,
  lease_until timestamptz NOT NULL,
  status integer,
  answer bytea,
  created_at timestamptz NOT NULL DEFAULT now(),
  expires_at timestamptz NOT NULL,
  PRIMARY KEY (key_id, idempotency_key),
  CHECK (answer IS NULL OR status IS NOT NULL)
);
CREATE INDEX idempotency_keys_by_expiry ON idempotency_keys (expires_at);
COMMENT ON TABLE idempotency_keys IS 'First answers to POSTs with an Idempotency-Key. Written by server/src/http/idempotency.ts only.';
COMMENT ON COLUMN idempotency_keys.key_id IS 'The API key that called.';
COMMENT ON COLUMN idempotency_keys.idempotency_key IS 'What the caller sent.';
COMMENT ON COLUMN idempotency_keys.fingerprint IS 'SHA-256 over method, path with query, and body of the first request.';
COMMENT ON COLUMN idempotency_keys.owner IS 'The request that holds the lease.';
COMMENT ON COLUMN idempotency_keys.lease_until IS 'While it runs it renews this; past it the request counts as lost and may run again.';
COMMENT ON COLUMN idempotency_keys.status IS 'HTTP status of the answer; null while the request runs.';
COMMENT ON COLUMN idempotency_keys.answer IS 'Headers and body, encrypted with a key that only the bearer of the API key has; null: not kept.';
COMMENT ON COLUMN idempotency_keys.created_at IS 'When the first request came.';
COMMENT ON COLUMN idempotency_keys.expires_at IS 'From then on it is forgotten.';
