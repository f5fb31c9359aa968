-- What a node has promised is read from the index alone: placement reads it of all nodes.
CREATE INDEX machines_promised ON machines (node_id) INCLUDE (cpus, memory_mb) WHERE is_active;
