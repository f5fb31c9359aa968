-- How much the processes of a node's host wait for resources, for placement and operators.
ALTER TABLE nodes ADD COLUMN pressure jsonb;
COMMENT ON COLUMN nodes.pressure IS
  'Percent of the last minute in which some or all processes of the host waited, as {"cpu": {"some", "full"}, "memory": …, "io": …}; null: not reported.';
