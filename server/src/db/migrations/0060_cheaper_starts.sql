-- What a start costs the database: each of many starts in a statement summed the active machines of its tenant twice, and recorded its run
-- with a dozen queries.

-- With what is summed, so that a sum need not read the machines themselves.
DROP INDEX machines_active;
CREATE INDEX machines_active ON machines (tenant_id) INCLUDE (cpus, memory_mb) WHERE is_active;

-- Whether the tenant may have another active machine of this size, under a lock on its row. One sum instead of the two of
-- active_machines_locked and totals_allow_start_locked, which servers of the release before call.
CREATE FUNCTION tenant_admits_start(tenant text, active_max integer, more_cpus integer, more_memory_mb integer) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  most record;
  held record;
BEGIN
  SELECT p.max_total_cpus AS cpus, p.max_total_memory_mb AS memory_mb INTO most
  FROM tenants t JOIN plans p ON p.id = coalesce(t.plan_id, (SELECT d.id FROM plans d WHERE d.is_default))
  WHERE t.id = tenant FOR NO KEY UPDATE OF t;
  IF NOT FOUND THEN RETURN false; END IF;
  SELECT count(*) AS machines, coalesce(sum(m.cpus), 0) AS cpus, coalesce(sum(m.memory_mb), 0) AS memory_mb INTO held
  FROM machines m WHERE m.tenant_id = tenant AND m.is_active;
  RETURN held.machines < active_max AND held.cpus + more_cpus <= most.cpus AND held.memory_mb + more_memory_mb <= most.memory_mb;
END $$;

-- As before, without the columns of the node that it does not need.
CREATE OR REPLACE FUNCTION node_admits_start(
  node text, is_new boolean, cpus integer, memory_mb integer, cpu_ratio float8, memory_ratio float8
) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  held record;
  promised_cpus bigint;
  promised_memory_mb bigint;
BEGIN
  IF cpu_ratio IS NULL AND memory_ratio IS NULL THEN
    SELECT n.status, n.cordoned_at INTO held FROM nodes n WHERE n.id = node FOR SHARE;
  ELSE
    SELECT n.status, n.cordoned_at, n.total_cpus, n.total_memory_mb INTO held FROM nodes n WHERE n.id = node FOR NO KEY UPDATE;
  END IF;
  IF NOT FOUND OR held.status IN ('draining', 'drained', 'revoked') THEN RETURN false; END IF;
  IF is_new AND (held.status <> 'ready' OR held.cordoned_at IS NOT NULL) THEN RETURN false; END IF;
  IF cpu_ratio IS NULL AND memory_ratio IS NULL THEN RETURN true; END IF;
  SELECT coalesce(sum(m.cpus), 0), coalesce(sum(m.memory_mb), 0) INTO promised_cpus, promised_memory_mb
    FROM (
      SELECT p.cpus, p.memory_mb FROM machines p WHERE p.node_id = node AND p.is_active
      UNION ALL
      SELECT a.cpus, a.memory_mb FROM machines a WHERE a.move_node_id = node AND a.is_active AND NOT a.move_stops) m;
  RETURN (cpu_ratio IS NULL OR held.total_cpus = 0 OR promised_cpus + cpus <= floor(held.total_cpus * cpu_ratio))
    AND (memory_ratio IS NULL OR held.total_memory_mb = 0
      OR promised_memory_mb + memory_mb <= floor(held.total_memory_mb * memory_ratio));
END $$;

