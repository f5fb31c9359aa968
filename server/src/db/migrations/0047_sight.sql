-- What an operator needs to know of the fleet: which versions run, what failed last on each node, and which nodes are worked on.
CREATE TABLE servers (
  id text PRIMARY KEY,
  host text NOT NULL,
  release text NOT NULL,
  link_version integer NOT NULL,
  started_at timestamptz NOT NULL,
  seen_at timestamptz NOT NULL
);
COMMENT ON TABLE servers IS 'Servers that run. Written by server/src/nodes/servers-store.ts only.';
COMMENT ON COLUMN servers.id IS 'Of one run of a server.';
COMMENT ON COLUMN servers.host IS 'The name of its host.';
COMMENT ON COLUMN servers.release IS 'Its version.';
COMMENT ON COLUMN servers.link_version IS 'Its version of the link between server and nodes.';
COMMENT ON COLUMN servers.started_at IS 'When it announced itself for the first time, by the clock of the database.';
COMMENT ON COLUMN servers.seen_at IS 'When it last announced itself, by the clock of the database. An old row is ignored, and deleted later.';

ALTER TABLE nodes ADD COLUMN release text, ADD COLUMN last_error text, ADD COLUMN last_error_at timestamptz,
  ADD COLUMN maintenance_at timestamptz;
COMMENT ON COLUMN nodes.release IS 'The version of its agent; null: it has not said.';
COMMENT ON COLUMN nodes.last_error IS 'The last error that its agent has logged since it started; null: none, as last_error_at.';
COMMENT ON COLUMN nodes.last_error_at IS 'When that was, by the clock of the node.';
COMMENT ON COLUMN nodes.maintenance_at IS
  'Since when an operator works on it, so that its absence is expected; null: none does. It outlasts restarts, and ends with cordoned_at.';
