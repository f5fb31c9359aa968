-- Nodes, the tokens with which they enter, machines, what happened to them and how long they ran.
--
-- What was asked (desired_…), what a node saw (observed_…) and what users see are kept apart: the first two are stored
-- here, the third is computed (server/src/machines/state.ts and view.ts).

CREATE TABLE nodes (
  id text PRIMARY KEY CHECK (id ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$'),
  address text NOT NULL,
  status text NOT NULL CHECK (status IN ('ready', 'draining', 'drained', 'unreachable', 'revoked')),
  credential_hash bytea CHECK (octet_length(credential_hash) = 32),
  labels jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(labels) = 'object'),
  runtime text,
  total_cpus integer NOT NULL DEFAULT 0 CHECK (total_cpus >= 0),
  total_memory_mb integer NOT NULL DEFAULT 0 CHECK (total_memory_mb >= 0),
  available_memory_mb integer NOT NULL DEFAULT 0 CHECK (available_memory_mb >= 0),
  used_memory_mb integer NOT NULL DEFAULT 0 CHECK (used_memory_mb >= 0),
  total_disk_gb integer NOT NULL DEFAULT 0 CHECK (total_disk_gb >= 0),
  available_disk_gb integer NOT NULL DEFAULT 0 CHECK (available_disk_gb >= 0),
  used_disk_gb integer NOT NULL DEFAULT 0 CHECK (used_disk_gb >= 0),
  used_cpus double precision NOT NULL DEFAULT 0 CHECK (used_cpus >= 0),
  agent_boot_id text,
  registered_at timestamptz NOT NULL,
  last_heartbeat_at timestamptz,
  CHECK ((status = 'revoked') = (credential_hash IS NULL))
);
COMMENT ON TABLE nodes IS 'Hosts that run machines. Written by server/src/nodes/store.ts only.';
COMMENT ON COLUMN nodes.id IS 'Chosen by the operator, or the host name.';
COMMENT ON COLUMN nodes.address IS 'Where the server reaches the node''s agent: unix:/path or http://host:port.';
COMMENT ON COLUMN nodes.status IS 'Stored, not computed: the node loop writes unreachable, a heartbeat ready.';
COMMENT ON COLUMN nodes.credential_hash IS 'SHA-256 of the credential the node calls with; null once it was revoked.';
COMMENT ON COLUMN nodes.labels IS 'The operator''s (from the join token) and the node''s own facts, such as arch and accelerator.';
COMMENT ON COLUMN nodes.runtime IS 'What runs machines there, in words.';
COMMENT ON COLUMN nodes.total_cpus IS 'Processors of the host.';
COMMENT ON COLUMN nodes.total_memory_mb IS 'Memory of the host in MiB.';
COMMENT ON COLUMN nodes.available_memory_mb IS 'Memory of the host that is free now.';
COMMENT ON COLUMN nodes.used_memory_mb IS 'Memory that its machines hold now.';
COMMENT ON COLUMN nodes.total_disk_gb IS 'Size in GiB of the disk that holds images and machines.';
COMMENT ON COLUMN nodes.available_disk_gb IS 'What is free of it.';
COMMENT ON COLUMN nodes.used_disk_gb IS 'What images and machines take of it.';
COMMENT ON COLUMN nodes.used_cpus IS 'Processors busy with machines, a mean over seconds.';
COMMENT ON COLUMN nodes.agent_boot_id IS 'One run of the node''s agent; its event sequence numbers count within it.';
COMMENT ON COLUMN nodes.registered_at IS 'When it first entered the cluster.';
COMMENT ON COLUMN nodes.last_heartbeat_at IS 'By the server''s clock; null: it has not reported yet.';
CREATE UNIQUE INDEX nodes_credential ON nodes (credential_hash);

