-- Pools of prepared VMs without an owner, from which every tenant claims.

CREATE TABLE shared_pools (
  id text PRIMARY KEY,
  created_by text NOT NULL,
  image text NOT NULL,
  cpus integer CHECK (cpus > 0),
  memory_mb integer CHECK (memory_mb > 0),
  has_network boolean NOT NULL,
  target_size integer NOT NULL CHECK (target_size >= 0),
  created_at timestamptz NOT NULL
);
COMMENT ON TABLE shared_pools IS 'Pools of prepared VMs without an owner, from which every tenant claims a machine of its own.';
COMMENT ON COLUMN shared_pools.id IS 'pool-<32 hex>.';
COMMENT ON COLUMN shared_pools.created_by IS 'The API key that made it.';
COMMENT ON COLUMN shared_pools.image IS 'The image reference of the machines that are claimed.';
COMMENT ON COLUMN shared_pools.cpus IS 'Processors of each machine; null: the default.';
COMMENT ON COLUMN shared_pools.memory_mb IS 'Memory of each machine, in MiB; null: the default.';
COMMENT ON COLUMN shared_pools.has_network IS 'Whether the machines reach the network.';
COMMENT ON COLUMN shared_pools.target_size IS 'How many VMs wait, on all nodes together.';
COMMENT ON COLUMN shared_pools.created_at IS 'When it was created.';

ALTER TABLE nodes ADD COLUMN reserve jsonb;
COMMENT ON COLUMN nodes.reserve IS
  'The prepared VMs that wait there for shared pools, as in its last heartbeat: a list of image, size, number and what is in the way. null: it keeps none, or has an earlier version.';
