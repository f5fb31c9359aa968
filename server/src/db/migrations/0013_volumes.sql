-- Records of volumes: the API lists them, but they have no storage.

-- A size and a place for a name, which nothing is stored in.
CREATE TABLE volumes (
  -- vol-<32 hex>.
  id text PRIMARY KEY,
  -- Whose volume it is.
  tenant_id text NOT NULL REFERENCES tenants,
  -- Unique in the tenant.
  name text NOT NULL,
  -- The node that the request named; empty: none.
  node text NOT NULL,
  -- The size that the request named, in GB.
  size_gb bigint NOT NULL CHECK (size_gb > 0),
  -- When it was created.
  created_at timestamptz NOT NULL,
  UNIQUE (tenant_id, name)
);
