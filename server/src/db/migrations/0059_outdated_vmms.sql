-- Which machines run in a VMM of another program than the one that is installed on their node.

ALTER TABLE nodes ADD COLUMN outdated_vmms text[];
COMMENT ON COLUMN nodes.outdated_vmms IS
  'Ids of machines that run in a VMM of another program than the installed one, as the node last reported; at most 1000. NULL: it has not said.';
