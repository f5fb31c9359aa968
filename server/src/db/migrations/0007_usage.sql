-- What was used: runs of machines, the intervals that bills are computed from, and whose costs they are.
-- Triggers write intervals: see the functions of billing.

CREATE EXTENSION IF NOT EXISTS btree_gist;

-- One row for each boot that ran: what uptime is computed from. Rows outlive their machine and do not change
-- after the run has ended.
CREATE TABLE machine_runs (
  -- One incarnation of a machine.
  boot_id text PRIMARY KEY,
  -- Which machine ran. It may be gone.
  machine_id text NOT NULL,
  -- Its owner.
  tenant_id text NOT NULL REFERENCES tenants,
  -- Where it ran. Only this node ends the run.
  node_id text NOT NULL,
  -- As the machine had them.
  cpus integer NOT NULL,
  -- As the machine had it.
  memory_mb integer NOT NULL,
  -- When it was running, by the node's clock; not before the machine was created, and not after the server
  -- received it.
  started_at timestamptz NOT NULL,
  -- When its VM ended, by the node's clock; if no agent saw that, when it was last known to run. Null while
  -- it runs.
  ended_at timestamptz,
  -- Why it ended, as contract/src/runs.ts says. Null while it runs.
  end_cause text
    CHECK (end_cause IN ('stop', 'delete', 'poweroff', 'crash', 'unresponsive', 'unseen', 'fenced', 'unknown')),
  -- What the machine ran after that does not count: it was deleted then, or its node had not reported since
  -- when it was deleted. By the server's clock; null: no bound.
  counted_until timestamptz,
  -- Bytes that it has sent, as far as its node has said. Never less than before.
  egress_bytes bigint NOT NULL DEFAULT 0 CHECK (egress_bytes >= 0),
  -- When the server received that, by its clock. Null: nothing was sent.
  egress_at timestamptz,
  -- The number of the node's record of it. Null until that record has arrived: an answer to a request was
  -- quicker.
  sequence bigint,
  -- When the server first received it.
  recorded_at timestamptz NOT NULL,
  CHECK (ended_at IS NULL OR ended_at >= started_at),
  CONSTRAINT sent_at_some_time CHECK (egress_bytes = 0 OR egress_at IS NOT NULL),
  CONSTRAINT machine_runs_end_check CHECK ((ended_at IS NULL) = (end_cause IS NULL))
);
CREATE INDEX machine_runs_machine ON machine_runs (machine_id, started_at);
-- A node may report that a machine runs there before the node that had it reports that the earlier run has
-- ended.
CREATE UNIQUE INDEX machine_runs_open ON machine_runs (machine_id, node_id) WHERE ended_at IS NULL;
CREATE INDEX machine_runs_open_of_node ON machine_runs (node_id) WHERE ended_at IS NULL;

-- Commands run in a machine, by the minute in which they ended; written in batches. Written by
-- server/src/machines/activity-store.ts.
CREATE TABLE machine_exec_minutes (
  -- Which machine.
  machine_id text NOT NULL,
  -- The start of the minute, in the billing time of the tenant.
  minute timestamptz NOT NULL CHECK (date_trunc('minute', minute, 'UTC') = minute),
  -- Its owner.
  tenant_id text NOT NULL,
  -- How many commands ended.
  exec_count bigint NOT NULL CHECK (exec_count >= 0),
  -- How long they took together.
  exec_duration_ms bigint NOT NULL CHECK (exec_duration_ms >= 0),
  PRIMARY KEY (machine_id, minute)
);
CREATE INDEX machine_exec_minutes_of_tenant ON machine_exec_minutes (tenant_id, minute);

-- Whose costs intervals are. One row for each machine, key and set of labels that intervals have; never
-- changed; outlives its machine. Written by triggers of machine_runs and machines only.
CREATE TABLE usage_attributions (
  -- Intervals name it.
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  -- Which machine; it may be gone.
  machine_id text NOT NULL,
  -- The API key that started the machine, or created it if none had; null: none did.
  key_id text,
  -- The machine's labels.
  labels jsonb NOT NULL CHECK (jsonb_typeof(labels) = 'object'),
  -- SHA-256 of labels as text, which are too long for an index.
  labels_hash bytea NOT NULL,
  UNIQUE NULLS NOT DISTINCT (machine_id, labels_hash, key_id)
);

