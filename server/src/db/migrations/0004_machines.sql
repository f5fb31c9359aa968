-- Machines, how a start takes its share of a tenant's ceilings and of a node, and what belongs to one
-- machine: sessions, connect tokens, its share link.
--
-- What was asked (desired_…), what a node saw (observed_…) and what users see are kept apart: the first two
-- are stored here, the third is computed (server/src/machines/state.ts and view.ts).
--
-- A function …_locked counts or decides under a lock on the row of a tenant, machine or node until the end of
-- the transaction. It is volatile, so it sees what was committed while it waited for the lock, which a
-- subquery of the calling statement does not: one statement can check a ceiling and take a place without a
-- race.

-- What users own: what was asked (desired_…) and what a node saw (observed_…). Written by server/src/machines
-- only.
CREATE TABLE machines (
  -- mach-<32 hex>.
  id text PRIMARY KEY CHECK (id ~ '^mach-[0-9a-f]{32}$'),
  -- Its owner.
  tenant_id text NOT NULL REFERENCES tenants,
  -- Unique among the tenant's machines that are not deleted; null: it has none.
  name text,
  -- MachineSource of the contract.
  source jsonb NOT NULL,
  -- MachineNetwork of the contract.
  network jsonb NOT NULL,
  -- Environment of the machine and of every command in it.
  env jsonb NOT NULL,
  -- Argv that overrides the image's entrypoint and command; null: the image's.
  command jsonb,
  -- Published ports as [{port}].
  ports jsonb NOT NULL,
  -- The owner's labels.
  labels jsonb NOT NULL,
  -- Null: the image's.
  workdir text,
  -- Secret variables, encrypted with a key that is not in the database (server/src/secrets.ts), and never
  -- shown; null: none.
  secret_env bytea,
  -- Their names, which are shown.
  secret_names text[] NOT NULL DEFAULT '{}',
  -- Virtual processors.
  cpus integer NOT NULL CHECK (cpus >= 1),
  -- Memory in MiB.
  memory_mb integer NOT NULL CHECK (memory_mb >= 1),
  -- Size in GiB of its sparse disk.
  disk_gb integer NOT NULL CHECK (disk_gb >= 1),
  -- Deleted once it has stopped.
  is_ephemeral boolean NOT NULL,
  -- Whether its url needs no key.
  is_public boolean NOT NULL,
  -- Whether it may be branched.
  is_branchable boolean NOT NULL,
  -- Stop after this long without activity.
  auto_stop_seconds bigint CHECK (auto_stop_seconds >= 0),
  -- End this long after creation.
  ttl_seconds bigint CHECK (ttl_seconds >= 0),
  -- What the end is: the machine is deleted in any state, or suspended or stopped while it runs.
  at_end text NOT NULL DEFAULT 'delete' CHECK (at_end IN ('delete', 'suspend', 'stop')),
  -- Whether it is started again when its VM ends without being asked or its host goes down.
  restart text NOT NULL DEFAULT 'always' CHECK (restart IN ('always', 'never')),
  -- When it moves to another node while it runs: its memory moves too where possible, it boots there, or it
  -- is stopped and stays so.
  disruption text NOT NULL DEFAULT 'migrate' CHECK (disruption IN ('migrate', 'restart', 'stop')),
  -- Labels that the node on which the machine is placed must have, with their values.
  node_labels jsonb NOT NULL DEFAULT '{}',
  -- How its node checks whether it does its work: MachineHealthCheck of contract/src/link; null: it does not.
  -- Only machines that an app owns have one.
  health jsonb,
  -- Commands that it runs at moments of its life: MachineHooks of contract/src/hooks.ts; null: none. A branch
  -- of it has the same.
  hooks jsonb,
  -- The branch of another machine that it begins as: MachineOrigin of server/src/machines/record.ts; null: it
  -- begins with an image.
  origin jsonb,
  -- The id of the API key.
  created_by text,
  -- When it was created.
  created_at timestamptz NOT NULL,
  -- When anything of it but its activity last changed.
  updated_at timestamptz NOT NULL,
  -- The state that was requested; generation grows with every change of it.
  desired_state text NOT NULL CHECK (desired_state IN ('running', 'stopped', 'absent')),
  -- Counts the changes of the desired state.
  generation integer NOT NULL CHECK (generation >= 1),
  -- When desired_state last changed: transitional states have deadlines.
  desired_at timestamptz NOT NULL,
  -- While it is to be stopped: whether its node suspends it and keeps its memory. Otherwise its node discards
  -- memory.
  keeps_memory boolean NOT NULL DEFAULT false,
  -- The node that owns its disk, and the only one on which it may run; null until its first start. Only a
  -- move changes it.
  node_id text REFERENCES nodes,
  -- Why the server itself abandoned the last request; the next start or stop clears it.
  error text,
  -- The last start was asked for by a command, not by a start call.
  is_auto_started boolean NOT NULL DEFAULT false,
  -- The API key whose call, or whose command, last started it; null: none has.
  started_by text,
  -- It has been seen running since it was last asked to start.
  has_run boolean NOT NULL DEFAULT false,
  -- What the node last reported.
  observed_state text NOT NULL
    CHECK (observed_state IN ('absent', 'stopped', 'preparing', 'booting', 'running', 'stopping', 'failed')),
  -- The generation the node acted on; 0: none.
  observed_generation integer NOT NULL CHECK (observed_generation >= 0),
  -- The incarnation that runs or ran last; null: none known.
  observed_boot_id text,
  -- Why it failed.
  observed_reason text,
  -- What observed_reason says of the image, for programs; null: nothing, or another start may succeed.
  observed_reason_code text
    CHECK (observed_reason_code IN (
      'image_not_found', 'image_refused', 'image_not_allowed', 'image_wrong_platform', 'image_not_cached')),
  -- Fields of the newest report that have no column, as ObservedMachine in contract/src/link names them.
  observed_details jsonb NOT NULL DEFAULT '{}',
  -- When the running boot became ready.
  ready_at timestamptz,
  -- on: another machine may replace it, so its VM ends while its node is cut off. lifting: it was given to a
  -- user, and its node may not know yet. Null: it is not fenced.
  fence text CHECK (fence IN ('on', 'lifting')),
  -- The operation that moves it; null: none. While it is set the node receives stopped, whatever is desired.
  -- Moves are columns of this row, because its revision fences them: a statement that waited for the row's
  -- lock reads the newest row, but rows of another table as they were before it waited.
  move_id text,
  -- The node to which it moves; null exactly when move_id is.
  move_node_id text,
  -- While it is to run and move_id is set: whether it is to be stopped when the move is complete. A move that
  -- fails lets it run again.
  move_stops boolean NOT NULL DEFAULT false,
  -- The operation of its last completed move; null: it never moved.
  moved_by text,
  -- Grows with every write of the columns above: the fence of optimistic writers.
  revision integer NOT NULL CHECK (revision >= 1),
  -- Not before this instant the machine reconciler looks at the row; null when nothing is to be done.
  reconcile_at timestamptz,
  -- Activity of users; written in batches, outside the fence.
  last_activity_at timestamptz,
  -- Set by a delete; the row is kept for 30 days, so that usage stays readable.
  deleted_at timestamptz,
  -- Whether it takes one of the plan's places for running machines: isActive() of machines/state.ts, in SQL.
  is_active boolean GENERATED ALWAYS AS (
    deleted_at IS NULL AND CASE desired_state
      WHEN 'running' THEN NOT (observed_state = 'failed' AND observed_generation = generation)
      ELSE observed_state IN ('preparing', 'booting', 'running', 'stopping')
    END
  ) STORED NOT NULL,
  -- GiB of its plan's disk that it takes: its disk, and its memory while it is suspended.
  held_disk_gb integer GENERATED ALWAYS AS (
    disk_gb + CASE WHEN keeps_memory AND desired_state = 'stopped' THEN (memory_mb + 1023) / 1024 ELSE 0 END
  ) STORED NOT NULL,
  CONSTRAINT absent_iff_deleted CHECK ((desired_state = 'absent') = (deleted_at IS NOT NULL)),
  CONSTRAINT failed_has_reason CHECK (observed_state <> 'failed' OR observed_reason IS NOT NULL),
  CONSTRAINT move_has_target CHECK ((move_id IS NULL) = (move_node_id IS NULL)),
  CONSTRAINT ready_only_when_running CHECK (ready_at IS NULL OR observed_state = 'running'),
  CONSTRAINT running_needs_node CHECK (desired_state <> 'running' OR node_id IS NOT NULL)
) WITH (fillfactor = 80);
-- With the columns that are summed, so that a sum need not read the machines themselves.
CREATE INDEX machines_active ON machines (tenant_id) INCLUDE (cpus, memory_mb) WHERE is_active;
CREATE INDEX machines_arriving ON machines (move_node_id)
  INCLUDE (cpus, memory_mb)
  WHERE is_active AND move_node_id IS NOT NULL AND NOT move_stops;
