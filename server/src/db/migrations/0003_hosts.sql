-- Host names, and what each leads to. A name is unique over all tenants and all kinds of things, so the
-- ingress looks in one place, whatever has the name.

-- Written by triggers, in the statement that makes or deletes what has the name.
CREATE TABLE hosts (
  -- The first label of a host name under the domain for machines.
  name text PRIMARY KEY,
  -- What kind of thing has it: HOST_KINDS of server/src/hosts/kinds.ts.
  kind text NOT NULL CHECK (kind IN ('machine')),
  -- The id of the thing. It has the name until it is deleted.
  subject_id text NOT NULL
);
CREATE INDEX hosts_subject ON hosts (subject_id);

-- Gives a host name to a new row of a table with the columns id and name; its argument is the kind. Names
-- belong to a tenant, host names to everyone: the first to have a name has it as its host name, the next one
-- the name with a part of its id. One whose name cannot be a label has no row, because an id is a host name
-- by itself; a name that looks like an id of any kind is never given. An insert or a delete of the same name
-- that is not committed yet is waited for.
CREATE FUNCTION take_host_name() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  wanted text := lower(NEW.name);
BEGIN
  IF wanted IS NULL OR wanted !~ '^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$' OR wanted ~ '^[a-z]+-[0-9a-f]{32}$' THEN
    RETURN NULL;
  END IF;
  INSERT INTO hosts (name, kind, subject_id) VALUES (wanted, TG_ARGV[0], NEW.id) ON CONFLICT DO NOTHING;
  IF NOT FOUND THEN
    INSERT INTO hosts (name, kind, subject_id)
    VALUES (left(wanted, 54) || '-' || left(split_part(NEW.id, '-', 2), 8), TG_ARGV[0], NEW.id) ON CONFLICT DO NOTHING;
  END IF;
  RETURN NULL;
END $$;

-- Frees the names of a row that is deleted.
CREATE FUNCTION free_host_names() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM hosts WHERE subject_id = OLD.id;
  RETURN NULL;
END $$;
