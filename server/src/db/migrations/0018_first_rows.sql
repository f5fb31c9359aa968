-- What every cluster begins with. The last file: triggers record the first prices, and the tenant's plan.

INSERT INTO cluster (id) VALUES (replace(gen_random_uuid()::text, '-', ''));

INSERT INTO invoice_counter (last_number) VALUES (0);

INSERT INTO app_routes_version (version) VALUES (0);

-- The totals are what a host can carry: 32 machines of the default size at once, and 20.
INSERT INTO plans (id, name, is_default, max_apps, max_machines, max_concurrent_machines,
  max_cpus, max_memory_mb, max_disk_gb, max_total_cpus, max_total_memory_mb, max_total_disk_gb)
SELECT 'plan-' || replace(gen_random_uuid()::text, '-', ''), p.*
FROM (VALUES
  ('default', true, 1000, 10000, 1000, 64, 1048576, 16384, 256, 262144, 32768),
  ('standard', false, 20, 20, 20, 8, 32768, 1024, 80, 163840, 2048)) AS p;

INSERT INTO tenants (id, name) VALUES ('tenant-' || replace(gen_random_uuid()::text, '-', ''), 'default');
