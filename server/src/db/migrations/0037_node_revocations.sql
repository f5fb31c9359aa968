-- Join tokens that were made before a node was revoked do not admit it again.
CREATE TABLE node_revocations (
  node_id text NOT NULL,
  key_hash bytea,
  revoked_at timestamptz NOT NULL,
  UNIQUE NULLS NOT DISTINCT (node_id, key_hash)
);
CREATE INDEX node_revocations_by_key ON node_revocations (key_hash);
COMMENT ON TABLE node_revocations IS
  'Nodes that an operator has revoked; kept also when the node is admitted again or its row is removed. Written by server/src/nodes/revocation-store.ts only.';
COMMENT ON COLUMN node_revocations.node_id IS 'The id that it had.';
COMMENT ON COLUMN node_revocations.key_hash IS 'SHA-256 of its public key; null: it had none, as a node of the server''s host.';
COMMENT ON COLUMN node_revocations.revoked_at IS
  'The last time. A join token made before admits neither the id nor the key; the server''s own token counts as made when the server started.';
INSERT INTO node_revocations (node_id, key_hash, revoked_at) SELECT id, key_hash, now() FROM nodes WHERE status = 'revoked';
