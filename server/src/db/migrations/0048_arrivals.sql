-- A move reserves the machine's share of the node to which it moves, as a start does: otherwise machines that arrive, and starts
-- meanwhile, exceed the node's ceilings. The share of the node that it leaves is kept, because the move may fail.
CREATE INDEX machines_arriving ON machines (move_node_id) INCLUDE (cpus, memory_mb) WHERE is_active AND move_node_id IS NOT NULL AND NOT move_stops;

CREATE OR REPLACE FUNCTION node_admits_start(
  node text, is_new boolean, cpus integer, memory_mb integer, cpu_ratio float8, memory_ratio float8
) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  held nodes%ROWTYPE;
  promised_cpus bigint;
  promised_memory_mb bigint;
BEGIN
  IF cpu_ratio IS NULL AND memory_ratio IS NULL THEN
    SELECT * INTO held FROM nodes WHERE id = node FOR SHARE;
  ELSE
    SELECT * INTO held FROM nodes WHERE id = node FOR NO KEY UPDATE;
  END IF;
  IF NOT FOUND OR held.status IN ('draining', 'drained', 'revoked') THEN RETURN false; END IF;
  IF is_new AND (held.status <> 'ready' OR held.cordoned_at IS NOT NULL) THEN RETURN false; END IF;
  IF cpu_ratio IS NULL AND memory_ratio IS NULL THEN RETURN true; END IF;
  SELECT coalesce(sum(m.cpus), 0), coalesce(sum(m.memory_mb), 0) INTO promised_cpus, promised_memory_mb
    FROM (
      SELECT p.cpus, p.memory_mb FROM machines p WHERE p.node_id = node AND p.is_active
      UNION ALL
      SELECT a.cpus, a.memory_mb FROM machines a WHERE a.move_node_id = node AND a.is_active AND NOT a.move_stops) m;
  RETURN (cpu_ratio IS NULL OR held.total_cpus = 0 OR promised_cpus + cpus <= floor(held.total_cpus * cpu_ratio))
    AND (memory_ratio IS NULL OR held.total_memory_mb = 0
      OR promised_memory_mb + memory_mb <= floor(held.total_memory_mb * memory_ratio));
END $$;
