-- Machines that are replaced when their node is lost, and what is decided of nodes that do not report.

ALTER TABLE machines ADD COLUMN fence text;
COMMENT ON COLUMN machines.fence IS
  'on: another machine may replace it, so its VM ends while its node is cut off. lifting: it was given to a user, and its node may not know yet. Null: it is not fenced.';
ALTER TABLE machines ADD CONSTRAINT machines_fence_check CHECK (fence IN ('on', 'lifting'));
-- Those whose fence is to be lifted are few, and looked for often.
CREATE INDEX machines_by_fence ON machines (fence, id) WHERE fence IS NOT NULL;

ALTER TABLE nodes ADD COLUMN can_fence boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN nodes.can_fence IS 'Whether its agent fences VMs, as of its last report.';
ALTER TABLE nodes ADD COLUMN lost_at timestamptz;
COMMENT ON COLUMN nodes.lost_at IS
  'When it was decided that its fenced machines are replaced; null: it was not, or the node has reported since.';
ALTER TABLE nodes ADD COLUMN held_at timestamptz;
COMMENT ON COLUMN nodes.held_at IS 'Since when it is unreachable and its fenced machines are not replaced; null: that is not so.';
ALTER TABLE nodes ADD COLUMN held_reason text;
COMMENT ON COLUMN nodes.held_reason IS 'Why they are not replaced.';
ALTER TABLE nodes ADD CONSTRAINT nodes_held_check CHECK ((held_at IS NULL) = (held_reason IS NULL));
ALTER TABLE nodes ADD CONSTRAINT nodes_lost_check CHECK (lost_at IS NULL OR held_at IS NULL);

ALTER TABLE machine_runs DROP CONSTRAINT machine_runs_end_cause_check;
ALTER TABLE machine_runs ADD CONSTRAINT machine_runs_end_cause_check CHECK (end_cause IN (
  'stop', 'delete', 'poweroff', 'crash', 'unresponsive', 'unseen', 'fenced', 'unknown'));
