-- What an operator needs to know after a restore: machines that a node has and no row of machines places there.
ALTER TABLE nodes ADD COLUMN unknown_machines text[] NOT NULL DEFAULT '{}';
COMMENT ON COLUMN nodes.unknown_machines IS
  'Machines that the node has reported and does not own; it keeps them. At most 1000. Copies that moves left, which are removed, are not among them.';
