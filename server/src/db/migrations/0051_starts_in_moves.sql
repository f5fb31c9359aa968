-- A machine that is started while it moves takes a share of both nodes: of the one it goes to, and of the one where it is, because the
-- move may fail. Both are locked in the order of their ids, as the statement that begins a move does.
CREATE FUNCTION nodes_admit_start_in_move(
  machine text, source text, target text, cpus integer, memory_mb integer, cpu_ratio float8, memory_ratio float8
) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  held nodes%ROWTYPE;
  promised_cpus bigint;
  promised_memory_mb bigint;
BEGIN
  IF cpu_ratio IS NULL AND memory_ratio IS NULL THEN RETURN true; END IF;
  FOR held IN SELECT * FROM nodes WHERE id IN (source, target) ORDER BY id FOR NO KEY UPDATE LOOP
    SELECT coalesce(sum(m.cpus), 0), coalesce(sum(m.memory_mb), 0) INTO promised_cpus, promised_memory_mb
      FROM (
        SELECT p.cpus, p.memory_mb FROM machines p WHERE p.node_id = held.id AND p.is_active AND p.id <> machine
        UNION ALL
        SELECT a.cpus, a.memory_mb FROM machines a WHERE a.move_node_id = held.id AND a.is_active AND NOT a.move_stops AND a.id <> machine) m;
    IF cpu_ratio IS NOT NULL AND held.total_cpus > 0 AND promised_cpus + cpus > floor(held.total_cpus * cpu_ratio) THEN
      RETURN false;
    END IF;
    IF memory_ratio IS NOT NULL AND held.total_memory_mb > 0
      AND promised_memory_mb + memory_mb > floor(held.total_memory_mb * memory_ratio) THEN
      RETURN false;
    END IF;
  END LOOP;
  RETURN true;
END $$;
