-- What was used: runs of machines, the intervals that bills are computed from, and whose costs they are.
-- Triggers write intervals: see the functions of billing. Which runs a node may report, and where they are
-- recorded, is decided at the end of this file.

CREATE EXTENSION IF NOT EXISTS btree_gist;

-- Which node had a machine since when and until when: the times in which runs that the node reports may be.
-- Periods of one machine do not overlap. Written by a trigger of machines only.
CREATE TABLE machine_periods (
  -- The order in which they began.
  number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  -- Which machine.
  machine_id text NOT NULL REFERENCES machines ON DELETE CASCADE,
  -- The node that had its disk.
  node_id text NOT NULL,
  -- When the machine came to the node, by the server's clock.
  since timestamptz NOT NULL,
  -- When it left, by the server's clock. Null: it is there.
  until timestamptz,
  CHECK (until >= since)
);
CREATE INDEX machine_periods_of_machine ON machine_periods (machine_id, since);
CREATE UNIQUE INDEX machine_periods_now ON machine_periods (machine_id) WHERE until IS NULL;

-- One row for each boot that ran: what uptime is computed from. Runs of one machine do not overlap, whatever
-- nodes report. Rows outlive their machine and do not change after the run has ended.
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
  -- When it began to run: by the node's clock, and in a period of the machine on the node in which no other
  -- run of the machine is.
  started_at timestamptz NOT NULL,
  -- How much later that is than its node reported, in milliseconds. The same is added to its end.
  later_ms bigint NOT NULL DEFAULT 0,
  -- When its VM ended, by the node's clock; if no agent saw that, when it was last known to run. Null while
  -- it runs.
  ended_at timestamptz,
  -- Why it ended, as contract/src/runs.ts says. Null while it runs.
  end_cause text
    CHECK (end_cause IN ('stop', 'delete', 'poweroff', 'crash', 'unresponsive', 'unseen', 'fenced', 'unknown')),
  -- When the machine left the node, or was paused for that, while no end of this was known: it ended by then.
  left_at timestamptz,
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
  CHECK (left_at >= started_at AND ended_at <= left_at),
  CHECK (counted_until >= started_at),
  CONSTRAINT machine_runs_end_check CHECK ((ended_at IS NULL) = (end_cause IS NULL)),
  -- A machine runs once at a time. Compares hashes, as nothing_twice does.
  CONSTRAINT machine_runs_apart EXCLUDE USING gist (
    hashtextextended(machine_id, 0) WITH =,
    tstzrange(started_at, least(ended_at, left_at, counted_until)) WITH &&)
);
CREATE INDEX machine_runs_machine ON machine_runs (machine_id, started_at);
CREATE INDEX machine_runs_open ON machine_runs (machine_id) WHERE ended_at IS NULL;
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
-- Written by triggers of machine_runs and machines, and by record_registry_use, only.
CREATE TABLE usage_intervals (
  -- The order in which intervals were recorded, among ids and closed_in.
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  -- The tenant that pays.
  tenant_id text NOT NULL,
  -- Which machine; it may be gone. Null: what the tenant has in the registry is not a machine's.
  machine_id text,
  -- Which run of it; null for its disk, and for the registry.
  boot_id text,
  -- Whose cost it is, as of its start; null: the machine was gone when this was first recorded, or there is
  -- none.
  attribution_id bigint,
  -- What was used.
  meter text NOT NULL CHECK (meter IN ('uptime', 'cpu', 'memory', 'disk', 'egress', 'registry')),
  -- How much at a time: 1 of uptime, virtual processors, MiB of memory, GiB of disk, MiB in the registry. Of
  -- egress the bytes that its node counted together: its intervals have one millisecond, so that they add up
  -- like the others.
  quantity bigint NOT NULL CHECK (quantity >= 1),
  -- The rate that held; while it has no end, the one it began with.
  rate_id text NOT NULL,
  -- By the clock of the node; of a disk by the server's, of the registry by the database's. This and all
  -- other times of billing: in the billing time of the tenant.
  started_at timestamptz NOT NULL,
  -- Null as long as it is in use.
  ended_at timestamptz,
  -- When the machine left the node on which it ran: while no end is known, it counts at most up to then. Null:
  -- it is there, or an end was known.
  left_at timestamptz,
  -- When its start was recorded, by the clock of the database. A part that was split off has the instant of
  -- the whole.
  recorded_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  -- When its end was recorded, by the clock of the database. Null while it has no end.
  closed_at timestamptz,
  -- The order in which its end was recorded, among ids and closed_in. Null while it has no end.
  closed_in bigint,
  CONSTRAINT closed_with_its_end
    CHECK ((ended_at IS NULL) = (closed_at IS NULL) AND (ended_at IS NULL) = (closed_in IS NULL)),
  CONSTRAINT disk_outlives_boots CHECK ((meter IN ('disk', 'registry')) = (boot_id IS NULL)),
  CONSTRAINT registry_has_no_machine CHECK ((meter = 'registry') = (machine_id IS NULL)),
  CHECK (ended_at >= started_at),
  -- Compares hashes, which are shorter than the texts: of 2^64 pairs one is refused without an overlap, and
  -- no overlap is admitted.
  CONSTRAINT nothing_twice EXCLUDE USING gist (
    hashtextextended(coalesce(boot_id, machine_id, tenant_id) || ' ' || meter, 0) WITH =,
    tstzrange(started_at, ended_at) WITH &&) WHERE (meter <> 'egress'),
  CONSTRAINT egress_in_a_millisecond CHECK (meter <> 'egress' OR ended_at = started_at + interval '1 millisecond')
);
CREATE INDEX usage_intervals_closed ON usage_intervals (tenant_id, closed_in) WHERE closed_in IS NOT NULL;
CREATE INDEX usage_intervals_of_machine ON usage_intervals (machine_id, ended_at);
CREATE INDEX usage_intervals_of_tenant ON usage_intervals (tenant_id, ended_at);
CREATE INDEX usage_intervals_sent ON usage_intervals (tenant_id, ended_at) INCLUDE (quantity) WHERE meter = 'egress';
CREATE INDEX usage_intervals_of_registry ON usage_intervals (tenant_id, started_at) WHERE meter = 'registry';
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
  -- cpu, memory, egress or registry, of each sum.
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

