-- What sessions of a machine hold is bounded in all.

ALTER TABLE machine_sessions ADD COLUMN bytes integer NOT NULL
  GENERATED ALWAYS AS (octet_length(env::text) + coalesce(octet_length(cwd), 0)) STORED;
COMMENT ON COLUMN machine_sessions.bytes IS 'Of its variables and directory; those of all sessions of a machine are bounded together.';
