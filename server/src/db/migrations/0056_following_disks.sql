-- Machines that run on a node before their disk has arrived there.

CREATE TABLE following_disks (
  machine_id text PRIMARY KEY REFERENCES machines (id) ON DELETE CASCADE,
  node_id text NOT NULL REFERENCES nodes (id),
  move_id text NOT NULL,
  began_at timestamptz NOT NULL,
  sent_by text,
  leased_until timestamptz
);
COMMENT ON TABLE following_disks IS
  'Machines whose disk follows them from another node, which keeps it until all of it has arrived. Written by server/src/moves/following-store.ts and store.ts only.';
COMMENT ON COLUMN following_disks.machine_id IS 'The machine that runs, or may run, without all of its disk.';
COMMENT ON COLUMN following_disks.node_id IS
  'The node on which the machine was. Its copy is not removed while this row is there and the machine is not deleted.';
COMMENT ON COLUMN following_disks.move_id IS 'The operation of the move.';
COMMENT ON COLUMN following_disks.began_at IS 'When the machine''s owner changed.';
COMMENT ON COLUMN following_disks.sent_by IS 'The work that sends it; null: none yet.';
COMMENT ON COLUMN following_disks.leased_until IS 'Another server may continue after this; null: at once.';
CREATE INDEX following_disks_of_nodes ON following_disks (node_id);