-- Ends what is used: all meters of it at the same time, since they began together. The lock, which starts of
-- machines do not wait for, keeps a change of the tenant's plan from beginning before this end.
CREATE FUNCTION close_intervals(used usage_intervals[], at timestamptz) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  part record;
  is_first boolean := true;
BEGIN
  IF used IS NULL THEN RETURN; END IF;
  PERFORM 1 FROM tenants t WHERE t.id = used[1].tenant_id FOR KEY SHARE;
  FOR part IN SELECT * FROM rated_parts(
    used[1].tenant_id, used[1].started_at, greatest(billing_time(used[1].tenant_id, at), used[1].started_at))
  LOOP
    IF is_first THEN
      UPDATE usage_intervals u SET rate_id = part.rate_id, ended_at = part.ended_at
      WHERE u.id = ANY (ARRAY(SELECT o.id FROM unnest(used) o)) AND u.ended_at IS NULL;
      is_first := false;
    ELSE
      INSERT INTO usage_intervals (tenant_id, machine_id, boot_id, attribution_id, meter, quantity, started_at, ended_at, rate_id, recorded_at)
      SELECT u.tenant_id, u.machine_id, u.boot_id, u.attribution_id, u.meter, u.quantity, part.started_at, part.ended_at, part.rate_id,
        u.recorded_at
      FROM unnest(used) u;
    END IF;
  END LOOP;
END $$;

-- Records since when and until when a machine is a node's. A run on the node that it leaves has ended by
-- then, also if the node reports that later.
CREATE FUNCTION record_period() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  since_at timestamptz := NEW.updated_at;
BEGIN
  IF TG_OP = 'UPDATE' THEN
    -- In the order in which reports lock them. A run that is being recorded has locked its period.
    PERFORM 1 FROM machine_runs r WHERE r.machine_id = NEW.id AND r.ended_at IS NULL FOR NO KEY UPDATE;
    UPDATE machine_periods p SET until = greatest(p.since, NEW.updated_at) WHERE p.machine_id = NEW.id AND p.until IS NULL
    RETURNING p.until INTO since_at;
    UPDATE machine_runs r SET left_at = greatest(r.started_at, since_at)
    WHERE r.machine_id = NEW.id AND r.node_id = OLD.node_id AND r.ended_at IS NULL AND r.left_at IS NULL;
  END IF;
  IF NEW.node_id IS NOT NULL THEN
    INSERT INTO machine_periods (machine_id, node_id, since) VALUES (NEW.id, NEW.node_id, coalesce(since_at, NEW.updated_at));
  END IF;
  RETURN NULL;
END $$;

CREATE TRIGGER machines_placed AFTER INSERT ON machines
  FOR EACH ROW WHEN (new.node_id IS NOT NULL) EXECUTE FUNCTION record_period();
CREATE TRIGGER machines_moved AFTER UPDATE OF node_id ON machines
  FOR EACH ROW WHEN (old.node_id IS DISTINCT FROM new.node_id) EXECUTE FUNCTION record_period();