CREATE TABLE join_tokens (
  prefix text PRIMARY KEY CHECK (prefix ~ '^[0-9a-f]{12}$'),
  token_hash bytea NOT NULL CHECK (octet_length(token_hash) = 32),
  description text,
  labels jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(labels) = 'object'),
  created_at timestamptz NOT NULL,
  expires_at timestamptz NOT NULL,
  max_uses integer NOT NULL CHECK (max_uses >= 1),
  uses integer NOT NULL DEFAULT 0 CHECK (uses >= 0 AND uses <= max_uses)
);
COMMENT ON TABLE join_tokens IS 'Tokens with which nodes enter the cluster, by hash. Written by server/src/tokens/store.ts only.';
COMMENT ON COLUMN join_tokens.prefix IS 'The part that is not secret and names the token.';
COMMENT ON COLUMN join_tokens.token_hash IS 'SHA-256 of the whole token.';
COMMENT ON COLUMN join_tokens.description IS 'For people.';
COMMENT ON COLUMN join_tokens.labels IS 'Given to every node that joins with it.';
COMMENT ON COLUMN join_tokens.created_at IS 'When it was created.';
COMMENT ON COLUMN join_tokens.expires_at IS 'From then on it is refused.';
COMMENT ON COLUMN join_tokens.max_uses IS 'How many nodes may enter with it.';
COMMENT ON COLUMN join_tokens.uses IS 'How many have.';

CREATE TABLE machines (
  id text PRIMARY KEY CHECK (id ~ '^mach-[0-9a-f]{32}$'),
  tenant_id text NOT NULL REFERENCES tenants (id),
  name text,
  source jsonb NOT NULL,
  network jsonb NOT NULL,
  env jsonb NOT NULL,
  command jsonb,
  ports jsonb NOT NULL,
  labels jsonb NOT NULL,
  workdir text,
  cpus integer NOT NULL CHECK (cpus >= 1),
  memory_mb integer NOT NULL CHECK (memory_mb >= 1),
  disk_gb integer NOT NULL CHECK (disk_gb >= 1),
  is_ephemeral boolean NOT NULL,
  is_public boolean NOT NULL,
  is_branchable boolean NOT NULL,
  auto_stop_seconds bigint CHECK (auto_stop_seconds >= 0),
  ttl_seconds bigint CHECK (ttl_seconds >= 0),
  created_by text,
  created_at timestamptz NOT NULL,
  updated_at timestamptz NOT NULL,

  desired_state text NOT NULL CHECK (desired_state IN ('running', 'stopped', 'absent')),
  generation integer NOT NULL CHECK (generation >= 1),
  desired_at timestamptz NOT NULL,
  node_id text REFERENCES nodes (id),
  error text,
  is_auto_started boolean NOT NULL DEFAULT false,
  has_run boolean NOT NULL DEFAULT false,

  observed_state text NOT NULL
    CHECK (observed_state IN ('absent', 'stopped', 'preparing', 'booting', 'running', 'stopping', 'failed')),
  observed_generation integer NOT NULL CHECK (observed_generation >= 0),
  observed_boot_id text,
  observed_reason text,
  observed_progress text,
  observed_host_ports jsonb NOT NULL DEFAULT '[]',
  observed_timings jsonb,
  ready_at timestamptz,

  revision integer NOT NULL CHECK (revision >= 1),
  reconcile_at timestamptz,
  last_activity_at timestamptz,
  deleted_at timestamptz,

  is_active boolean NOT NULL GENERATED ALWAYS AS (
    deleted_at IS NULL AND CASE desired_state
      WHEN 'running' THEN NOT (observed_state = 'failed' AND observed_generation = generation)
      ELSE observed_state IN ('preparing', 'booting', 'running', 'stopping')
    END
  ) STORED,

  CONSTRAINT running_needs_node CHECK (desired_state <> 'running' OR node_id IS NOT NULL),
  CONSTRAINT absent_iff_deleted CHECK ((desired_state = 'absent') = (deleted_at IS NOT NULL)),
  CONSTRAINT failed_has_reason CHECK (observed_state <> 'failed' OR observed_reason IS NOT NULL),
  CONSTRAINT ready_only_when_running CHECK (ready_at IS NULL OR observed_state = 'running')
) WITH (fillfactor = 80);
COMMENT ON TABLE machines IS 'What users own: what was asked (desired_…) and what a node saw (observed_…). Written by server/src/machines only.';
COMMENT ON COLUMN machines.id IS 'mach-<32 hex>.';
COMMENT ON COLUMN machines.tenant_id IS 'Its owner.';
COMMENT ON COLUMN machines.name IS 'Unique among the tenant''s machines that are not deleted.';
COMMENT ON COLUMN machines.source IS 'MachineSource of the contract.';
COMMENT ON COLUMN machines.network IS 'MachineNetwork of the contract.';
COMMENT ON COLUMN machines.env IS 'Environment of the machine and of every command in it.';
COMMENT ON COLUMN machines.command IS 'Argv that overrides the image''s entrypoint and command; null: the image''s.';
COMMENT ON COLUMN machines.ports IS 'Published ports as [{port}].';
COMMENT ON COLUMN machines.labels IS 'The owner''s labels.';
COMMENT ON COLUMN machines.workdir IS 'Null: the image''s.';
COMMENT ON COLUMN machines.cpus IS 'Virtual processors.';
COMMENT ON COLUMN machines.memory_mb IS 'Memory in MiB.';
COMMENT ON COLUMN machines.disk_gb IS 'Size in GiB of its sparse disk.';
COMMENT ON COLUMN machines.is_ephemeral IS 'Deleted once it has stopped.';
COMMENT ON COLUMN machines.is_public IS 'Whether its url needs no key.';
COMMENT ON COLUMN machines.is_branchable IS 'Whether it may be branched.';
COMMENT ON COLUMN machines.auto_stop_seconds IS 'Stop after this long without activity.';
COMMENT ON COLUMN machines.ttl_seconds IS 'Delete this long after creation.';
COMMENT ON COLUMN machines.created_by IS 'The id of the API key.';
COMMENT ON COLUMN machines.created_at IS 'When it was created.';
COMMENT ON COLUMN machines.updated_at IS 'When anything of it but its activity last changed.';
COMMENT ON COLUMN machines.desired_state IS 'What is wanted; generation grows with every change of it.';
COMMENT ON COLUMN machines.generation IS 'Grows with every change of what is wanted.';
COMMENT ON COLUMN machines.desired_at IS 'When desired_state last changed: transitional states have deadlines.';
COMMENT ON COLUMN machines.node_id IS 'The node with the machine''s disk; set by the first start, and kept.';
COMMENT ON COLUMN machines.error IS 'Why the server itself gave up on the last wish; the next start or stop clears it.';
COMMENT ON COLUMN machines.is_auto_started IS 'The last start was asked for by a command, not by a start call.';
COMMENT ON COLUMN machines.has_run IS 'It has been seen running since it was last asked to start.';
COMMENT ON COLUMN machines.observed_state IS 'What the node last reported.';
COMMENT ON COLUMN machines.observed_generation IS 'The generation the node acted on; 0: none.';
COMMENT ON COLUMN machines.observed_boot_id IS 'The incarnation that runs or ran last; null: none known.';
COMMENT ON COLUMN machines.observed_reason IS 'Why it failed.';
COMMENT ON COLUMN machines.observed_progress IS 'In words while it is being prepared.';
COMMENT ON COLUMN machines.observed_host_ports IS '[{port, hostPort}] as the node published them.';
COMMENT ON COLUMN machines.observed_timings IS 'Where the time of the last start went.';
COMMENT ON COLUMN machines.ready_at IS 'When the running boot became ready.';
COMMENT ON COLUMN machines.revision IS 'Grows with every write of the columns above: the fence of optimistic writers.';
COMMENT ON COLUMN machines.reconcile_at IS 'Not before this instant the machine reconciler looks at the row; null when nothing is to be done.';
COMMENT ON COLUMN machines.last_activity_at IS 'Activity of users; written in batches, outside the fence.';
COMMENT ON COLUMN machines.deleted_at IS 'Set by a delete; the row is kept for 30 days, so that usage stays readable.';
COMMENT ON COLUMN machines.is_active IS 'Whether it takes one of the plan''s places for running machines: isActive() of machines/state.ts, in SQL.';

