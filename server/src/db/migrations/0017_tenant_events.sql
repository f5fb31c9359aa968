-- Events become the tenant's: they outlive their machine, and can be followed without missing one.
ALTER TABLE machine_events RENAME TO tenant_events;
ALTER TABLE tenant_events RENAME COLUMN sequence TO position;
ALTER TABLE tenant_events RENAME CONSTRAINT machine_events_pkey TO tenant_events_pkey;
ALTER TABLE tenant_events DROP CONSTRAINT machine_events_machine_id_fkey;
ALTER TABLE tenant_events ADD COLUMN tenant_id text REFERENCES tenants (id);
UPDATE tenant_events e SET tenant_id = m.tenant_id FROM machines m WHERE m.id = e.machine_id;
ALTER TABLE tenant_events ALTER COLUMN tenant_id SET NOT NULL;
ALTER TABLE tenant_events ADD COLUMN transaction_id xid8 NOT NULL DEFAULT pg_current_xact_id();
ALTER TABLE tenant_events ADD COLUMN restored_rank bigint NOT NULL DEFAULT 9223372036854775807;

COMMENT ON TABLE tenant_events IS 'What happened to things of tenants. Rows are never updated, except after a restore (events/store.ts).';
COMMENT ON COLUMN tenant_events.position IS 'The order in which rows were written; within one transaction the order of events. Cursors name it.';
COMMENT ON COLUMN tenant_events.transaction_id IS 'Who follows events reads them in the order of transactions, and only those of transactions before the oldest that still runs: no later commit can come before them.';
COMMENT ON COLUMN tenant_events.restored_rank IS 'The order of rows from before a restore into another PostgreSQL, whose transactions are numbered anew. The largest number for all others, which come behind them.';
COMMENT ON COLUMN tenant_events.tenant_id IS 'Whose event it is.';
COMMENT ON COLUMN tenant_events.machine_id IS 'What it happened to. The machine may be gone.';

DROP INDEX machine_events_timeline;
CREATE INDEX tenant_events_timeline ON tenant_events (machine_id, created_at, position);
CREATE INDEX tenant_events_order ON tenant_events (tenant_id, restored_rank, transaction_id, position);
ALTER INDEX machine_events_of_nodes RENAME TO tenant_events_of_nodes;
ALTER INDEX machine_events_age RENAME TO tenant_events_age;
ALTER INDEX machine_events_id_key RENAME TO tenant_events_id_key;
