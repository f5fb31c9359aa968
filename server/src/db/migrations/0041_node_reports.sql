-- What an operator needs to know of a node beyond its resources.
ALTER TABLE nodes ADD COLUMN link_version integer, ADD COLUMN clock_ahead_ms bigint, ADD COLUMN certificate_expires_at timestamptz;
COMMENT ON COLUMN nodes.link_version IS 'The version of the link between server and nodes that it has; null: it has not reported since this column exists.';
COMMENT ON COLUMN nodes.clock_ahead_ms IS
  'How far its clock was ahead of the server''s with the last report, without the time that the report took; null: it does not say.';
COMMENT ON COLUMN nodes.certificate_expires_at IS 'When the certificate expires with which it last reported; null: it has none, as a node of the server''s host.';
