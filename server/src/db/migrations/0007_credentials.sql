-- Ceilings of API keys, connect tokens and sessions; and which keys a key has made.

CREATE INDEX api_keys_of_creator ON api_keys (created_by) WHERE created_by IS NOT NULL;
CREATE INDEX api_keys_revoked ON api_keys (revoked_at) WHERE revoked_at IS NOT NULL;
CREATE INDEX connect_tokens_by_expiry ON connect_tokens (expires_at);

-- How many a tenant or a machine holds now, counted under a lock on its row until the end of the transaction, as
-- held_machines_locked does it.
CREATE FUNCTION good_keys_locked(tenant text, at timestamptz) RETURNS integer LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  PERFORM 1 FROM tenants WHERE id = tenant FOR NO KEY UPDATE;
  RETURN (SELECT count(*) FROM api_keys
    WHERE tenant_id = tenant AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > at));
END $$;

CREATE FUNCTION good_connect_tokens_locked(machine text, at timestamptz) RETURNS integer LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  PERFORM 1 FROM machines WHERE id = machine FOR NO KEY UPDATE;
  RETURN (SELECT count(*) FROM connect_tokens WHERE machine_id = machine AND expires_at > at);
END $$;

CREATE FUNCTION sessions_locked(machine text) RETURNS integer LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  PERFORM 1 FROM machines WHERE id = machine FOR NO KEY UPDATE;
  RETURN (SELECT count(*) FROM machine_sessions WHERE machine_id = machine);
END $$;
