-- Nodes on other hosts: the authorities that sign certificates, and where servers listen for nodes.
CREATE TABLE fleet_authorities (
  fingerprint text PRIMARY KEY,
  certificate text NOT NULL,
  private_key bytea NOT NULL,
  created_at timestamptz NOT NULL,
  retired_at timestamptz
);
CREATE UNIQUE INDEX fleet_authorities_signing ON fleet_authorities ((retired_at IS NULL)) WHERE retired_at IS NULL;
COMMENT ON TABLE fleet_authorities IS 'Authorities that servers and nodes trust. Written by server/src/link/fleet-store.ts only.';
COMMENT ON COLUMN fleet_authorities.fingerprint IS 'SHA-256 of the certificate, in hex.';
COMMENT ON COLUMN fleet_authorities.certificate IS 'PEM.';
COMMENT ON COLUMN fleet_authorities.private_key IS 'Encrypted with the key of this installation (server/src/secrets.ts).';
COMMENT ON COLUMN fleet_authorities.created_at IS 'When it was made.';
COMMENT ON COLUMN fleet_authorities.retired_at IS
  'From then on it is still trusted, and signs only certificates of servers, for nodes that know no newer one. null: it signs; at most one.';

CREATE TABLE node_listeners (
  id text PRIMARY KEY,
  addresses text[] NOT NULL,
  seen_at timestamptz NOT NULL
);
COMMENT ON TABLE node_listeners IS 'Where running servers listen for nodes on other hosts. Written by server/src/link/fleet-store.ts only.';
COMMENT ON COLUMN node_listeners.id IS 'Computed from the addresses, so that a server that was restarted has the same.';
COMMENT ON COLUMN node_listeners.addresses IS 'host:port, in the order in which nodes try them.';
COMMENT ON COLUMN node_listeners.seen_at IS 'When its server last confirmed it; an old row is ignored, and deleted later.';

ALTER TABLE nodes ADD COLUMN key_hash bytea, ADD COLUMN joined_with text;
COMMENT ON COLUMN nodes.key_hash IS
  'SHA-256 of the public key (SPKI) of a node that joined with one: its credential and its certificates work only with this key. null: a node of the server''s host.';
COMMENT ON COLUMN nodes.joined_with IS
  'The prefix of the join token with which it was admitted, so that a registration whose answer was lost can be repeated.';
