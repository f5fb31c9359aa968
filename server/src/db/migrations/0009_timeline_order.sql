-- A timeline is in the order in which things happened. What nodes and batches report is written later than it happened.
DROP INDEX machine_events_timeline;
CREATE INDEX machine_events_timeline ON machine_events (machine_id, created_at, sequence);
COMMENT ON COLUMN machine_events.sequence IS 'The order in which lines were written; decides between lines of one instant.';
