-- A node that gets no new machines, while those that it has run and start as before.
ALTER TABLE nodes ADD COLUMN cordoned_at timestamptz;
COMMENT ON COLUMN nodes.cordoned_at IS
  'Since when an operator lets no new machine be placed there; null: they may be. It outlasts restarts, drains and revocation.';