CREATE INDEX machines_auto_stop ON machines (id) WHERE auto_stop_seconds > 0 AND desired_state = 'running';
CREATE INDEX machines_branches ON machines ((origin ->> 'machineId')) WHERE origin IS NOT NULL;
-- Machines whose fence is to be lifted are few, and looked for often.
CREATE INDEX machines_by_fence ON machines (fence, id) WHERE fence IS NOT NULL;
CREATE INDEX machines_deleted ON machines (deleted_at) WHERE deleted_at IS NOT NULL;
-- The list of a tenant, and the sum of the disks.
CREATE INDEX machines_list ON machines (tenant_id, created_at DESC, id DESC)
  INCLUDE (held_disk_gb) WHERE deleted_at IS NULL;
CREATE INDEX machines_moving ON machines (node_id) WHERE move_id IS NOT NULL;
CREATE UNIQUE INDEX machines_name ON machines (tenant_id, name) WHERE deleted_at IS NULL AND name IS NOT NULL;
-- All machines of a node, and the sums of the active ones. A deleted machine keeps its row for 30 days: the
-- third column passes over those of which nothing is left on the node.
CREATE INDEX machines_of_node ON machines (
  node_id, is_active, (deleted_at IS NULL OR observed_state <> 'absent' OR observed_generation <> generation)
) INCLUDE (cpus, memory_mb);
CREATE INDEX machines_reconcile ON machines (reconcile_at) WHERE reconcile_at IS NOT NULL;
CREATE INDEX machines_ttl ON machines (id) WHERE ttl_seconds > 0 AND deleted_at IS NULL;

