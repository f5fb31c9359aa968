-- Moves of machines between nodes, and the cancelling of operations.

ALTER TABLE machines ADD COLUMN move_id text;
ALTER TABLE machines ADD COLUMN move_node_id text;
ALTER TABLE machines ADD COLUMN moved_by text;
ALTER TABLE machines ADD CONSTRAINT move_has_target CHECK ((move_id IS NULL) = (move_node_id IS NULL));
COMMENT ON COLUMN machines.node_id IS
  'The node that owns its disk, and the only one on which it may run; null until its first start. Only a move changes it.';
COMMENT ON COLUMN machines.move_id IS
  'The operation that moves it; null: none. While it is set the node receives stopped, whatever is desired.';
COMMENT ON COLUMN machines.move_node_id IS 'The node to which it moves; null exactly when move_id is.';
COMMENT ON COLUMN machines.moved_by IS 'The operation of its last completed move; null: it never moved.';
CREATE INDEX machines_moving ON machines (node_id) WHERE move_id IS NOT NULL;

-- A copy of a machine's files on a node that does not own them: of the target while a move is under way or after it failed, of the
-- source after it was completed. Removed when the node has confirmed that the copy is gone.
CREATE TABLE machine_copies (
  machine_id text NOT NULL,
  node_id text NOT NULL,
  PRIMARY KEY (machine_id, node_id)
);
COMMENT ON TABLE machine_copies IS
  'Files of machines on nodes that do not own them, to be removed. Written by server/src/moves/store.ts only.';
COMMENT ON COLUMN machine_copies.machine_id IS 'mach-<32 hex>; the row may outlive the machine''s.';
COMMENT ON COLUMN machine_copies.node_id IS 'The node that has, or may have, the copy.';

-- How many machines are moving away from a node. The lock on the node's row makes the count exact for concurrent moves.
CREATE FUNCTION moves_from_locked(node text) RETURNS integer LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  PERFORM 1 FROM nodes WHERE id = node FOR NO KEY UPDATE;
  RETURN (SELECT count(*) FROM machines WHERE node_id = node AND move_id IS NOT NULL);
END $$;

ALTER TABLE operations ADD COLUMN cancel_requested_at timestamptz;
COMMENT ON COLUMN operations.cancel_requested_at IS
  'Since when it is to be canceled; null: it is not. The server that works on it undoes what it did and ends it.';
