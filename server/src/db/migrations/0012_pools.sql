-- Pools: started machines that wait to be claimed.

-- The pools.
CREATE TABLE pools (
  -- pool-<32 hex>.
  id text PRIMARY KEY,
  -- Whose machines they are, and who claims them.
  tenant_id text NOT NULL REFERENCES tenants,
  -- The image reference of its machines.
  image text NOT NULL,
  -- Processors of each machine; null: the default.
  cpus integer CHECK (cpus > 0),
  -- Memory of each machine, in MiB; null: the default.
  memory_mb integer CHECK (memory_mb > 0),
  -- Whether its machines reach the network.
  has_network boolean NOT NULL,
  -- How many machines wait.
  target_size integer NOT NULL CHECK (target_size >= 0),
  -- A machine that has waited longer is replaced; null: never.
  max_idle_seconds bigint CHECK (max_idle_seconds > 0),
  -- How many times in a row no machine could be made or started.
  failures integer NOT NULL DEFAULT 0 CHECK (failures >= 0),
  -- Why the last machine could not be made or started; null: it could.
  error text,
  -- After an error: no machine is made before.
  retry_at timestamptz,
  -- The API key that made it: what waiting machines cost is attributed to it.
  created_by text NOT NULL,
  -- When it was created.
  created_at timestamptz NOT NULL,
  -- When it was deleted; the row stays until its waiting machines are deleted.
  deleted_at timestamptz
);
CREATE INDEX pools_by_tenant ON pools (tenant_id, created_at, id);

-- Machines that were claimed from pools, or first used without a claim: a pool does not touch them any more.
-- A row is deleted after its machine.
CREATE TABLE pool_claims (
  -- The machine. Made for the claim if none waited; then the row is written before the machine is made.
  machine_id text PRIMARY KEY,
  -- Its pool.
  pool_id text NOT NULL REFERENCES pools ON DELETE CASCADE,
  -- When it was claimed or first used.
  claimed_at timestamptz NOT NULL,
  -- Recognizes a repeated claim; null: it was used without one.
  claim_id text UNIQUE
);
CREATE INDEX pool_claims_of_pool ON pool_claims (pool_id);
