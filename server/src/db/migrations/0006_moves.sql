-- Moves of machines between nodes, and what they leave on nodes.

-- Files of machines on nodes that do not own them, to be removed: of the target while a move runs or after it
-- failed, of the source after it was completed. A row is deleted when the node has confirmed that the copy is
-- gone, or with the node. Written by server/src/moves/store.ts only.
CREATE TABLE machine_copies (
  -- mach-<32 hex>; the row may outlive the machine's.
  machine_id text NOT NULL,
  -- The node that has, or may have, the copy.
  node_id text NOT NULL REFERENCES nodes ON DELETE CASCADE,
  PRIMARY KEY (machine_id, node_id)
);

-- How many machines are moving away from a node.
CREATE FUNCTION moves_from_locked(node text) RETURNS integer LANGUAGE plpgsql AS $$
BEGIN
  PERFORM 1 FROM nodes WHERE id = node FOR NO KEY UPDATE;
  RETURN (SELECT count(*) FROM machines WHERE node_id = node AND move_id IS NOT NULL);
END $$;

-- Whether a machine that moves may be started. It takes a share of both nodes: of the one it goes to, and of
-- the one where it is, because the move may fail. Both are locked in the order of their ids, as the statement
-- that begins a move does.
CREATE FUNCTION nodes_admit_start_in_move(
  machine text, source text, target text, cpus integer, memory_mb integer, cpu_ratio double precision, memory_ratio double precision
) RETURNS boolean LANGUAGE plpgsql AS $$
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
