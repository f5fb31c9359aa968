-- The audit log: one hash chain for each tenant.
CREATE TABLE audit_chains (
  tenant_id text PRIMARY KEY REFERENCES tenants (id),
  sequence bigint NOT NULL,
  hash text NOT NULL
);
COMMENT ON TABLE audit_chains IS 'The end of each chain. Its row is locked while rows are appended, so that tenants do not wait for each other.';
COMMENT ON COLUMN audit_chains.tenant_id IS 'Whose chain it is: that of the keys that called.';
COMMENT ON COLUMN audit_chains.sequence IS 'Of the last row.';
COMMENT ON COLUMN audit_chains.hash IS 'Of the last row.';

CREATE TABLE audit_log (
  tenant_id text NOT NULL,
  sequence bigint NOT NULL,
  at timestamptz NOT NULL,
  record text NOT NULL,
  previous_hash text NOT NULL,
  hash text NOT NULL,
  PRIMARY KEY (tenant_id, sequence)
);
CREATE INDEX audit_log_age ON audit_log (at);
COMMENT ON TABLE audit_log IS 'Calls that changed something or were refused. Rows are never changed, and deleted only by purge_audit.';
COMMENT ON COLUMN audit_log.tenant_id IS 'The tenant of the key that called.';
COMMENT ON COLUMN audit_log.sequence IS 'From 1, without gaps.';
COMMENT ON COLUMN audit_log.at IS 'When the call was answered.';
COMMENT ON COLUMN audit_log.record IS 'Who did what, as JSON text: what the hash is computed from.';
COMMENT ON COLUMN audit_log.previous_hash IS 'Of the row before; of the first row 64 zeros.';
COMMENT ON COLUMN audit_log.hash IS 'SHA-256 in hex of previous_hash, tenant_id, sequence and record, separated by newlines.';

CREATE FUNCTION append_audit(records jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  chain record;
  item record;
  last_sequence bigint;
  last_hash text;
  next_hash text;
BEGIN
  -- In one order everywhere, so that two servers do not wait for each other in a circle.
  FOR chain IN SELECT r ->> 'tenantId' AS tenant FROM jsonb_array_elements(records) AS r GROUP BY 1 ORDER BY 1 LOOP
    INSERT INTO audit_chains (tenant_id, sequence, hash) VALUES (chain.tenant, 0, repeat('0', 64))
    ON CONFLICT (tenant_id) DO UPDATE SET sequence = audit_chains.sequence
    RETURNING sequence, hash INTO last_sequence, last_hash;
    FOR item IN
      SELECT r ->> 'record' AS record, (r ->> 'at')::timestamptz AS at
      FROM jsonb_array_elements(records) WITH ORDINALITY AS e(r, place)
      WHERE r ->> 'tenantId' = chain.tenant ORDER BY place
    LOOP
      last_sequence := last_sequence + 1;
      next_hash := encode(sha256(convert_to(
        last_hash || E'\n' || chain.tenant || E'\n' || last_sequence || E'\n' || item.record, 'UTF8')), 'hex');
      INSERT INTO audit_log (tenant_id, sequence, at, record, previous_hash, hash)
      VALUES (chain.tenant, last_sequence, item.at, item.record, last_hash, next_hash);
      last_hash := next_hash;
    END LOOP;
    UPDATE audit_chains SET sequence = last_sequence, hash = last_hash WHERE tenant_id = chain.tenant;
  END LOOP;
END $$;

CREATE FUNCTION refuse_audit_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'DELETE' AND current_setting('flotilla.audit_purge', true) = 'on' THEN RETURN OLD; END IF;
  RAISE EXCEPTION 'rows of audit_log are append-only: % is refused', TG_OP;
END $$;
CREATE TRIGGER audit_log_append_only BEFORE UPDATE OR DELETE ON audit_log
  FOR EACH ROW EXECUTE FUNCTION refuse_audit_change();
CREATE TRIGGER audit_log_no_truncate BEFORE TRUNCATE ON audit_log
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_audit_change();

-- Deletes the oldest rows of chains, never one in the middle.
CREATE FUNCTION purge_audit(before timestamptz, most integer) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
  purged integer;
BEGIN
  PERFORM set_config('flotilla.audit_purge', 'on', true);
  DELETE FROM audit_log a USING (
    SELECT tenant_id, sequence FROM audit_log o WHERE o.at < before
      AND NOT EXISTS (
        SELECT FROM audit_log k WHERE k.tenant_id = o.tenant_id AND k.sequence < o.sequence AND k.at >= before)
    ORDER BY tenant_id, sequence LIMIT most) old
  WHERE a.tenant_id = old.tenant_id AND a.sequence = old.sequence;
  GET DIAGNOSTICS purged = ROW_COUNT;
  PERFORM set_config('flotilla.audit_purge', 'off', true);
  RETURN purged;
END $$;