CREATE UNIQUE INDEX machines_name ON machines (tenant_id, name) WHERE deleted_at IS NULL;
CREATE INDEX machines_list ON machines (tenant_id, created_at DESC, id DESC) WHERE deleted_at IS NULL;
CREATE INDEX machines_active ON machines (tenant_id) WHERE is_active;
CREATE INDEX machines_node ON machines (node_id);
CREATE INDEX machines_reconcile ON machines (reconcile_at) WHERE reconcile_at IS NOT NULL;
CREATE INDEX machines_deleted ON machines (deleted_at) WHERE deleted_at IS NOT NULL;

-- How many machines a tenant holds, and how many of them are active, counted under a lock on the tenant until the end
-- of the transaction. A volatile function sees what was committed while it waited for the lock, which a subquery of
-- the calling statement would not: so one statement can check a ceiling and take a place without a race.
CREATE FUNCTION held_machines_locked(tenant text) RETURNS integer LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  PERFORM 1 FROM tenants WHERE id = tenant FOR NO KEY UPDATE;
  RETURN (SELECT count(*) FROM machines WHERE tenant_id = tenant AND deleted_at IS NULL);
END $$;

CREATE FUNCTION active_machines_locked(tenant text) RETURNS integer LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  PERFORM 1 FROM tenants WHERE id = tenant FOR NO KEY UPDATE;
  RETURN (SELECT count(*) FROM machines WHERE tenant_id = tenant AND is_active);
