-- The console's sign-in: one-time links, and the sessions of browsers.

-- Links that sign one browser in. A row is deleted when its link is opened.
CREATE TABLE console_links (
  -- SHA-256 of the token in the link; the token itself is kept nowhere.
  token_hash bytea PRIMARY KEY CHECK (octet_length(token_hash) = 32),
  -- The key that made it, which the session will represent.
  key_id text NOT NULL REFERENCES api_keys ON DELETE CASCADE,
  -- From then on it is refused.
  expires_at timestamptz NOT NULL
);
CREATE INDEX console_links_of_key ON console_links (key_id);
CREATE INDEX console_links_by_expiry ON console_links (expires_at);

-- Browsers that are signed in. A row is deleted when its browser signs out.
CREATE TABLE console_sessions (
  -- SHA-256 of the token in the cookie; the token itself is kept nowhere.
  token_hash bytea PRIMARY KEY CHECK (octet_length(token_hash) = 32),
  -- The key that it represents.
  key_id text NOT NULL REFERENCES api_keys ON DELETE CASCADE,
  -- When the browser signed in.
  created_at timestamptz NOT NULL,
  -- From then on it is refused; earlier if the key is.
  expires_at timestamptz NOT NULL
);
CREATE INDEX console_sessions_of_key ON console_sessions (key_id, created_at);
CREATE INDEX console_sessions_by_expiry ON console_sessions (expires_at);
