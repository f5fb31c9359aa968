-- A node may report that a machine runs there before the node that had the machine reports that an earlier run has ended: its report was lost,
-- and the machine has moved. The run on the new node was not recorded then, and was not reported again.

DROP INDEX machine_runs_open;
CREATE UNIQUE INDEX machine_runs_open ON machine_runs (machine_id, node_id) WHERE ended_at IS NULL;