END $$;

CREATE TABLE machine_events (
  sequence bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  id text NOT NULL UNIQUE,
  machine_id text NOT NULL REFERENCES machines (id) ON DELETE CASCADE,
  level text NOT NULL CHECK (level IN ('info', 'warn', 'error')),
  message text NOT NULL,
  created_at timestamptz NOT NULL,
  node_id text,
  agent_boot_id text,
  node_sequence bigint,
  CHECK ((node_id IS NULL) = (node_sequence IS NULL) AND (node_id IS NULL) = (agent_boot_id IS NULL))
);
COMMENT ON TABLE machine_events IS 'The timeline of each machine.';
COMMENT ON COLUMN machine_events.sequence IS 'The order of the timeline.';
COMMENT ON COLUMN machine_events.id IS 'ev-<32 hex>.';
COMMENT ON COLUMN machine_events.machine_id IS 'Whose timeline it is on.';
COMMENT ON COLUMN machine_events.level IS 'How much it matters.';
COMMENT ON COLUMN machine_events.message IS 'One plain sentence.';
COMMENT ON COLUMN machine_events.created_at IS 'When it happened.';
COMMENT ON COLUMN machine_events.node_id IS 'Of an event that a node reported: it is written once, however often it is reported.';
COMMENT ON COLUMN machine_events.agent_boot_id IS 'The run of the node''s agent that numbered it.';
COMMENT ON COLUMN machine_events.node_sequence IS 'Its number within that run.';
CREATE INDEX machine_events_timeline ON machine_events (machine_id, sequence);
CREATE UNIQUE INDEX machine_events_of_nodes ON machine_events (node_id, agent_boot_id, node_sequence)
  WHERE node_id IS NOT NULL;
CREATE INDEX machine_events_age ON machine_events (created_at);

CREATE TABLE machine_runs (
  boot_id text PRIMARY KEY,
  machine_id text NOT NULL REFERENCES machines (id) ON DELETE CASCADE,
  tenant_id text NOT NULL,
  cpus integer NOT NULL,
  memory_mb integer NOT NULL,
  started_at timestamptz NOT NULL,
  ended_at timestamptz,
  CHECK (ended_at IS NULL OR ended_at >= started_at)
);
COMMENT ON TABLE machine_runs IS 'One row for each boot that ran: what uptime is computed from.';
COMMENT ON COLUMN machine_runs.boot_id IS 'One incarnation of a machine.';
COMMENT ON COLUMN machine_runs.machine_id IS 'Which machine ran.';
COMMENT ON COLUMN machine_runs.tenant_id IS 'Its owner.';
COMMENT ON COLUMN machine_runs.cpus IS 'As the machine had them.';
COMMENT ON COLUMN machine_runs.memory_mb IS 'As the machine had it.';
COMMENT ON COLUMN machine_runs.started_at IS 'When it was ready.';
COMMENT ON COLUMN machine_runs.ended_at IS 'Null while it runs.';
CREATE INDEX machine_runs_machine ON machine_runs (machine_id, started_at);
CREATE INDEX machine_runs_open ON machine_runs (machine_id) WHERE ended_at IS NULL;

CREATE TABLE machine_exec_months (
  machine_id text NOT NULL REFERENCES machines (id) ON DELETE CASCADE,
  month date NOT NULL,
  exec_count bigint NOT NULL CHECK (exec_count >= 0),
  exec_duration_ms bigint NOT NULL CHECK (exec_duration_ms >= 0),
  PRIMARY KEY (machine_id, month)
);
COMMENT ON TABLE machine_exec_months IS 'Commands run in a machine, by calendar month; written in batches.';
COMMENT ON COLUMN machine_exec_months.machine_id IS 'Which machine.';
COMMENT ON COLUMN machine_exec_months.month IS 'First day of the month in UTC.';
COMMENT ON COLUMN machine_exec_months.exec_count IS 'How many commands ended.';
COMMENT ON COLUMN machine_exec_months.exec_duration_ms IS 'How long they took together.';
