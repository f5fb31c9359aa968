-- Connect tokens: what opens the ports of one machine for a while.

CREATE TABLE connect_tokens (
  token_hash bytea PRIMARY KEY CHECK (length(token_hash) = 32),
  machine_id text NOT NULL REFERENCES machines (id) ON DELETE CASCADE,
  key_id text NOT NULL REFERENCES api_keys (id) ON DELETE CASCADE,
  expires_at timestamptz NOT NULL
);
COMMENT ON TABLE connect_tokens IS 'What opens the connect bridge of one machine for a while. Written by server/src/machines/connect/store.ts only.';
COMMENT ON COLUMN connect_tokens.token_hash IS 'SHA-256 of the token, which is shown once.';
COMMENT ON COLUMN connect_tokens.machine_id IS 'The machine it opens.';
COMMENT ON COLUMN connect_tokens.key_id IS 'The API key that made it: it is good for as long as that one is.';
COMMENT ON COLUMN connect_tokens.expires_at IS 'From then on it opens nothing.';
CREATE INDEX connect_tokens_machine ON connect_tokens (machine_id, expires_at);
