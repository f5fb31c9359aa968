-- What all machines of a tenant may take together: memory and processors of those that run, disk of all.

ALTER TABLE plans
  ADD COLUMN max_total_cpus bigint CHECK (max_total_cpus >= 0),
  ADD COLUMN max_total_memory_mb bigint CHECK (max_total_memory_mb >= 0),
  ADD COLUMN max_total_disk_gb bigint CHECK (max_total_disk_gb >= 0);
COMMENT ON COLUMN plans.max_total_cpus IS 'Processors of all machines of a tenant that are active, together.';
COMMENT ON COLUMN plans.max_total_memory_mb IS 'Memory in MiB of all machines of a tenant that are active, together.';
COMMENT ON COLUMN plans.max_total_disk_gb IS 'Disk in GiB of all machines of a tenant in any state, together.';

-- Plans that an operator made go on allowing what they did: as many machines as they name, each of the largest size.
UPDATE plans SET
  max_total_cpus = least(max_concurrent_machines::numeric * max_cpus, 9007199254740991),
  max_total_memory_mb = least(max_concurrent_machines::numeric * max_memory_mb, 9007199254740991),
  max_total_disk_gb = least(max_machines::numeric * max_disk_gb, 9007199254740991);
-- The two of the first start allow what a host can carry: 32 machines of the default size at once, and 20.
UPDATE plans SET max_total_cpus = 256, max_total_memory_mb = 262144, max_total_disk_gb = 32768
WHERE name = 'default' AND max_concurrent_machines = 1000 AND max_memory_mb = 1048576 AND max_disk_gb = 16384;
UPDATE plans SET max_total_cpus = 80, max_total_memory_mb = 163840, max_total_disk_gb = 2048
WHERE name = 'standard' AND max_concurrent_machines = 20 AND max_memory_mb = 32768 AND max_disk_gb = 1024;

ALTER TABLE plans
  ALTER COLUMN max_total_cpus SET NOT NULL,
  ALTER COLUMN max_total_memory_mb SET NOT NULL,
  ALTER COLUMN max_total_disk_gb SET NOT NULL;

CREATE INDEX machines_disk ON machines (tenant_id) INCLUDE (disk_gb) WHERE deleted_at IS NULL;

-- Whether a tenant's plan has room for one more, under a lock on the tenant, as held_machines_locked counts. The plan is read
-- here too, so that a changed one holds at once.
CREATE FUNCTION totals_allow_start_locked(tenant text, more_cpus integer, more_memory_mb integer)
RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  PERFORM 1 FROM tenants WHERE id = tenant FOR NO KEY UPDATE;
  RETURN (
    SELECT coalesce(sum(m.cpus), 0) + more_cpus <= p.max_total_cpus
      AND coalesce(sum(m.memory_mb), 0) + more_memory_mb <= p.max_total_memory_mb
    FROM tenants t
    JOIN plans p ON p.id = coalesce(t.plan_id, (SELECT id FROM plans WHERE is_default))
    LEFT JOIN machines m ON m.tenant_id = t.id AND m.is_active
    WHERE t.id = tenant GROUP BY p.max_total_cpus, p.max_total_memory_mb);
END $$;

CREATE FUNCTION totals_allow_disk_locked(tenant text, more_disk_gb integer) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  PERFORM 1 FROM tenants WHERE id = tenant FOR NO KEY UPDATE;
  RETURN (
    SELECT coalesce(sum(m.disk_gb), 0) + more_disk_gb <= p.max_total_disk_gb
    FROM tenants t
    JOIN plans p ON p.id = coalesce(t.plan_id, (SELECT id FROM plans WHERE is_default))
    LEFT JOIN machines m ON m.tenant_id = t.id AND m.deleted_at IS NULL
    WHERE t.id = tenant GROUP BY p.max_total_disk_gb);
END $$;
