-- Operations: long work that a user can watch, and that any server can take over from one that died.

CREATE TABLE operations (
  id text PRIMARY KEY CHECK (id ~ '^op-[0-9a-f]{32}$'),
  tenant_id text NOT NULL REFERENCES tenants (id),
  kind text NOT NULL CHECK (kind IN (
    'app deploy', 'app scale', 'app promote', 'app redeploy', 'app destroy', 'node drain',
    'machine export', 'machine branch', 'machine move', 'image pull')),
  status text NOT NULL CHECK (status IN ('running', 'succeeded', 'failed', 'canceled')),
  resource_kind text NOT NULL,
  resource_id text NOT NULL,
  resource_name text,
  input jsonb NOT NULL CHECK (jsonb_typeof(input) = 'object'),
  steps jsonb NOT NULL CHECK (jsonb_typeof(steps) = 'array'),
  error text,
  created_at timestamptz NOT NULL,
  updated_at timestamptz NOT NULL,
  deadline_at timestamptz NOT NULL,
  attempt integer NOT NULL CHECK (attempt >= 0),
  leased_until timestamptz,
  CONSTRAINT failed_iff_error CHECK ((status = 'failed') = (error IS NOT NULL)),
  CONSTRAINT leased_while_running CHECK ((status = 'running') = (leased_until IS NOT NULL))
) WITH (fillfactor = 80);
COMMENT ON TABLE operations IS 'Long work that a user can watch. Written by server/src/operations/store.ts only.';
COMMENT ON COLUMN operations.id IS 'op-<32 hex>.';
COMMENT ON COLUMN operations.tenant_id IS 'Whose it is; nobody else sees it.';
COMMENT ON COLUMN operations.kind IS 'What it is about: OPERATION_KINDS of the contract.';
COMMENT ON COLUMN operations.status IS 'Anything but running is final.';
COMMENT ON COLUMN operations.resource_kind IS 'What kind of thing it works on, such as image.';
COMMENT ON COLUMN operations.resource_id IS 'The id of that thing.';
COMMENT ON COLUMN operations.resource_name IS 'Its name, where it has one.';
COMMENT ON COLUMN operations.input IS 'What its worker needs to know; the shape is the kind''s own business.';
COMMENT ON COLUMN operations.steps IS 'OperationStep[] of the contract: what users see, and what a server that takes over goes on from.';
COMMENT ON COLUMN operations.error IS 'Why it failed, in one sentence.';
COMMENT ON COLUMN operations.created_at IS 'When it was asked for.';
COMMENT ON COLUMN operations.updated_at IS 'When a step or the status last changed.';
COMMENT ON COLUMN operations.deadline_at IS 'It has failed when it still runs then.';
COMMENT ON COLUMN operations.attempt IS 'Grows each time a server takes it up: the fence of the servers before.';
COMMENT ON COLUMN operations.leased_until IS 'Until then no other server takes it up; null once it has ended.';

CREATE INDEX operations_list ON operations (tenant_id, created_at DESC, id DESC);
CREATE INDEX operations_due ON operations (leased_until) WHERE leased_until IS NOT NULL;
CREATE INDEX operations_running ON operations (tenant_id) WHERE status = 'running';
CREATE INDEX operations_ended ON operations (updated_at) WHERE status <> 'running';
