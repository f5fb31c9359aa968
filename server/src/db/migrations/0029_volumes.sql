-- Records of volumes: the API lists them, but they have no storage.
CREATE TABLE volumes (
  id text PRIMARY KEY,
  tenant_id text NOT NULL REFERENCES tenants (id),
  name text NOT NULL,
  node text NOT NULL,
  size_gb bigint NOT NULL CHECK (size_gb > 0),
  created_at timestamptz NOT NULL,
  UNIQUE (tenant_id, name)
);
COMMENT ON TABLE volumes IS 'Records of volumes, without storage.';
COMMENT ON COLUMN volumes.id IS 'vol-<32 hex>.';
COMMENT ON COLUMN volumes.tenant_id IS 'Whose volume it is.';
COMMENT ON COLUMN volumes.name IS 'Unique in the tenant.';
COMMENT ON COLUMN volumes.node IS 'The node that the request named; empty: none.';
COMMENT ON COLUMN volumes.size_gb IS 'The size that the request named, in GB.';
COMMENT ON COLUMN volumes.created_at IS 'When it was created.';
