-- Whose costs intervals are: which key started the machine and how it was labelled, as of the interval's start.

ALTER TABLE machines ADD COLUMN started_by text;
COMMENT ON COLUMN machines.started_by IS 'The API key whose call, or whose command, last started it; null: none has.';

CREATE TABLE usage_attributions (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  machine_id text NOT NULL,
  key_id text,
  labels jsonb NOT NULL CHECK (jsonb_typeof(labels) = 'object'),
  labels_hash bytea NOT NULL,
  UNIQUE NULLS NOT DISTINCT (machine_id, labels_hash, key_id)
);
COMMENT ON TABLE usage_attributions IS 'Whose costs intervals are. One row for each machine, key and set of labels that intervals have; never changed; outlives its machine. Written by triggers of machine_runs and machines only.';
COMMENT ON COLUMN usage_attributions.id IS 'Intervals name it.';
COMMENT ON COLUMN usage_attributions.machine_id IS 'Which machine; it may be gone.';
COMMENT ON COLUMN usage_attributions.key_id IS 'The API key that started the machine, or created it if none had; null: none did.';
COMMENT ON COLUMN usage_attributions.labels IS 'The machine''s labels.';
COMMENT ON COLUMN usage_attributions.labels_hash IS 'SHA-256 of labels as text, which are too long for an index.';
CREATE TRIGGER usage_attributions_immutable BEFORE UPDATE OR DELETE ON usage_attributions FOR EACH ROW EXECUTE FUNCTION refuse_change();

ALTER TABLE usage_intervals ADD COLUMN attribution_id bigint REFERENCES usage_attributions (id);
COMMENT ON COLUMN usage_intervals.attribution_id IS 'Whose cost it is, as of its start; null: the machine was gone when this was first recorded.';

-- The attribution of what a machine uses from now on; null: there is no such machine.
CREATE FUNCTION attribution_of(machine text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  found bigint;
  tags jsonb;
  key text;
  hash bytea;
BEGIN
  SELECT m.labels, coalesce(m.started_by, m.created_by), sha256(convert_to(m.labels::text, 'UTF8'))
  INTO tags, key, hash FROM machines m WHERE m.id = machine;
  IF hash IS NULL THEN RETURN NULL; END IF;
  SELECT a.id INTO found FROM usage_attributions a
  WHERE a.machine_id = machine AND a.labels_hash = hash AND a.key_id IS NOT DISTINCT FROM key;
  IF found IS NOT NULL THEN RETURN found; END IF;
  INSERT INTO usage_attributions (machine_id, key_id, labels, labels_hash) VALUES (machine, key, tags, hash)
  ON CONFLICT DO NOTHING RETURNING id INTO found;
  IF found IS NOT NULL THEN RETURN found; END IF;
  -- Another transaction has just written it.
  SELECT a.id INTO found FROM usage_attributions a
  WHERE a.machine_id = machine AND a.labels_hash = hash AND a.key_id IS NOT DISTINCT FROM key;
  RETURN found;
END $$;

-- As before, with the attribution.
CREATE OR REPLACE FUNCTION close_usage(subject text, at timestamptz) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  used usage_intervals[];
  part record;
  is_first boolean := true;
BEGIN
  SELECT array_agg(u ORDER BY u.id) INTO used FROM usage_intervals u
  WHERE coalesce(u.boot_id, u.machine_id) = subject AND u.ended_at IS NULL;
  IF used IS NULL THEN RETURN; END IF;
  PERFORM 1 FROM tenants t WHERE t.id = used[1].tenant_id FOR KEY SHARE;
  FOR part IN SELECT * FROM rated_parts(used[1].tenant_id, used[1].started_at, greatest(at, used[1].started_at)) LOOP
    IF is_first THEN
      UPDATE usage_intervals u SET rate_id = part.rate_id, ended_at = part.ended_at
      WHERE coalesce(u.boot_id, u.machine_id) = subject AND u.ended_at IS NULL;
      is_first := false;
    ELSE
      INSERT INTO usage_intervals (tenant_id, machine_id, boot_id, attribution_id, meter, quantity, started_at, ended_at, rate_id, recorded_at)
      SELECT u.tenant_id, u.machine_id, u.boot_id, u.attribution_id, u.meter, u.quantity, part.started_at, part.ended_at, part.rate_id,
        u.recorded_at
      FROM unnest(used) u;
    END IF;
  END LOOP;
END $$;

CREATE OR REPLACE FUNCTION record_run() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  end_at timestamptz := greatest(NEW.started_at, least(NEW.ended_at, NEW.counted_until));
  is_open boolean := NEW.ended_at IS NULL AND NEW.counted_until IS NULL;
  attribution bigint;
BEGIN
  IF TG_OP = 'INSERT' THEN
    attribution := attribution_of(NEW.machine_id);
    INSERT INTO usage_intervals (tenant_id, machine_id, boot_id, attribution_id, meter, quantity, started_at, ended_at, rate_id)
    SELECT NEW.tenant_id, NEW.machine_id, NEW.boot_id, attribution, m.meter, m.quantity, p.started_at,
      CASE WHEN NOT is_open THEN p.ended_at END, p.rate_id
    FROM rated_parts(NEW.tenant_id, NEW.started_at, CASE WHEN is_open THEN NEW.started_at ELSE end_at END) p
    CROSS JOIN (VALUES ('uptime', 1::bigint), ('cpu', NEW.cpus), ('memory', NEW.memory_mb)) AS m(meter, quantity);
  ELSIF NOT is_open THEN
    PERFORM close_usage(NEW.boot_id, end_at);
  END IF;
  RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION record_disk() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  attribution bigint;
BEGIN
  IF TG_OP = 'INSERT' THEN
    attribution := attribution_of(NEW.id);
    INSERT INTO usage_intervals (tenant_id, machine_id, attribution_id, meter, quantity, started_at, rate_id)
    SELECT NEW.tenant_id, NEW.id, attribution, 'disk', NEW.disk_gb, NEW.created_at, p.rate_id
    FROM rated_parts(NEW.tenant_id, NEW.created_at, NEW.created_at) p;
  ELSIF NEW.deleted_at IS NOT NULL THEN
    PERFORM close_usage(NEW.id, NEW.deleted_at);
  END IF;
  RETURN NULL;
END $$;

-- What was recorded before: by the key that created the machine, for machines that are still known.
INSERT INTO usage_attributions (machine_id, key_id, labels, labels_hash)
SELECT id, created_by, labels, sha256(convert_to(labels::text, 'UTF8')) FROM machines;
ALTER TABLE usage_intervals DISABLE TRIGGER usage_intervals_immutable, DISABLE TRIGGER usage_intervals_noted;
UPDATE usage_intervals u SET attribution_id = a.id FROM usage_attributions a WHERE a.machine_id = u.machine_id;
ALTER TABLE usage_intervals ENABLE TRIGGER usage_intervals_immutable, ENABLE TRIGGER usage_intervals_noted;
