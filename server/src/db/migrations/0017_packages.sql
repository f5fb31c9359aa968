-- Packages: how many are kept, and what the registry's rows cost their tenants.

-- Repositories of which only the newest tags are kept. Written by server/src/packages/store.ts.
CREATE TABLE package_retention (
  -- tenants/<tenant id>/<name> or library/<name>. It may have no tags yet.
  repository text PRIMARY KEY,
  -- The tenant that set it, which receives the events of what is deleted.
  tenant_id text NOT NULL REFERENCES tenants,
  -- How many tags are kept.
  keep_last integer NOT NULL CHECK (keep_last >= 1)
);
CREATE INDEX package_retention_of_tenant ON package_retention (tenant_id);

-- Records how many MiB a tenant has in the registry from now on: an interval for each size, none for 0. The
-- caller has locked the tenant, so that changes of one tenant are recorded one after the other.
CREATE FUNCTION record_registry_use(tenant text, used_mb bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  newest usage_intervals;
  real_at timestamptz := date_trunc('milliseconds', clock_timestamp());
  start_at timestamptz;
BEGIN
  SELECT * INTO newest FROM usage_intervals u WHERE u.tenant_id = tenant AND u.meter = 'registry'
  ORDER BY u.started_at DESC, u.id DESC LIMIT 1;
  IF (CASE WHEN newest.ended_at IS NULL THEN coalesce(newest.quantity, 0) ELSE 0 END) = used_mb THEN RETURN; END IF;
  start_at := greatest(billing_time(tenant, real_at), newest.started_at, newest.ended_at);
  IF newest.id IS NOT NULL AND newest.ended_at IS NULL THEN PERFORM close_intervals(ARRAY[newest], real_at); END IF;
  IF used_mb > 0 THEN
    INSERT INTO usage_intervals (tenant_id, meter, quantity, started_at, rate_id, recorded_at)
    SELECT tenant, 'registry', used_mb, start_at, p.rate_id, billing_time(tenant, clock_timestamp())
    FROM rated_parts(tenant, start_at, start_at) p;
  END IF;
END $$;

-- Machines from packages that have not run yet keep the package, also when it has no tag any more.
CREATE INDEX machines_of_packages ON machines ((source ->> 'pulledAs')) WHERE source ->> 'pulledAs' IS NOT NULL;

-- What a tenant's packages take, in bytes: each blob and manifest once. What was uploaded and that no
-- manifest names is not a package yet.
CREATE FUNCTION package_bytes(tenant text) RETURNS bigint LANGUAGE sql STABLE AS $$
  SELECT coalesce(sum(bytes), 0)::bigint FROM (
    SELECT digest, max(bytes) AS bytes FROM (
      SELECT b.digest, b.bytes FROM registry_blobs b
      JOIN registry_manifests m ON m.repository = b.repository AND m.digest = b.manifest_digest
      WHERE m.tenant_id = tenant AND m.removed_at IS NULL
      UNION ALL SELECT m.digest, m.bytes FROM registry_manifests m WHERE m.tenant_id = tenant AND m.removed_at IS NULL
    ) AS parts GROUP BY digest) AS used
$$;

-- Records what the tenant of a manifest has in the registry from now on. It runs right before the commit,
-- when the manifest's blobs are written too; the lock makes changes of one tenant take turns, so that each
-- sees those before it.
CREATE FUNCTION record_packages() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  tenant text := CASE TG_OP WHEN 'DELETE' THEN OLD.tenant_id ELSE NEW.tenant_id END;
BEGIN
  PERFORM 1 FROM tenants t WHERE t.id = tenant FOR NO KEY UPDATE;
  PERFORM record_registry_use(tenant, ceil(package_bytes(tenant) / 1048576.0)::bigint);
  RETURN NULL;
END $$;

CREATE CONSTRAINT TRIGGER registry_manifests_put AFTER INSERT ON registry_manifests DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW WHEN (new.tenant_id IS NOT NULL) EXECUTE FUNCTION record_packages();
CREATE CONSTRAINT TRIGGER registry_manifests_removed AFTER UPDATE OF removed_at ON registry_manifests DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW WHEN (new.tenant_id IS NOT NULL AND old.removed_at IS DISTINCT FROM new.removed_at)
  EXECUTE FUNCTION record_packages();
CREATE CONSTRAINT TRIGGER registry_manifests_gone AFTER DELETE ON registry_manifests DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW WHEN (old.tenant_id IS NOT NULL AND old.removed_at IS NULL) EXECUTE FUNCTION record_packages();