-- What owns a machine and decides about it, instead of its tenant alone. A machine without a row is its
-- tenant's. The row is written before its machine is made, with the machine's id, so that another server
-- finishes what a dead one began.
CREATE TABLE machine_owners (
  -- The machine. It has at most one owner.
  machine_id text PRIMARY KEY,
  -- What kind of thing the owner is.
  kind text NOT NULL CHECK (kind IN ('pool', 'app')),
  -- The id of the owner.
  id text NOT NULL,
  -- When the row was written.
  created_at timestamptz NOT NULL,
  -- When the owner decided to delete the machine; from then on it is not given away. Null: it did not.
  discarded_at timestamptz
);
CREATE INDEX machine_owners_of_owner ON machine_owners (kind, id, created_at);

-- A machine has a host name while it is not deleted. If it has been on a node, so that visitors may know it,
-- its tenant keeps the name as long as the row is kept: 30 days more. Otherwise it could reserve any number.
CREATE TRIGGER machines_take_host_name AFTER INSERT ON machines
  FOR EACH ROW WHEN (new.deleted_at IS NULL) EXECUTE FUNCTION take_host_name('machine');
CREATE TRIGGER machines_free_host_names AFTER UPDATE OF deleted_at ON machines
  FOR EACH ROW WHEN (old.deleted_at IS NULL AND new.deleted_at IS NOT NULL AND new.node_id IS NOT NULL)
  EXECUTE FUNCTION free_host_names();
CREATE TRIGGER machines_remove_unused_host_names AFTER UPDATE OF deleted_at ON machines
  FOR EACH ROW WHEN (old.deleted_at IS NULL AND new.deleted_at IS NOT NULL AND new.node_id IS NULL)
  EXECUTE FUNCTION remove_host_names();
