-- A start changes its machine twice, and each time every index of machines that has it gets an entry. Each of these is served by another one.

-- Of a node: all machines, and the sums of the active ones.
CREATE INDEX machines_of_node ON machines (node_id, is_active) INCLUDE (cpus, memory_mb);
DROP INDEX machines_node;
DROP INDEX machines_promised;

-- Of a tenant: the list, and the sum of the disks.
DROP INDEX machines_list;
CREATE INDEX machines_list ON machines (tenant_id, created_at DESC, id DESC) INCLUDE (disk_gb) WHERE deleted_at IS NULL;
DROP INDEX machines_disk;

-- Machines without a name have no entry.
DROP INDEX machines_name;
CREATE UNIQUE INDEX machines_name ON machines (tenant_id, name) WHERE deleted_at IS NULL AND name IS NOT NULL;