-- As before, for all records together: they are read once, not once for each chain, and each chain is locked without a new version
-- of its row.
CREATE OR REPLACE FUNCTION append_audit(records jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  operator text;
  item record;
  chain text;
  last_sequence bigint;
  last_hash text;
  previous_hash text;
  chains text[] := '{}';
  ends bigint[] := '{}';
  end_hashes text[] := '{}';
  tenants_of text[] := '{}';
  sequences bigint[] := '{}';
  ats timestamptz[] := '{}';
  texts text[] := '{}';
  previous_hashes text[] := '{}';
  hashes text[] := '{}';
  keys text[] := '{}';
  resources text[] := '{}';
BEGIN
  IF jsonb_path_exists(records, '$[*] ? (@.tenantId == null)') THEN
    SELECT id INTO operator FROM tenants WHERE name = 'default';
  END IF;
  INSERT INTO audit_chains (tenant_id, sequence, hash)
  SELECT DISTINCT coalesce(r ->> 'tenantId', operator), 0, repeat('0', 64) FROM jsonb_array_elements(records) AS r
  WHERE NOT EXISTS (SELECT FROM audit_chains c WHERE c.tenant_id = coalesce(r ->> 'tenantId', operator))
  ORDER BY 1 ON CONFLICT DO NOTHING;
  -- In one order everywhere, so that two servers do not wait for each other in a circle.
  PERFORM FROM audit_chains c
  WHERE c.tenant_id IN (SELECT coalesce(r ->> 'tenantId', operator) FROM jsonb_array_elements(records) AS r)
  ORDER BY c.tenant_id FOR NO KEY UPDATE;
  FOR item IN
    SELECT coalesce(r ->> 'tenantId', operator) AS tenant, r ->> 'record' AS record, (r ->> 'at')::timestamptz AS at,
      r ->> 'keyId' AS key_id, split_part(r ->> 'resource', '/', 1) AS resource, c.sequence, c.hash
    FROM jsonb_array_elements(records) WITH ORDINALITY AS e(r, place)
    JOIN audit_chains c ON c.tenant_id = coalesce(r ->> 'tenantId', operator)
    ORDER BY 1, place
  LOOP
    IF chain IS DISTINCT FROM item.tenant THEN
      IF chain IS NOT NULL THEN
        chains := chains || chain;
        ends := ends || last_sequence;
        end_hashes := end_hashes || last_hash;
      END IF;
      chain := item.tenant;
      last_sequence := item.sequence;
      last_hash := item.hash;
    END IF;
    last_sequence := last_sequence + 1;
    previous_hash := last_hash;
    last_hash := encode(sha256(convert_to(
      previous_hash || E'\n' || chain || E'\n' || last_sequence || E'\n' || item.record, 'UTF8')), 'hex');
    tenants_of := tenants_of || chain;
    sequences := sequences || last_sequence;
    ats := ats || item.at;
    texts := texts || item.record;
    previous_hashes := previous_hashes || previous_hash;
    hashes := hashes || last_hash;
    keys := array_append(keys, item.key_id);
    resources := array_append(resources, item.resource);
  END LOOP;
  IF chain IS NULL THEN RETURN; END IF;
  INSERT INTO audit_log (tenant_id, sequence, at, record, previous_hash, hash, key_id, resource)
  SELECT * FROM unnest(tenants_of, sequences, ats, texts, previous_hashes, hashes, keys, resources);
  UPDATE audit_chains c SET sequence = e.sequence, hash = e.hash
  FROM unnest(chains || chain, ends || last_sequence, end_hashes || last_hash) AS e(tenant_id, sequence, hash)
  WHERE c.tenant_id = e.tenant_id;
END $$;

-- Records the use of all runs that a statement inserts together.
CREATE FUNCTION record_runs() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  seen_at timestamptz := clock_timestamp();
BEGIN
  INSERT INTO usage_attributions (machine_id, key_id, labels, labels_hash)
  SELECT DISTINCT ON (m.id) m.id, coalesce(m.started_by, m.created_by), m.labels, h.hash
  FROM added a JOIN machines m ON m.id = a.machine_id
  CROSS JOIN LATERAL (SELECT sha256(convert_to(m.labels::text, 'UTF8')) AS hash) h
  WHERE NOT EXISTS (
    SELECT FROM usage_attributions u
    WHERE u.machine_id = m.id AND u.labels_hash = h.hash AND u.key_id IS NOT DISTINCT FROM coalesce(m.started_by, m.created_by))
  ORDER BY m.id ON CONFLICT DO NOTHING;
  INSERT INTO usage_intervals (tenant_id, machine_id, boot_id, attribution_id, meter, quantity, started_at, ended_at, rate_id, recorded_at)
  SELECT a.tenant_id, a.machine_id, a.boot_id, u.id, q.meter, q.quantity, p.started_at, CASE WHEN NOT t.is_open THEN p.ended_at END,
    p.rate_id, t.recorded_at
  FROM added a
  LEFT JOIN machines m ON m.id = a.machine_id
  LEFT JOIN usage_attributions u ON u.machine_id = m.id AND u.labels_hash = sha256(convert_to(m.labels::text, 'UTF8'))
    AND u.key_id IS NOT DISTINCT FROM coalesce(m.started_by, m.created_by)
  CROSS JOIN LATERAL (
    SELECT a.ended_at IS NULL AND a.counted_until IS NULL AS is_open, billing_time(a.tenant_id, a.started_at) AS start_at,
      billing_time(a.tenant_id, seen_at) AS recorded_at OFFSET 0) t
  CROSS JOIN LATERAL rated_parts(a.tenant_id, t.start_at, CASE WHEN t.is_open THEN t.start_at
    ELSE greatest(t.start_at, billing_time(a.tenant_id, least(a.ended_at, a.counted_until))) END) p
  CROSS JOIN (VALUES (1, 'uptime'), (2, 'cpu'), (3, 'memory')) AS k(place, meter)
  CROSS JOIN LATERAL (
    SELECT k.meter, CASE k.meter WHEN 'uptime' THEN 1::bigint WHEN 'cpu' THEN a.cpus ELSE a.memory_mb END AS quantity) q
  ORDER BY a.machine_id, a.started_at, p.started_at, k.place;
  RETURN NULL;
END $$;

-- As before, for the end of a run.
CREATE OR REPLACE FUNCTION record_run() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.ended_at IS NOT NULL OR NEW.counted_until IS NOT NULL THEN
    PERFORM close_usage(NEW.boot_id, least(NEW.ended_at, NEW.counted_until));
  END IF;
  RETURN NULL;
END $$;

DROP TRIGGER machine_runs_used ON machine_runs;
CREATE TRIGGER machine_runs_used AFTER UPDATE OF ended_at, counted_until ON machine_runs
  FOR EACH ROW EXECUTE FUNCTION record_run();
CREATE TRIGGER machine_runs_recorded AFTER INSERT ON machine_runs REFERENCING NEW TABLE AS added
  FOR EACH STATEMENT EXECUTE FUNCTION record_runs();