CREATE TRIGGER machines_remove_host_names AFTER DELETE ON machines
  FOR EACH ROW EXECUTE FUNCTION remove_host_names();

-- How many machines the tenant has. Instances of apps are not counted: their number is the app's.
CREATE FUNCTION held_machines_locked(tenant text) RETURNS integer LANGUAGE plpgsql AS $$
BEGIN
  PERFORM 1 FROM tenants WHERE id = tenant FOR NO KEY UPDATE;
  RETURN (
    SELECT count(*) FROM machines m WHERE m.tenant_id = tenant AND m.deleted_at IS NULL
      AND NOT EXISTS (SELECT 1 FROM machine_owners o WHERE o.machine_id = m.id AND o.kind = 'app'));
END $$;

-- Whether the tenant may have another active machine of this size. The plan is read here too, so that a
-- change of it applies immediately.
CREATE FUNCTION tenant_admits_start(
  tenant text, active_max integer, more_cpus integer, more_memory_mb integer
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  most record;
  held record;
BEGIN
  SELECT p.max_total_cpus AS cpus, p.max_total_memory_mb AS memory_mb INTO most
  FROM tenants t JOIN plans p ON p.id = coalesce(t.plan_id, (SELECT d.id FROM plans d WHERE d.is_default))
  WHERE t.id = tenant FOR NO KEY UPDATE OF t;
  IF NOT FOUND THEN RETURN false; END IF;
  SELECT count(*) AS machines, coalesce(sum(m.cpus), 0) AS cpus, coalesce(sum(m.memory_mb), 0) AS memory_mb INTO held
  FROM machines m WHERE m.tenant_id = tenant AND m.is_active;
  RETURN held.machines < active_max AND held.cpus + more_cpus <= most.cpus AND held.memory_mb + more_memory_mb <= most.memory_mb;
END $$;

-- Whether the tenant's plan has room for the disk of another machine.
CREATE FUNCTION totals_allow_disk_locked(tenant text, more_disk_gb integer) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
  PERFORM 1 FROM tenants WHERE id = tenant FOR NO KEY UPDATE;
  RETURN (
    SELECT coalesce(sum(m.held_disk_gb), 0) + more_disk_gb <= p.max_total_disk_gb
    FROM tenants t
    JOIN plans p ON p.id = coalesce(t.plan_id, (SELECT id FROM plans WHERE is_default))
    LEFT JOIN machines m ON m.tenant_id = t.id AND m.deleted_at IS NULL
    WHERE t.id = tenant GROUP BY p.max_total_disk_gb);
END $$;

-- Whether a start may take its share of a node. Without ceilings starts share the lock: it only keeps the
-- node from being drained or cordoned between the choice of the node and the write of the start.
-- `is_new`: the start places the machine on the node; otherwise its disk is there already. A ratio that is
-- NULL sets no ceiling; neither does a node that has not reported its size. Machines that move to the node
-- count as its own.
CREATE FUNCTION node_admits_start(
  node text, is_new boolean, cpus integer, memory_mb integer, cpu_ratio double precision, memory_ratio double precision
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  held record;
  promised_cpus bigint;
  promised_memory_mb bigint;
BEGIN
  IF cpu_ratio IS NULL AND memory_ratio IS NULL THEN
    SELECT n.status, n.cordoned_at INTO held FROM nodes n WHERE n.id = node FOR SHARE;
  ELSE
    SELECT n.status, n.cordoned_at, n.total_cpus, n.total_memory_mb INTO held FROM nodes n WHERE n.id = node FOR NO KEY UPDATE;
  END IF;
  IF NOT FOUND OR held.status IN ('draining', 'drained', 'revoked') THEN RETURN false; END IF;
  IF is_new AND (held.status <> 'ready' OR held.cordoned_at IS NOT NULL) THEN RETURN false; END IF;
  IF cpu_ratio IS NULL AND memory_ratio IS NULL THEN RETURN true; END IF;
  SELECT coalesce(sum(m.cpus), 0), coalesce(sum(m.memory_mb), 0) INTO promised_cpus, promised_memory_mb
    FROM (
      SELECT p.cpus, p.memory_mb FROM machines p WHERE p.node_id = node AND p.is_active
      UNION ALL
      SELECT a.cpus, a.memory_mb FROM machines a WHERE a.move_node_id = node AND a.is_active AND NOT a.move_stops) m;
  RETURN (cpu_ratio IS NULL OR held.total_cpus = 0 OR promised_cpus + cpus <= floor(held.total_cpus * cpu_ratio))
    AND (memory_ratio IS NULL OR held.total_memory_mb = 0
      OR promised_memory_mb + memory_mb <= floor(held.total_memory_mb * memory_ratio));
END $$;

-- What commands of a session leave to the next one. Written by server/src/machines/sessions/store.ts only.
CREATE TABLE machine_sessions (
  -- The machine it belongs to; it outlives stops of it.
  machine_id text NOT NULL REFERENCES machines ON DELETE CASCADE,
  -- Chosen by the caller, or sess-<32 hex>; unique in the machine.
  id text NOT NULL CHECK (id ~ '^[A-Za-z0-9._-]{1,128}$'),
  -- Where the next command runs; null: the machine's working directory.
  cwd text,
  -- Variables that differ from the machine's.
  env jsonb NOT NULL CHECK (jsonb_typeof(env) = 'object'),
  -- Variables of the machine that the session does not have.
  unset_names text[] NOT NULL DEFAULT '{}',
  -- A login shell's profile was read and what it exports is in env: it must not be read again, it would undo
  -- changes.
  has_profile boolean NOT NULL DEFAULT false,
  -- Size of its variables and directory; those of all sessions of a machine are bounded together.
  bytes integer GENERATED ALWAYS AS (octet_length(env::text) + coalesce(octet_length(cwd), 0)) STORED NOT NULL,
  -- The id that the request which made it would have given it: a repetition has the same one.
  made_as text,
  -- When it was created.
  created_at timestamptz NOT NULL,
  -- When its last command ended; null: none has.
  last_exec_at timestamptz,
  PRIMARY KEY (machine_id, id)
);

-- How many sessions the machine has.
CREATE FUNCTION sessions_locked(machine text) RETURNS integer LANGUAGE plpgsql AS $$
BEGIN
  PERFORM 1 FROM machines WHERE id = machine FOR NO KEY UPDATE;
  RETURN (SELECT count(*) FROM machine_sessions WHERE machine_id = machine);
END $$;

-- What opens the connect bridge of one machine for a while. Written by server/src/ingress/connect/store.ts
-- only.
CREATE TABLE connect_tokens (
  -- SHA-256 of the token, which is shown once.
  token_hash bytea PRIMARY KEY CHECK (length(token_hash) = 32),
  -- The machine it opens.
  machine_id text NOT NULL REFERENCES machines ON DELETE CASCADE,
  -- The API key that made it: it is good for as long as that one is.
  key_id text NOT NULL REFERENCES api_keys ON DELETE CASCADE,
  -- From then on it opens nothing.
  expires_at timestamptz NOT NULL
);
CREATE INDEX connect_tokens_by_expiry ON connect_tokens (expires_at);
CREATE INDEX connect_tokens_machine ON connect_tokens (machine_id, expires_at);

-- How many connect tokens of the machine are valid.
CREATE FUNCTION good_connect_tokens_locked(machine text, at timestamptz) RETURNS integer
LANGUAGE plpgsql AS $$
BEGIN
  PERFORM 1 FROM machines WHERE id = machine FOR NO KEY UPDATE;
  RETURN (SELECT count(*) FROM connect_tokens WHERE machine_id = machine AND expires_at > at);
END $$;

-- The one share link of a machine, if it has one. Written by server/src/ingress/share/store.ts only.
CREATE TABLE machine_shares (
  -- Whose url the link opens.
  machine_id text PRIMARY KEY REFERENCES machines ON DELETE CASCADE,
  -- SHA-256 of the token, which is shown once.
  token_hash bytea NOT NULL CHECK (length(token_hash) = 32),
  -- The id of the API key that made it.
  created_by text NOT NULL,
  -- When it was made.
  created_at timestamptz NOT NULL
);
