-- Branches: instants of machines from which other machines are made, those of them that are kept, and leases
-- on such machines.

-- Branch points: a machine's disk at one instant, with or without its memory, on the node that had the
-- machine. Written by server/src/branches only.
CREATE TABLE branch_points (
  -- point-<32 hex>.
  id text PRIMARY KEY CHECK (id ~ '^point-[0-9a-f]{32}$'),
  -- The owner of the machine.
  tenant_id text NOT NULL REFERENCES tenants,
  -- The operation that has it made: for machines, or for a checkpoint.
  operation_id text NOT NULL,
  -- The machine. It may be gone.
  machine_id text NOT NULL,
  -- The node that has its files.
  node_id text NOT NULL REFERENCES nodes ON DELETE CASCADE,
  -- Whether it has the machine's memory.
  has_memory boolean NOT NULL,
  -- Space that its disk takes beside those of earlier points; null: the node has not made it yet.
  disk_bytes bigint CHECK (disk_bytes >= 0),
  -- Space that its memory takes; null: as above.
  memory_bytes bigint CHECK (memory_bytes >= 0),
  -- How long the machine was paused for it, in milliseconds; null: as above.
  paused_ms double precision CHECK (paused_ms >= 0),
  -- When the row was written, before the node was asked.
  created_at timestamptz NOT NULL,
  -- The instant, by the clock of the node; null: the node has not made it yet.
  made_at timestamptz,
  -- Whether making it was interrupted, so that the operation uses another one.
  is_replaced boolean NOT NULL DEFAULT false,
  -- Whether it is a copy of the point of its operation, for machines that begin on another node.
  is_copy boolean NOT NULL DEFAULT false
);
-- An operation uses one at a time, and one copy of it on each other node.
CREATE UNIQUE INDEX branch_points_of_operation ON branch_points (operation_id) WHERE NOT is_replaced AND NOT is_copy;
CREATE UNIQUE INDEX branch_points_copies ON branch_points (operation_id, node_id) WHERE is_copy;
CREATE INDEX branch_points_of_node ON branch_points (node_id);

-- Checkpoints: points that their owner keeps, also after the machine is gone. Written by server/src/branches
-- only.
CREATE TABLE checkpoints (
  -- ckpt-<32 hex>.
  id text PRIMARY KEY CHECK (id ~ '^ckpt-[0-9a-f]{32}$'),
  -- The owner of the machine.
  tenant_id text NOT NULL REFERENCES tenants,
  -- Unique among the tenant's checkpoints; null: it has none.
  name text,
  -- The machine. It may be gone.
  machine_id text NOT NULL,
  -- The point; null: it is lost with its node, which has left for good.
  point_id text REFERENCES branch_points ON DELETE SET NULL,
  -- What the machine was made with: KeptMachine of server/src/machines/create.ts.
  machine jsonb NOT NULL,
  -- Its secret variables, encrypted as those of machines; null: none.
  secret_env bytea,
  -- Whether it has the machine's memory.
  has_memory boolean NOT NULL,
  -- When it was asked for.
  created_at timestamptz NOT NULL
);
CREATE UNIQUE INDEX checkpoints_name ON checkpoints (tenant_id, name) WHERE name IS NOT NULL;
CREATE UNIQUE INDEX checkpoints_of_point ON checkpoints (point_id) WHERE point_id IS NOT NULL;
CREATE INDEX checkpoints_list ON checkpoints (tenant_id, created_at, id);

-- Leases: each is a branch of a machine that is made for a task and ends with it. Written by
-- server/src/leases only.
CREATE TABLE leases (
  -- The tenant that asked for it.
  tenant_id text NOT NULL REFERENCES tenants,
  -- The name that the caller gave it.
  id text NOT NULL,
  -- The operation that makes the branch.
  operation_id text NOT NULL,
  -- The branch; there is none yet while it is being made.
  machine_id text NOT NULL,
  -- Whether the branch may be there: false when it was deleted after the end of the lease.
  has_machine boolean NOT NULL DEFAULT true,
  -- assigning: it is being made. ready: it works. completed: it has ended, and its machine is deleted.
  state text NOT NULL CHECK (state IN ('assigning', 'ready', 'completed')),
  -- SHA-256 of the owner's token.
  owner_hash bytea NOT NULL,
  -- Its owner says at least this often that it works; null: it need not.
  heartbeat_seconds bigint CHECK (heartbeat_seconds > 0),
  -- When it last did, by the clock of the database, as all times here.
  heartbeat_at timestamptz NOT NULL DEFAULT now(),
  -- When it ends at the latest; null: when its owner says so.
  expires_at timestamptz,
  -- Why it ended, as contract/src/branches.ts says; null: it has not.
  reason text,
  -- How well the task went, as its owner said.
  score double precision,
  -- What came of the task, as its owner said: JSON, as a text because jsonb holds no NUL.
  result text,
  -- When it was asked for.
  created_at timestamptz NOT NULL DEFAULT now(),
  -- When it ended; null: it has not. The row is kept for 30 days more.
  ended_at timestamptz,
  PRIMARY KEY (tenant_id, id),
  CHECK ((state = 'completed') = (ended_at IS NOT NULL) AND (state = 'completed') = (reason IS NOT NULL))
);
CREATE INDEX leases_open ON leases (created_at) WHERE ended_at IS NULL;
CREATE INDEX leases_left ON leases (ended_at) WHERE ended_at IS NOT NULL AND has_machine;
CREATE INDEX leases_ended ON leases (ended_at) WHERE ended_at IS NOT NULL;