-- Where a run is recorded that a node reports, with the start and end of the node's clock: where it was
-- reported, if that is in a period of the machine on the node, not in the future, and no other run of the
-- machine is there; otherwise at the nearest such time that is long enough, or else the longest. It keeps its
-- length, whatever the clocks of nodes say. One that has not ended begins after all others, also after one
-- that a server whose clock is ahead has recorded in the future. Null, if the machine never was that
-- node's, or if the run has to wait until the end of another one is reported, or its own because the machine
-- has left.
--
-- Clocks of nodes differ by up to an hour: the run is of the newest period that began at most an hour after
-- its end, or else of the first. `sequence_at`: the number of the node's record of it; null: it came with an
-- answer. If the node has lost the end of an earlier run, it ends that one: a node's journal has the end of a
-- run before the start of the next. `boot`: of the run itself, which another report may have just recorded.
-- `last_at`: what the machine runs after that does not count.
-- It looks for other times among the last hundred runs of the machine. It is volatile, so it sees the runs
-- that its statement has written before. It locks the period, after runs as record_period does: the machine
-- does not leave the node before the run is recorded. In its time zone each day has 24 hours, as in the
-- length of a run.
CREATE FUNCTION place_run(
  boot text, machine text, node text, from_at timestamptz, to_at timestamptz, sequence_at bigint, last_at timestamptz, real_at timestamptz,
  OUT started_at timestamptz, OUT ended_at timestamptz, OUT counted_until timestamptz
) LANGUAGE plpgsql SET timezone = 'UTC' AS $$
#variable_conflict use_variable
DECLARE
  period machine_periods;
  free_from timestamptz;
  free_until timestamptz;
  run_length interval := greatest(interval '0', to_at - from_at);
  used tstzmultirange;
  runs bigint;
  found_at timestamptz;
BEGIN
  UPDATE machine_runs r SET end_cause = 'unseen',
    ended_at = greatest(r.started_at, least(real_at, r.left_at, from_at + r.later_ms * interval '1 millisecond'))
  WHERE r.machine_id = machine AND r.node_id = node AND r.ended_at IS NULL AND r.sequence < sequence_at
    AND r.boot_id <> boot AND r.started_at <= from_at + r.later_ms * interval '1 millisecond';
  SELECT p.* INTO period FROM machine_periods p
  CROSS JOIN LATERAL (SELECT p.since <= coalesce(to_at, real_at) + interval '1 hour' AS may_be) c
  WHERE p.machine_id = machine AND p.node_id = node
  ORDER BY c.may_be DESC, CASE WHEN c.may_be THEN p.number END DESC, p.number LIMIT 1 FOR SHARE OF p;
  IF NOT FOUND THEN RETURN; END IF;
  IF to_at IS NULL AND period.until IS NOT NULL THEN RETURN; END IF;
  PERFORM 1 FROM machine_runs r
  WHERE r.machine_id = machine AND r.ended_at IS NULL AND r.left_at IS NULL AND r.counted_until IS NULL
    AND (to_at IS NULL OR sequence_at IS NULL AND r.started_at <= from_at);
  IF FOUND THEN RETURN; END IF;
  IF last_at IS NOT NULL THEN counted_until := greatest(period.since, last_at); END IF;
  free_from := period.since;
  free_until := greatest(free_from, least(period.until, counted_until, real_at));
  started_at := greatest(free_from, least(from_at, free_until, least(period.until, real_at) - run_length));
  IF to_at IS NOT NULL THEN
    ended_at := least(greatest(real_at, started_at), period.until, started_at + run_length);
  END IF;
  PERFORM 1 FROM machine_runs r WHERE hashtextextended(r.machine_id, 0) = hashtextextended(machine, 0)
    AND tstzrange(r.started_at, least(r.ended_at, r.left_at, r.counted_until)) && tstzrange(started_at, least(ended_at, counted_until));
  IF NOT FOUND THEN RETURN; END IF;
  SELECT range_agg(tstzrange(r.started_at, least(r.ended_at, r.left_at, r.counted_until))), min(r.started_at), count(*)
  INTO used, found_at, runs
  FROM (SELECT * FROM machine_runs o WHERE o.machine_id = machine AND (to_at IS NULL OR o.started_at < free_until)
    ORDER BY o.started_at DESC, least(o.ended_at, o.left_at, o.counted_until) DESC LIMIT 100) r;
  IF runs = 100 THEN free_from := least(free_until, greatest(free_from, found_at)); END IF;
  IF to_at IS NULL THEN
    started_at := least(counted_until, greatest(started_at, upper(used)));
    RETURN;
  END IF;
  SELECT g.at, g.at + g.held INTO started_at, ended_at
  FROM (SELECT started_at AS wanted) w
  CROSS JOIN unnest(tstzmultirange(tstzrange(free_from, free_until)) - coalesce(used, '{}')) AS gap
  CROSS JOIN LATERAL (SELECT least(run_length, upper(gap) - lower(gap)) AS held) h
  CROSS JOIN LATERAL (SELECT greatest(lower(gap), least(w.wanted, upper(gap) - h.held)) AS at, h.held) g
  ORDER BY g.held DESC, abs(extract(epoch FROM g.at - w.wanted)) LIMIT 1;
  -- The machine ran all the time.
  IF NOT FOUND THEN
    started_at := free_until;
    ended_at := free_until;
  END IF;
END $$;
