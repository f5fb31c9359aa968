-- Pools of started machines that wait to be claimed.
CREATE TABLE pools (
  id text PRIMARY KEY,
  tenant_id text NOT NULL REFERENCES tenants (id),
  created_by text NOT NULL,
  image text NOT NULL,
  cpus integer CHECK (cpus > 0),
  memory_mb integer CHECK (memory_mb > 0),
  has_network boolean NOT NULL,
  max_idle_seconds bigint CHECK (max_idle_seconds > 0),
  target_size integer NOT NULL CHECK (target_size >= 0),
  error text,
  failures integer NOT NULL DEFAULT 0 CHECK (failures >= 0),
  retry_at timestamptz,
  created_at timestamptz NOT NULL,
  deleted_at timestamptz
);
CREATE INDEX pools_by_tenant ON pools (tenant_id, created_at, id);
COMMENT ON TABLE pools IS 'Pools of started machines that wait to be claimed.';
COMMENT ON COLUMN pools.id IS 'pool-<32 hex>.';
COMMENT ON COLUMN pools.tenant_id IS 'Whose machines they are, and who claims them.';
COMMENT ON COLUMN pools.created_by IS 'The API key that made it: what waiting machines cost is attributed to it.';
COMMENT ON COLUMN pools.image IS 'The image reference of its machines.';
COMMENT ON COLUMN pools.cpus IS 'Processors of each machine; null: the default.';
COMMENT ON COLUMN pools.memory_mb IS 'Memory of each machine, in MiB; null: the default.';
COMMENT ON COLUMN pools.has_network IS 'Whether its machines reach the network.';
COMMENT ON COLUMN pools.max_idle_seconds IS 'A machine that has waited longer is replaced; null: never.';
COMMENT ON COLUMN pools.target_size IS 'How many machines wait.';
COMMENT ON COLUMN pools.error IS 'Why the last machine could not be made or started; null: it could.';
COMMENT ON COLUMN pools.failures IS 'How many times in a row no machine could be made or started.';
COMMENT ON COLUMN pools.retry_at IS 'After an error: no machine is made before.';
COMMENT ON COLUMN pools.created_at IS 'When it was created.';
COMMENT ON COLUMN pools.deleted_at IS 'When it was deleted; the row stays until its waiting machines are deleted.';

CREATE TABLE pool_machines (
  machine_id text PRIMARY KEY,
  pool_id text NOT NULL REFERENCES pools (id) ON DELETE CASCADE,
  created_at timestamptz NOT NULL,
  claimed_at timestamptz,
  claim_id text UNIQUE,
  discarded_at timestamptz,
  CHECK (claimed_at IS NULL OR discarded_at IS NULL),
  CHECK (claim_id IS NULL OR claimed_at IS NOT NULL)
);
CREATE INDEX pool_machines_by_pool ON pool_machines (pool_id, created_at);
COMMENT ON TABLE pool_machines IS 'The machines of pools: those that wait, those that were claimed and still exist, and those to delete.';
COMMENT ON COLUMN pool_machines.machine_id IS 'The machine; the row is written before the machine is made.';
COMMENT ON COLUMN pool_machines.pool_id IS 'Its pool.';
COMMENT ON COLUMN pool_machines.created_at IS 'When the row was written.';
COMMENT ON COLUMN pool_machines.claimed_at IS 'When it was claimed, or first used without a claim: the pool does not touch it any more.';
COMMENT ON COLUMN pool_machines.claim_id IS 'Recognizes a repeated claim.';
COMMENT ON COLUMN pool_machines.discarded_at IS 'When the pool decided to delete it, unused.';
