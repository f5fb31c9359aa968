-- An operation may upgrade nodes.

ALTER TABLE operations DROP CONSTRAINT operations_kind_check;
ALTER TABLE operations ADD CONSTRAINT operations_kind_check CHECK (kind IN (
  'app deploy', 'app scale', 'app promote', 'app redeploy', 'app destroy', 'node drain', 'node upgrade',
  'machine export', 'machine branch', 'machine move', 'image pull'));
