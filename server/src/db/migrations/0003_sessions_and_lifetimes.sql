-- Sessions of machines, and what the loop that ends machines looks them up by.

CREATE TABLE machine_sessions (
  machine_id text NOT NULL REFERENCES machines (id) ON DELETE CASCADE,
  id text NOT NULL CHECK (id ~ '^[A-Za-z0-9._-]{1,128}$'),
  cwd text,
  env jsonb NOT NULL CHECK (jsonb_typeof(env) = 'object'),
  unset_names text[] NOT NULL DEFAULT '{}',
  has_profile boolean NOT NULL DEFAULT false,
  created_at timestamptz NOT NULL,
  last_exec_at timestamptz,
  PRIMARY KEY (machine_id, id)
);
COMMENT ON TABLE machine_sessions IS 'What commands of a session leave to the next one. Written by server/src/machines/sessions/store.ts only.';
COMMENT ON COLUMN machine_sessions.machine_id IS 'The machine it belongs to; it outlives stops of it.';
COMMENT ON COLUMN machine_sessions.id IS 'Chosen by the caller, or sess-<32 hex>; unique in the machine.';
COMMENT ON COLUMN machine_sessions.cwd IS 'Where the next command runs; null: the machine''s working directory.';
COMMENT ON COLUMN machine_sessions.env IS 'Variables that differ from the machine''s.';
COMMENT ON COLUMN machine_sessions.unset_names IS 'Variables of the machine that the session does not have.';
COMMENT ON COLUMN machine_sessions.has_profile IS 'A login shell''s profile was read and what it exports is in env: it must not be read again, it would undo changes.';
COMMENT ON COLUMN machine_sessions.created_at IS 'When it was created.';
COMMENT ON COLUMN machine_sessions.last_exec_at IS 'When its last command ended; null: none has.';

CREATE INDEX machines_auto_stop ON machines (id) WHERE auto_stop_seconds > 0 AND desired_state = 'running';
CREATE INDEX machines_ttl ON machines (id) WHERE ttl_seconds > 0 AND deleted_at IS NULL;
