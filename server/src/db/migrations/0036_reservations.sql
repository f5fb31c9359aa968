-- Whether a start may take its share of a node, decided under a lock on the node's row until the end of the transaction.
-- A volatile function sees what was committed while it waited for the lock. Without ceilings starts share the lock: it only
-- keeps the node from being drained or cordoned between the choice of the node and the write of the start.
-- `is_new`: the start places the machine on the node; otherwise its disk is there already. A ratio that is NULL sets no ceiling;
-- neither does a node that has not reported its size.
CREATE FUNCTION node_admits_start(
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
    FROM machines m WHERE m.node_id = node AND m.is_active;
  RETURN (cpu_ratio IS NULL OR held.total_cpus = 0 OR promised_cpus + cpus <= floor(held.total_cpus * cpu_ratio))
    AND (memory_ratio IS NULL OR held.total_memory_mb = 0
      OR promised_memory_mb + memory_mb <= floor(held.total_memory_mb * memory_ratio));
END $$;

ALTER TABLE machines ADD COLUMN node_labels jsonb NOT NULL DEFAULT '{}';
COMMENT ON COLUMN machines.node_labels IS 'Labels that the node on which the machine is placed must have, with their values.';
