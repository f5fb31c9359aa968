-- Host names, and what each leads to. A name is unique over all tenants and all kinds of things, so the
-- ingress looks in one place, whatever has the name.

-- Labels are written by triggers, in the statement that makes or deletes what has the name; domains by
-- server/src/apps/store.ts. A branch takes the label of its source in server/src/branches/adopt-store.ts.
CREATE TABLE hosts (
  -- The first label of a host name under the domain for machines and apps, or a whole name that an app has as
  -- its domain.
  name text PRIMARY KEY,
  -- What kind of thing has it: HOST_KINDS of server/src/hosts/kinds.ts.
  kind text NOT NULL CHECK (kind IN ('machine', 'app')),
  -- The id of the thing.
  subject_id text NOT NULL,
  -- The tenant of the thing.
  tenant_id text NOT NULL,
  -- When the thing was deleted. From then on the name leads nowhere, and only its tenant can have it, until
  -- the row of the thing is deleted too. null: the thing exists.
  freed_at timestamptz
);
CREATE INDEX hosts_subject ON hosts (subject_id);

-- Gives a host name to the thing with the id, which has none. Names belong to a tenant, host names to
-- everyone: the first to have a name has it as its host name, the next one the name with a part of its id. A
-- name whose thing was deleted is its tenant's, because browsers have cookies and pages of it. One whose name
-- cannot be a label has no row, because an id is a host name by itself; a name that looks like an id of any
-- kind is never given. An insert or a delete of the same name that is not committed yet is waited for.
CREATE FUNCTION give_host_name(kind_of text, thing text, name_of text, tenant text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  wanted text := lower(name_of);
BEGIN
  IF wanted IS NULL OR wanted !~ '^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$' OR wanted ~ '^[a-z]+-[0-9a-f]{32}$' THEN
    RETURN;
  END IF;
  INSERT INTO hosts AS h (name, kind, subject_id, tenant_id) VALUES (wanted, kind_of, thing, tenant)
  ON CONFLICT (name) DO UPDATE SET kind = excluded.kind, subject_id = excluded.subject_id, freed_at = NULL
    WHERE h.freed_at IS NOT NULL AND h.tenant_id = excluded.tenant_id;
  IF NOT FOUND THEN
    INSERT INTO hosts (name, kind, subject_id, tenant_id)
    VALUES (left(wanted, 54) || '-' || left(split_part(thing, '-', 2), 8), kind_of, thing, tenant)
    ON CONFLICT DO NOTHING;
  END IF;
END $$;

-- Gives a host name to a new row of a table with the columns id, name and tenant_id; its argument is the
-- kind.
CREATE FUNCTION take_host_name() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM give_host_name(TG_ARGV[0], NEW.id, NEW.name, NEW.tenant_id);
  RETURN NULL;
END $$;

-- Keeps the names of what is deleted for its tenant.
CREATE FUNCTION free_host_names() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  UPDATE hosts SET freed_at = NEW.deleted_at WHERE subject_id = OLD.id AND freed_at IS NULL;
  RETURN NULL;
END $$;

-- Removes the names of what was never used, or whose row is deleted: any tenant can have them from then on.
CREATE FUNCTION remove_host_names() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM hosts WHERE subject_id = OLD.id;
  RETURN NULL;
END $$;
