-- What a move or a drain may do to a machine that runs.
ALTER TABLE machines ADD COLUMN disruption text NOT NULL DEFAULT 'migrate' CHECK (disruption IN ('migrate', 'restart', 'stop'));
ALTER TABLE machines ADD COLUMN move_stops boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN machines.disruption IS
  'When it moves to another node while it runs: its memory moves too where possible, it boots there, or it is stopped and stays so.';
COMMENT ON COLUMN machines.move_stops IS
  'While it is to run and move_id is set: whether it is to be stopped when the move is complete. A move that fails lets it run again.';