-- What was used. Split where the rate changes; never changed once it has an end; outlives its machine.
-- Written by triggers of machine_runs and machines only.
CREATE TABLE usage_intervals (
  -- The order in which intervals were recorded, among ids and closed_in.
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  -- The tenant that pays.
  tenant_id text NOT NULL,
  -- Which machine; it may be gone.
  machine_id text NOT NULL,
  -- Which run of it; null for its disk.
  boot_id text,
  -- Whose cost it is, as of its start; null: the machine was gone when this was first recorded.
  attribution_id bigint,
  -- What was used.
  meter text NOT NULL CHECK (meter IN ('uptime', 'cpu', 'memory', 'disk', 'egress')),
  -- How much at a time: 1 of uptime, virtual processors, MiB of memory, GiB of disk. Of egress the bytes that
  -- its node counted together: its intervals have one millisecond, so that they add up like the others.
  quantity bigint NOT NULL CHECK (quantity >= 1),
  -- The rate that held; while it has no end, the one it began with.
  rate_id text NOT NULL,
  -- By the clock of the node; of a disk by the server's. This and all other times of billing: in the billing
  -- time of the tenant.
  started_at timestamptz NOT NULL,
  -- Null as long as it is in use.
  ended_at timestamptz,
  -- When its start was recorded, by the clock of the database. A part that was split off has the instant of
  -- the whole.
  recorded_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  -- When its end was recorded, by the clock of the database. Null while it has no end.
  closed_at timestamptz,
  -- The order in which its end was recorded, among ids and closed_in. Null while it has no end.
  closed_in bigint,
  CONSTRAINT closed_with_its_end
    CHECK ((ended_at IS NULL) = (closed_at IS NULL) AND (ended_at IS NULL) = (closed_in IS NULL)),
  CONSTRAINT disk_outlives_boots CHECK ((meter = 'disk') = (boot_id IS NULL)),
  CHECK (ended_at >= started_at),
  -- Compares hashes, which are shorter than the texts: of 2^64 pairs one is refused without an overlap, and
  -- no overlap is admitted.
  CONSTRAINT nothing_twice EXCLUDE USING gist (
    hashtextextended(coalesce(boot_id, machine_id) || ' ' || meter, 0) WITH =,
    tstzrange(started_at, ended_at) WITH &&) WHERE (meter <> 'egress'),
  CONSTRAINT egress_in_a_millisecond CHECK (meter <> 'egress' OR ended_at = started_at + interval '1 millisecond')
);
CREATE INDEX usage_intervals_closed ON usage_intervals (tenant_id, closed_in) WHERE closed_in IS NOT NULL;
CREATE INDEX usage_intervals_of_machine ON usage_intervals (machine_id, ended_at);
CREATE INDEX usage_intervals_of_tenant ON usage_intervals (tenant_id, ended_at);
CREATE INDEX usage_intervals_sent ON usage_intervals (tenant_id, ended_at) INCLUDE (quantity) WHERE meter = 'egress';
CREATE INDEX usage_intervals_open ON usage_intervals (coalesce(boot_id, machine_id)) WHERE ended_at IS NULL;

-- What of a month closed intervals of a tenant amount to, up to a cut: one row for each tenant, replaced by
-- later ones. Only derived: may be deleted at any time. Written by server/src/usage/subtotals-store.ts.
CREATE TABLE usage_subtotals (
  -- Whose usage.
  tenant_id text PRIMARY KEY REFERENCES tenants,
  -- The first day of the month in UTC, in the billing time of the tenant.
  month date NOT NULL CHECK (date_trunc('month', month) = month),
  -- It has the intervals with a lower closed_in, and no others.
  cut bigint NOT NULL,
  -- cpu, memory or egress, of each sum.
  meters text[] NOT NULL,
  -- The rate of each sum.
  rate_ids text[] NOT NULL,
  -- Quantity × milliseconds of the whole month, of each sum.
  amounts numeric[] NOT NULL,
  CONSTRAINT one_amount_each
    CHECK (cardinality(meters) = cardinality(rate_ids) AND cardinality(meters) = cardinality(amounts))
);

-- One row for each event about a budget or a ceiling of egress, so that each is written once. Written by
-- server/src/usage/notices-store.ts.
CREATE TABLE budget_notices (
  -- The tenant that was notified.
  tenant_id text NOT NULL REFERENCES tenants,
  -- The first day of the month, in UTC.
  month date NOT NULL CHECK (date_trunc('month', month) = month),
  -- What is used: money, or bytes that machines send.
  bound text NOT NULL CHECK (bound IN ('budget', 'egress')),
  -- The share of it that was used.
  percent integer NOT NULL CHECK (percent IN (80, 100)),
  PRIMARY KEY (tenant_id, month, bound, percent)
);
