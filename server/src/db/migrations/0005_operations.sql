-- Operations: long work that a user can watch, and that another server continues when its server dies.

-- Long work that a user can watch. Written by server/src/operations/store.ts only.
CREATE TABLE operations (
  -- op-<32 hex>.
  id text PRIMARY KEY CHECK (id ~ '^op-[0-9a-f]{32}$'),
  -- Whose it is; no other tenant sees it.
  tenant_id text NOT NULL REFERENCES tenants,
  -- What it is about: OPERATION_KINDS of the contract.
  kind text NOT NULL
    CHECK (kind IN (
      'app deploy', 'app scale', 'app promote', 'app redeploy', 'app rollback', 'app destroy',
      'node drain', 'node upgrade', 'machine export', 'machine branch', 'machine checkpoint', 'machine move', 'image pull', 'registry collection')),
  -- Anything but running is final.
  status text NOT NULL CHECK (status IN ('running', 'succeeded', 'failed', 'canceled')),
  -- What kind of thing it works on, such as image.
  resource_kind text NOT NULL,
  -- The id of that thing.
  resource_id text NOT NULL,
  -- Its name, where it has one.
  resource_name text,
  -- What its worker needs to know; the shape is the kind's own business.
  input jsonb NOT NULL CHECK (jsonb_typeof(input) = 'object'),
  -- OperationStep[] of the contract: what users see, and where a server that takes over continues.
  steps jsonb NOT NULL CHECK (jsonb_typeof(steps) = 'array'),
  -- Why it failed, in one sentence.
  error text,
  -- The code of the refusal for which it failed, as in the answers of the API; null: it failed otherwise.
  error_code text,
  -- Grows each time a server begins to work on it: the fence of the servers before.
  attempt integer NOT NULL CHECK (attempt >= 0),
  -- Until then no other server works on it; null once it has ended.
  leased_until timestamptz,
  -- It has failed when it still runs then.
  deadline_at timestamptz NOT NULL,
  -- Since when it is to be canceled; null: it is not. The server that works on it undoes what it did and ends
  -- it.
  cancel_requested_at timestamptz,
  -- When it was asked for.
  created_at timestamptz NOT NULL,
  -- When a step or the status last changed.
  updated_at timestamptz NOT NULL,
  CONSTRAINT failed_iff_error CHECK ((status = 'failed') = (error IS NOT NULL)),
  CONSTRAINT leased_while_running CHECK ((status = 'running') = (leased_until IS NOT NULL))
) WITH (fillfactor = 80);
CREATE INDEX operations_due ON operations (leased_until) WHERE leased_until IS NOT NULL;
CREATE INDEX operations_ended ON operations (updated_at) WHERE status <> 'running';
CREATE INDEX operations_list ON operations (tenant_id, created_at DESC, id DESC);
CREATE INDEX operations_running ON operations (tenant_id) WHERE status = 'running';
