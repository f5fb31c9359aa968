-- Secret variables of machines: encrypted with a key that is not in the database, and never shown.

ALTER TABLE machines
  ADD COLUMN secret_env bytea,
  ADD COLUMN secret_names text[] NOT NULL DEFAULT '{}';
COMMENT ON COLUMN machines.secret_env IS 'Secret variables, encrypted as server/src/machines/secrets.ts says; null: none.';
COMMENT ON COLUMN machines.secret_names IS 'Their names, which are shown.';
