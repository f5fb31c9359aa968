-- Finds rows of the audit log of all tenants by time, key and resource; node registrations have a chain as well.
ALTER TABLE audit_log ADD COLUMN key_id text, ADD COLUMN resource text;
COMMENT ON COLUMN audit_log.key_id IS 'As in record, to find rows by it.';
COMMENT ON COLUMN audit_log.resource IS 'The first id of the resource in record, to find rows by it.';

ALTER TABLE audit_log DISABLE TRIGGER audit_log_append_only;
UPDATE audit_log SET key_id = substring(record FROM '"keyId":"([^"\\]*)"'),
  resource = split_part(substring(record FROM '"resource":"([^"\\]*)"'), '/', 1);
ALTER TABLE audit_log ENABLE TRIGGER audit_log_append_only;

DROP INDEX audit_log_age;
CREATE INDEX audit_log_time ON audit_log (at, tenant_id, sequence);
CREATE INDEX audit_log_of_key ON audit_log (key_id, at);
CREATE INDEX audit_log_of_resource ON audit_log (resource, at);

-- As before, with the columns above. A record without a tenant is of a node: it goes to the chain of the first tenant.
CREATE OR REPLACE FUNCTION append_audit(records jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  operator text;
  chain record;
  item record;
  last_sequence bigint;
  last_hash text;
  next_hash text;
BEGIN
  IF jsonb_path_exists(records, '$[*] ? (@.tenantId == null)') THEN
    SELECT id INTO operator FROM tenants WHERE name = 'default';
  END IF;
  -- In one order everywhere, so that two servers do not wait for each other in a circle.
  FOR chain IN SELECT coalesce(r ->> 'tenantId', operator) AS tenant FROM jsonb_array_elements(records) AS r GROUP BY 1 ORDER BY 1 LOOP
    INSERT INTO audit_chains (tenant_id, sequence, hash) VALUES (chain.tenant, 0, repeat('0', 64))
    ON CONFLICT (tenant_id) DO UPDATE SET sequence = audit_chains.sequence
    RETURNING sequence, hash INTO last_sequence, last_hash;
    FOR item IN
      SELECT r ->> 'record' AS record, (r ->> 'at')::timestamptz AS at, r ->> 'keyId' AS key_id,
        split_part(r ->> 'resource', '/', 1) AS resource
      FROM jsonb_array_elements(records) WITH ORDINALITY AS e(r, place)
      WHERE coalesce(r ->> 'tenantId', operator) = chain.tenant ORDER BY place
    LOOP
      last_sequence := last_sequence + 1;
      next_hash := encode(sha256(convert_to(
        last_hash || E'\n' || chain.tenant || E'\n' || last_sequence || E'\n' || item.record, 'UTF8')), 'hex');
      INSERT INTO audit_log (tenant_id, sequence, at, record, previous_hash, hash, key_id, resource)
      VALUES (chain.tenant, last_sequence, item.at, item.record, last_hash, next_hash, item.key_id, item.resource);
      last_hash := next_hash;
    END LOOP;
    UPDATE audit_chains SET sequence = last_sequence, hash = last_hash WHERE tenant_id = chain.tenant;
  END LOOP;
END $$;
