-- How late the last heartbeat of a node was. One that waited for a server that was stopped is received long after a fence has ended what it reports,
-- so a machine that is deleted then counts up to when it was written.
ALTER TABLE nodes ADD COLUMN last_late_ms bigint NOT NULL DEFAULT 0 CHECK (last_late_ms >= 0);
COMMENT ON COLUMN nodes.last_late_ms IS
  'How long before last_heartbeat_at the last heartbeat was written, in milliseconds: as far as it seems to have put the node''s clock back.';
