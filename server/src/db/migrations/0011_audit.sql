-- The audit log: one hash chain for each tenant.

-- The end of each chain. Its row is locked while rows are appended, so that tenants do not wait for each
-- other.
CREATE TABLE audit_chains (
  -- Whose chain it is: that of the keys that called.
  tenant_id text PRIMARY KEY REFERENCES tenants,
  -- Number of the last row.
  sequence bigint NOT NULL,
  -- Hash of the last row.
  hash text NOT NULL
);

-- Calls that changed something or were refused. Rows are never changed, and deleted only by purge_audit.
CREATE TABLE audit_log (
  -- The tenant of the key that called.
  tenant_id text NOT NULL,
  -- From 1, without gaps.
  sequence bigint NOT NULL,
  -- When the call was answered.
  at timestamptz NOT NULL,
  -- The call and its caller, as JSON text: what the hash is computed from.
  record text NOT NULL,
  -- Hash of the row before; of the first row 64 zeros.
  previous_hash text NOT NULL,
  -- SHA-256 in hex of previous_hash, tenant_id, sequence and record, separated by newlines.
  hash text NOT NULL,
  -- As in record, to find rows by it.
  key_id text,
  -- As in record, to find rows by it.
  type text NOT NULL,
  -- The first id of the resource in record, to find rows by it.
  resource text,
  PRIMARY KEY (tenant_id, sequence)
);
CREATE INDEX audit_log_of_key ON audit_log (key_id, at);
CREATE INDEX audit_log_of_resource ON audit_log (resource, at);
-- A tenant's calls since an instant, in their order: rows before it are passed over in the index.
CREATE INDEX audit_log_order ON audit_log (tenant_id, sequence, at);
-- Rows of all tenants by time.
CREATE INDEX audit_log_time ON audit_log (at, tenant_id, sequence);

-- Appends records to the chains of their tenants: all together, and each chain is locked without a new
-- version of its row. A record without a tenant is of a node: it goes to the chain of the first tenant.
CREATE FUNCTION append_audit(records jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  operator text;
  item record;
  chain text;
  last_sequence bigint;
  last_hash text;
  previous_hash text;
  chains text[] := '{}';
  ends bigint[] := '{}';
  end_hashes text[] := '{}';
  tenants_of text[] := '{}';
  sequences bigint[] := '{}';
  ats timestamptz[] := '{}';
  texts text[] := '{}';
  previous_hashes text[] := '{}';
  hashes text[] := '{}';
  keys text[] := '{}';
  types text[] := '{}';
  resources text[] := '{}';
BEGIN
  IF jsonb_path_exists(records, '$[*] ? (@.tenantId == null)') THEN
    SELECT id INTO operator FROM tenants WHERE name = 'default';
  END IF;
  INSERT INTO audit_chains (tenant_id, sequence, hash)
  SELECT DISTINCT coalesce(r ->> 'tenantId', operator), 0, repeat('0', 64) FROM jsonb_array_elements(records) AS r
  WHERE NOT EXISTS (SELECT FROM audit_chains c WHERE c.tenant_id = coalesce(r ->> 'tenantId', operator))
  ORDER BY 1 ON CONFLICT DO NOTHING;
  -- In one order everywhere, so that two servers do not wait for each other in a circle.
  PERFORM FROM audit_chains c
  WHERE c.tenant_id IN (SELECT coalesce(r ->> 'tenantId', operator) FROM jsonb_array_elements(records) AS r)
  ORDER BY c.tenant_id FOR NO KEY UPDATE;
  FOR item IN
    SELECT coalesce(r ->> 'tenantId', operator) AS tenant, r ->> 'record' AS record, (r ->> 'at')::timestamptz AS at,
      r ->> 'keyId' AS key_id, r ->> 'type' AS type, split_part(r ->> 'resource', '/', 1) AS resource, c.sequence, c.hash
    FROM jsonb_array_elements(records) WITH ORDINALITY AS e(r, place)
    JOIN audit_chains c ON c.tenant_id = coalesce(r ->> 'tenantId', operator)
    ORDER BY 1, place
  LOOP
    IF chain IS DISTINCT FROM item.tenant THEN
      IF chain IS NOT NULL THEN
        chains := chains || chain;
        ends := ends || last_sequence;
        end_hashes := end_hashes || last_hash;
      END IF;
      chain := item.tenant;
      last_sequence := item.sequence;
      last_hash := item.hash;
    END IF;
    last_sequence := last_sequence + 1;
    previous_hash := last_hash;
    last_hash := encode(sha256(convert_to(
      previous_hash || E'\n' || chain || E'\n' || last_sequence || E'\n' || item.record, 'UTF8')), 'hex');
    tenants_of := tenants_of || chain;
    sequences := sequences || last_sequence;
    ats := ats || item.at;
    texts := texts || item.record;
    previous_hashes := previous_hashes || previous_hash;
    hashes := hashes || last_hash;
    keys := array_append(keys, item.key_id);
    types := array_append(types, item.type);
    resources := array_append(resources, item.resource);
  END LOOP;
  IF chain IS NULL THEN RETURN; END IF;
  INSERT INTO audit_log (tenant_id, sequence, at, record, previous_hash, hash, key_id, type, resource)
  SELECT * FROM unnest(tenants_of, sequences, ats, texts, previous_hashes, hashes, keys, types, resources);
  UPDATE audit_chains c SET sequence = e.sequence, hash = e.hash
  FROM unnest(chains || chain, ends || last_sequence, end_hashes || last_hash) AS e(tenant_id, sequence, hash)
  WHERE c.tenant_id = e.tenant_id;
END $$;

-- Deletes the oldest rows of chains, from the beginning of each chain up to its first row that is kept, never
-- one in the middle.
CREATE FUNCTION purge_audit(before timestamptz, most integer) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
  purged integer;
BEGIN
  IF (SELECT min(o.at) FROM audit_log o) >= before THEN RETURN 0; END IF;
  PERFORM set_config('flotilla.audit_purge', 'on', true);
  DELETE FROM audit_log a USING (
    SELECT c.tenant_id, o.sequence FROM audit_chains c
    CROSS JOIN LATERAL (SELECT f.at FROM audit_log f WHERE f.tenant_id = c.tenant_id ORDER BY f.sequence LIMIT 1) beginning
    CROSS JOIN LATERAL (
      SELECT r.sequence, bool_and(r.at < before) OVER (ORDER BY r.sequence) AS is_old
      FROM (SELECT l.sequence, l.at FROM audit_log l WHERE l.tenant_id = c.tenant_id ORDER BY l.sequence LIMIT most) r) o
    WHERE beginning.at < before AND o.is_old LIMIT most) old
  WHERE a.tenant_id = old.tenant_id AND a.sequence = old.sequence;
  GET DIAGNOSTICS purged = ROW_COUNT;
  PERFORM set_config('flotilla.audit_purge', 'off', true);
  RETURN purged;
END $$;

-- Refuses every change of the log but a purge.
CREATE FUNCTION refuse_audit_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'DELETE' AND current_setting('flotilla.audit_purge', true) = 'on' THEN RETURN OLD; END IF;
  RAISE EXCEPTION 'rows of audit_log are append-only: % is refused', TG_OP;
END $$;

CREATE TRIGGER audit_log_append_only BEFORE DELETE OR UPDATE ON audit_log
  FOR EACH ROW EXECUTE FUNCTION refuse_audit_change();
CREATE TRIGGER audit_log_no_truncate BEFORE TRUNCATE ON audit_log
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_audit_change();
