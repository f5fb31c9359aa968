-- Ingress processes that nodes on other hosts connect to.
CREATE TABLE ingress_listeners (
  id text PRIMARY KEY CHECK (id ~ '^[0-9a-f]{16}$'),
  addresses text[] NOT NULL,
  public_key text NOT NULL CHECK (length(public_key) <= 1000),
  certificates jsonb NOT NULL CHECK (jsonb_typeof(certificates) = 'object'),
  seen_at timestamptz NOT NULL
);
COMMENT ON TABLE ingress_listeners IS 'Where running ingresses listen for nodes on other hosts. Written by server/src/link/ingress-store.ts only.';
COMMENT ON COLUMN ingress_listeners.id IS 'Computed from the addresses, so that an ingress that was restarted has the same.';
COMMENT ON COLUMN ingress_listeners.addresses IS 'host:port, in the order in which nodes try them.';
COMMENT ON COLUMN ingress_listeners.public_key IS 'P-256, as PEM. The private key is in the ingress''s memory only.';
COMMENT ON COLUMN ingress_listeners.certificates IS
  'Of that key, signed by servers: {fingerprint of the authority: {certificate, expiresAt}}. Empty until a server has signed.';
COMMENT ON COLUMN ingress_listeners.seen_at IS 'When its ingress last confirmed it; an old row is ignored, and deleted later.';
