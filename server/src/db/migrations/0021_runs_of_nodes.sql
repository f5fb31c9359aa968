-- Runs are what bills are computed from: they outlive their machine, and end when their node says.
ALTER TABLE machine_runs DROP CONSTRAINT machine_runs_machine_id_fkey;
ALTER TABLE machine_runs ADD COLUMN node_id text;
ALTER TABLE machine_runs ADD COLUMN end_cause text;
ALTER TABLE machine_runs ADD COLUMN counted_until timestamptz;
ALTER TABLE machine_runs ADD COLUMN sequence bigint;
ALTER TABLE machine_runs ADD COLUMN recorded_at timestamptz;

-- Only the newest run of a machine can be open.
UPDATE machine_runs r SET ended_at = later.started_at
FROM (SELECT machine_id, max(started_at) AS started_at FROM machine_runs WHERE ended_at IS NULL GROUP BY machine_id) later
WHERE r.machine_id = later.machine_id AND r.ended_at IS NULL AND r.started_at < later.started_at;
UPDATE machine_runs r SET
  node_id = coalesce(m.node_id, 'unknown'), sequence = 0, recorded_at = r.started_at,
  end_cause = CASE WHEN r.ended_at IS NULL THEN NULL ELSE 'unknown' END
FROM machines m WHERE m.id = r.machine_id;

ALTER TABLE machine_runs ALTER COLUMN node_id SET NOT NULL;
ALTER TABLE machine_runs ALTER COLUMN recorded_at SET NOT NULL;
ALTER TABLE machine_runs ADD FOREIGN KEY (tenant_id) REFERENCES tenants (id);
ALTER TABLE machine_runs ADD CONSTRAINT machine_runs_end_cause_check
  CHECK (end_cause IN ('stop', 'delete', 'poweroff', 'crash', 'unresponsive', 'unseen', 'unknown'));
ALTER TABLE machine_runs ADD CONSTRAINT machine_runs_end_check CHECK ((ended_at IS NULL) = (end_cause IS NULL));

DROP INDEX machine_runs_open;
CREATE UNIQUE INDEX machine_runs_open ON machine_runs (machine_id) WHERE ended_at IS NULL;
CREATE INDEX machine_runs_open_of_node ON machine_runs (node_id) WHERE ended_at IS NULL;

CREATE FUNCTION refuse_change_of_ended_run() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'run % has ended and cannot change', OLD.boot_id;
END $$;
CREATE TRIGGER machine_runs_final BEFORE UPDATE ON machine_runs
  FOR EACH ROW WHEN (OLD.ended_at IS NOT NULL) EXECUTE FUNCTION refuse_change_of_ended_run();

-- What is used ends with the run, or with its machine.
CREATE OR REPLACE FUNCTION record_run() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  end_at timestamptz := least(NEW.ended_at, NEW.counted_until);
BEGIN
  IF TG_OP = 'INSERT' THEN
    PERFORM open_usage(NEW.tenant_id, NEW.machine_id, NEW.boot_id, 'uptime', 1, NEW.started_at),
      open_usage(NEW.tenant_id, NEW.machine_id, NEW.boot_id, 'cpu', NEW.cpus, NEW.started_at),
      open_usage(NEW.tenant_id, NEW.machine_id, NEW.boot_id, 'memory', NEW.memory_mb, NEW.started_at);
  END IF;
  IF end_at IS NOT NULL THEN
    PERFORM close_usage(NEW.boot_id, end_at);
  END IF;
  RETURN NULL;
END $$;
DROP TRIGGER machine_runs_used ON machine_runs;
CREATE TRIGGER machine_runs_used AFTER INSERT OR UPDATE OF ended_at, counted_until ON machine_runs
  FOR EACH ROW EXECUTE FUNCTION record_run();

COMMENT ON TABLE machine_runs IS 'One row for each boot that ran: what uptime is computed from. Rows outlive their machine and do not change after the run has ended.';
COMMENT ON COLUMN machine_runs.machine_id IS 'Which machine ran. It may be gone.';
COMMENT ON COLUMN machine_runs.node_id IS 'Where it ran. Only this node ends the run.';
COMMENT ON COLUMN machine_runs.started_at IS 'When it was running, by the node''s clock; not before the machine was created, and not after the server received it.';
COMMENT ON COLUMN machine_runs.ended_at IS 'When its VM ended, by the node''s clock; if no agent saw that, when it was last known to run. Null while it runs.';
COMMENT ON COLUMN machine_runs.end_cause IS 'Why it ended, as contract/src/runs.ts says. Null while it runs.';
COMMENT ON COLUMN machine_runs.counted_until IS 'What the machine ran after that does not count: it was deleted then, or its node had not reported since when it was deleted. By the server''s clock; null: no bound.';
COMMENT ON COLUMN machine_runs.sequence IS 'The number of the node''s record of it. Null until that record has arrived: an answer to a request was quicker, or the node has an earlier version.';
COMMENT ON COLUMN machine_runs.recorded_at IS 'When the server first received it.';
