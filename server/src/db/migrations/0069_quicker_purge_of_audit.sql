-- As before, from the beginning of each chain up to its first row that is kept. It looked for that row once for each old row: in a chain with
-- n old rows it read n²/2 of them, and with some thousands it took longer than a statement may.
CREATE OR REPLACE FUNCTION purge_audit(before timestamptz, most integer) RETURNS integer LANGUAGE plpgsql AS $$
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
