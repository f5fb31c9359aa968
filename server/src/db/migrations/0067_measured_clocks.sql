-- What the last report of a node shows of its clock. clock_ahead_ms follows a clock that was put back only slowly, because a late report looks
-- the same.

ALTER TABLE nodes ADD COLUMN clock_measured_ms bigint;
COMMENT ON COLUMN nodes.clock_measured_ms IS
  'How far the clock of the node seemed to be ahead of the server''s when its last report arrived, in milliseconds. NULL: unknown.';
