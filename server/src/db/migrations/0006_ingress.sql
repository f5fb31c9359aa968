-- Ways into machines from outside: the name under which the world reaches a machine, and its share link.

CREATE TABLE machine_shares (
  machine_id text PRIMARY KEY REFERENCES machines (id) ON DELETE CASCADE,
  token_hash bytea NOT NULL CHECK (length(token_hash) = 32),
  created_by text NOT NULL,
  created_at timestamptz NOT NULL
);
COMMENT ON TABLE machine_shares IS 'The one share link of a machine, if it has one. Written by server/src/machines/share/store.ts only.';
COMMENT ON COLUMN machine_shares.machine_id IS 'Whose url the link opens.';
COMMENT ON COLUMN machine_shares.token_hash IS 'SHA-256 of the token, which is shown once.';
COMMENT ON COLUMN machine_shares.created_by IS 'The id of the API key that made it.';
COMMENT ON COLUMN machine_shares.created_at IS 'When it was made.';

ALTER TABLE machines ADD COLUMN host_label text;
COMMENT ON COLUMN machines.host_label IS 'The first label of its host name under the domain for machines; no other machine has it as long as this one lives.';

-- Names belong to a tenant, host names to the world: the first machine of a name has it as its label, the next one of
-- another tenant the name with a part of its id, and a machine whose name cannot be a label has its id. What looks like an
-- id is nobody's name here. The lock makes those who ask for the same name wait for each other, and a volatile function sees what was
-- committed while it waited.
CREATE FUNCTION free_host_label(machine_id text, machine_name text) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  wanted text := lower(machine_name);
  longer text;
BEGIN
  IF wanted IS NULL OR wanted !~ '^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$' OR wanted ~ '^mach-[0-9a-f]{32}$' THEN
    RETURN machine_id;
  END IF;
  PERFORM pg_advisory_xact_lock(hashtextextended('host_label ' || wanted, 0));
  IF NOT EXISTS (SELECT 1 FROM machines WHERE host_label = wanted AND deleted_at IS NULL) THEN
    RETURN wanted;
  END IF;
  longer := left(wanted, 54) || '-' || substr(machine_id, 6, 8);
  PERFORM pg_advisory_xact_lock(hashtextextended('host_label ' || longer, 0));
  IF NOT EXISTS (SELECT 1 FROM machines WHERE host_label = longer AND deleted_at IS NULL) THEN
    RETURN longer;
  END IF;
  RETURN machine_id;
END $$;

UPDATE machines m SET host_label = CASE WHEN first.id = m.id THEN lower(m.name) ELSE m.id END
FROM machines o
LEFT JOIN (
  SELECT DISTINCT ON (lower(name)) id FROM machines
  WHERE deleted_at IS NULL AND lower(name) ~ '^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$' AND lower(name) !~ '^mach-[0-9a-f]{32}$'
  ORDER BY lower(name), created_at, id) first ON first.id = o.id
WHERE o.id = m.id;

ALTER TABLE machines ALTER COLUMN host_label SET NOT NULL;
CREATE UNIQUE INDEX machines_host_label ON machines (host_label) WHERE deleted_at IS NULL;

CREATE FUNCTION set_host_label() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  NEW.host_label := free_host_label(NEW.id, NEW.name);
  RETURN NEW;
END $$;
CREATE TRIGGER machines_host_label BEFORE INSERT ON machines FOR EACH ROW EXECUTE FUNCTION set_host_label();
