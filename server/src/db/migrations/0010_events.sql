-- Events of tenants, and the webhooks that deliver them.

-- What happened to things of tenants. Rows are never updated, except after a restore (events/store.ts).
CREATE TABLE tenant_events (
  -- The order in which rows were written; within one transaction the order of events. Cursors name it.
  position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  -- ev-<32 hex>.
  id text NOT NULL UNIQUE,
  -- Whose event it is.
  tenant_id text NOT NULL REFERENCES tenants,
  -- The kind of what it is about: the first part of its type.
  subject_kind text NOT NULL,
  -- The id of one of that kind, which may be deleted.
  subject_id text NOT NULL,
  -- What happened (contract/src/event-types.ts).
  type text NOT NULL,
  -- The facts of this type.
  data jsonb NOT NULL,
  -- How much it matters.
  level text NOT NULL CHECK (level IN ('info', 'warn', 'error')),
  -- One plain sentence.
  message text NOT NULL,
  -- When it happened.
  created_at timestamptz NOT NULL,
  -- Followers read events in the order of transactions, and only those of transactions before the oldest that
  -- still runs: no later commit can come before them.
  transaction_id xid8 NOT NULL DEFAULT pg_current_xact_id(),
  -- The order of rows from before a restore into another PostgreSQL, which numbers transactions again. The
  -- largest number for all others, which come behind them.
  restored_rank bigint NOT NULL DEFAULT 9223372036854775807,
  -- The node that reported the event; null: a server wrote it. A report that is repeated adds no second row.
  node_id text,
  -- The run of the node's agent that numbered it.
  agent_boot_id text,
  -- Its number within that run.
  node_sequence bigint,
  CHECK ((node_id IS NULL) = (node_sequence IS NULL) AND (node_id IS NULL) = (agent_boot_id IS NULL))
);
CREATE INDEX tenant_events_age ON tenant_events (created_at);
CREATE UNIQUE INDEX tenant_events_of_nodes ON tenant_events (node_id, agent_boot_id, node_sequence)
  WHERE node_id IS NOT NULL;
-- A tenant's events in the order in which they are followed.
CREATE INDEX tenant_events_order ON tenant_events (tenant_id, restored_rank, transaction_id, position);
-- The same of one subject.
CREATE INDEX tenant_events_of_subject ON tenant_events (subject_id, restored_rank, transaction_id, position);
-- The same of one app and its instances.
CREATE INDEX tenant_events_of_app
  ON tenant_events ((CASE subject_kind WHEN 'app' THEN subject_id ELSE data->>'appId' END), restored_rank, transaction_id, position)
  WHERE subject_kind IN ('app', 'instance');
-- A timeline is in the order in which things happened. What nodes and batches report is written later than it
-- happened.
CREATE INDEX tenant_events_timeline ON tenant_events (subject_id, created_at, position);

-- Addresses that receive the events of a tenant. A server delivers for a webhook while it has its lease.
CREATE TABLE webhooks (
  -- hook-<32 hex>.
  id text PRIMARY KEY,
  -- Whose events it receives.
  tenant_id text NOT NULL REFERENCES tenants,
  -- Where they are sent. May hold a token of the receiver, so it is not logged.
  url text NOT NULL,
  -- A text for people.
  description text,
  -- The types of events that it receives; null: all.
  types text[],
  -- Signs deliveries; encrypted (server/src/secrets.ts).
  secret bytea NOT NULL,
  -- Signs them as well until previous_until; encrypted.
  previous_secret bytea,
  -- The end of the previous secret.
  previous_until timestamptz,
  -- Whether anything is delivered.
  is_enabled boolean NOT NULL,
  -- Why the server disabled it; null: it did not.
  disabled_reason text,
  -- Failed attempts since the last successful one.
  failures integer NOT NULL DEFAULT 0 CHECK (failures >= 0),
  -- The first of them.
  failing_since timestamptz,
  -- The position of the last event that was copied to webhook_deliveries; null: none.
  cursor bigint,
  -- When a waiting delivery is attempted next; infinity: none waits.
  due_at timestamptz NOT NULL,
  -- New events are not read before: its queue is full, or its receiver fails.
  reads_at timestamptz NOT NULL,
  -- Counts requests to deliver something now, so that the end of a lease does not overwrite due_at.
  changes bigint NOT NULL DEFAULT 0,
  -- Counts leases; every write of a worker names its own.
  turn bigint NOT NULL DEFAULT 0,
  -- Until then one server delivers for it.
  leased_until timestamptz NOT NULL,
  -- When it was created.
  created_at timestamptz NOT NULL,
  -- When its owner, or the server by disabling it, last changed it.
  updated_at timestamptz NOT NULL,
  CHECK ((failures = 0) = (failing_since IS NULL)),
  CHECK ((previous_secret IS NULL) = (previous_until IS NULL)),
  CHECK (disabled_reason IS NULL OR NOT is_enabled)
);
CREATE INDEX webhooks_of_tenant ON webhooks (tenant_id);

-- Events on their way to a webhook, and the last ones that ended.
CREATE TABLE webhook_deliveries (
  -- The webhook.
  webhook_id text NOT NULL REFERENCES webhooks ON DELETE CASCADE,
  -- The event's id, which the receiver gets as webhook-id.
  event_id text NOT NULL,
  -- Its position in tenant_events; null: a test, which is not there.
  event_position bigint,
  -- The order of delivery. A redelivery or a replay gives a new one.
  sequence bigint GENERATED BY DEFAULT AS IDENTITY,
  -- What the event is about: events of one resource are delivered in order.
  resource_id text NOT NULL,
  -- The type that the body names.
  type text NOT NULL,
  -- What is sent, byte for byte.
  body text NOT NULL,
  -- pending: waits for its next attempt. failed: no further attempt.
  status text NOT NULL CHECK (status IN ('pending', 'delivered', 'failed')),
  -- How often it was attempted since it was queued.
  attempts integer NOT NULL,
  -- When it was queued, last by a redelivery or a replay.
  queued_at timestamptz NOT NULL,
  -- Not before; null unless pending.
  next_attempt_at timestamptz,
  -- When it was last attempted.
  last_attempt_at timestamptz,
  -- The HTTP status of the last attempt; null: there was no answer.
  last_status integer,
  -- Why the last attempt failed; null: it did not.
  last_error text,
  PRIMARY KEY (webhook_id, event_id),
  CHECK ((status = 'pending') = (next_attempt_at IS NOT NULL))
);
CREATE INDEX webhook_deliveries_order ON webhook_deliveries (webhook_id, sequence);
CREATE INDEX webhook_deliveries_pending ON webhook_deliveries (webhook_id, resource_id, sequence)
  WHERE status = 'pending';
