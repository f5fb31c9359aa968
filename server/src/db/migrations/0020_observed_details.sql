-- One document for what a node reports of a machine and no statement reads. A new field of it needs no column.
ALTER TABLE machines ADD COLUMN observed_details jsonb NOT NULL DEFAULT '{}';
COMMENT ON COLUMN machines.observed_details IS
  'Fields of the newest report that have no column, as ObservedMachine in contract/src/link names them.';
UPDATE machines SET observed_details = jsonb_build_object(
  'progress', observed_progress, 'hostPorts', observed_host_ports, 'timings', observed_timings)
WHERE observed_progress IS NOT NULL OR observed_host_ports <> '[]' OR observed_timings IS NOT NULL;
-- A server of the release before still reads them; the next release drops them.
COMMENT ON COLUMN machines.observed_progress IS 'Unused: see observed_details.';
COMMENT ON COLUMN machines.observed_host_ports IS 'Unused: see observed_details.';
COMMENT ON COLUMN machines.observed_timings IS 'Unused: see observed_details.';
