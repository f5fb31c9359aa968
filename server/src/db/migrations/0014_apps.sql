-- Apps: replicated instances of an image behind one host name, and how one release replaces another.

-- The apps. Written by server/src/apps/store.ts only, under the lock of the row.
CREATE TABLE apps (
  -- app-<32 hex>.
  id text PRIMARY KEY CHECK (id ~ '^app-[0-9a-f]{32}$'),
  -- Whose app it is.
  tenant_id text NOT NULL REFERENCES tenants,
  -- A host label, unique among the tenant's apps that are not deleted.
  name text NOT NULL CHECK (name ~ '^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$'),
  -- How many instances are to serve.
  count integer NOT NULL CHECK (count >= 0),
  -- The release that was rolled out last; null: none was.
  current_release integer CHECK (current_release >= 1),
  -- The number of its newest release; 0: it has none.
  last_release integer NOT NULL DEFAULT 0 CHECK (last_release >= 0),
  -- A host name that is served as given, in lower case; null: none. Its row in hosts keeps it unique.
  domain text,
  -- The name of the app beside whose instances its own are placed where that is possible; null: anywhere.
  co_locate_with text,
  -- Whether its address needs no key.
  is_public boolean NOT NULL,
  -- The API key that last changed it: what its instances cost is attributed to it.
  created_by text NOT NULL,
  -- When it was created.
  created_at timestamptz NOT NULL,
  -- When a request or a rollout last changed it.
  updated_at timestamptz NOT NULL,
  -- When it was destroyed; from then on it has no name, and its instances end. Null: it was not.
  deleted_at timestamptz,
  -- What it waits for, in a sentence; null: it is as it should be, and nothing but a change starts it again.
  waiting_for text,
  -- When it is looked at although nothing has happened; null: never.
  wake_at timestamptz,
  -- How many of its instances failed since as many as asked served.
  failures integer NOT NULL DEFAULT 0 CHECK (failures >= 0),
  -- After failures: no instance is made before; null: any time.
  retry_at timestamptz,
  -- Why the last instance that failed did so; null: none has since as many as asked served.
  failure text,
  -- Fewer instances serve than are asked, after as many had served.
  is_degraded boolean NOT NULL DEFAULT false,
  -- app_routes_version when its table of targets or its domain last changed, or it was made or destroyed.
  route_version bigint NOT NULL CHECK (route_version >= 0)
);
CREATE UNIQUE INDEX apps_name ON apps (tenant_id, name) WHERE deleted_at IS NULL;
CREATE INDEX apps_deleted ON apps (deleted_at) WHERE deleted_at IS NOT NULL;
-- What changed after the version that an ingress knows.
CREATE INDEX apps_by_route_version ON apps (route_version);
CREATE INDEX apps_waiting ON apps (id) WHERE waiting_for IS NOT NULL;
CREATE INDEX apps_wake ON apps (wake_at) WHERE wake_at IS NOT NULL;

-- An app has its host name while it is not destroyed. Its domain is taken and freed in
-- server/src/apps/store.ts.
CREATE TRIGGER apps_take_host_name AFTER INSERT ON apps
  FOR EACH ROW WHEN (new.deleted_at IS NULL) EXECUTE FUNCTION take_host_name('app');
CREATE TRIGGER apps_free_host_names AFTER UPDATE OF deleted_at ON apps
  FOR EACH ROW WHEN (old.deleted_at IS NULL AND new.deleted_at IS NOT NULL) EXECUTE FUNCTION free_host_names();
CREATE TRIGGER apps_remove_host_names AFTER DELETE ON apps
  FOR EACH ROW EXECUTE FUNCTION remove_host_names();

-- How many apps the tenant has.
CREATE FUNCTION held_apps_locked(tenant text) RETURNS integer LANGUAGE plpgsql AS $$
BEGIN
  PERFORM 1 FROM tenants WHERE id = tenant FOR NO KEY UPDATE;
  RETURN (SELECT count(*) FROM apps WHERE tenant_id = tenant AND deleted_at IS NULL);
END $$;

-- The one share link of an app, if it has one. Written by server/src/apps/share-store.ts only.
CREATE TABLE app_shares (
  -- Whose address the link opens.
  app_id text PRIMARY KEY REFERENCES apps ON DELETE CASCADE,
  -- SHA-256 of the token, which is shown once.
  token_hash bytea NOT NULL CHECK (length(token_hash) = 32),
  -- The id of the API key that made it.
  created_by text NOT NULL,
  -- When it was made.
  created_at timestamptz NOT NULL
);

-- The inputs of instances, frozen. A row is never updated.
CREATE TABLE app_releases (
  -- Its app.
  app_id text NOT NULL REFERENCES apps ON DELETE CASCADE,
  -- Counts the app's releases from 1: the generation of its instances.
  number integer NOT NULL CHECK (number >= 1),
  -- The image as it was asked for.
  image text NOT NULL,
  -- What instances are made from: the reference with its digest, or the name of a local image.
  resolved_image text NOT NULL,
  -- What the image was when the release was made.
  digest text NOT NULL,
  -- ReleaseSpec of server/src/apps/release.ts.
  spec jsonb NOT NULL CHECK (jsonb_typeof(spec) = 'object'),
  -- Secret variables, encrypted (server/src/secrets.ts); null: none.
  secret_env bytea,
  -- Their names, which are shown.
  secret_names text[] NOT NULL DEFAULT '{}',
  -- Course of server/src/apps/release.ts: a redeployment and a rollback use it again.
  course jsonb NOT NULL CHECK (jsonb_typeof(course) = 'object'),
  -- Why it was made, in a sentence.
  why text NOT NULL,
  -- The API key that made it.
  made_by text NOT NULL,
  -- When it was made.
  made_at timestamptz NOT NULL,
  PRIMARY KEY (app_id, number)
);

-- How one release replaces another. An app has at most one that has not ended.
CREATE TABLE app_rollouts (
  -- The operation that watches it.
  id text PRIMARY KEY CHECK (id ~ '^op-[0-9a-f]{32}$'),
  -- Its app.
  app_id text NOT NULL REFERENCES apps ON DELETE CASCADE,
  -- The release that was rolled out before; null: none was.
  from_release integer,
  -- The release that it rolls out.
  to_release integer NOT NULL,
  -- Strategy of server/src/apps/rollout/facts.ts.
  strategy jsonb NOT NULL CHECK (jsonb_typeof(strategy) = 'object'),
  -- Its canaries are promoted, or traffic was switched. Never undone.
  is_promoted boolean NOT NULL DEFAULT false,
  -- Progress of server/src/apps/rollout/facts.ts; null: it was never planned.
  progress jsonb,
  -- How long instances may take to start, in milliseconds.
  placing_ms bigint NOT NULL CHECK (placing_ms > 0),
  -- How long they may take to become healthy after that, in milliseconds.
  checking_ms bigint NOT NULL CHECK (checking_ms > 0),
  -- When it began.
  started_at timestamptz NOT NULL,
  -- When it ended; null: it has not.
  ended_at timestamptz,
  -- superseded: another request came. Null: it has not ended.
  outcome text CHECK (outcome IN ('succeeded', 'failed', 'superseded')),
  -- Why it ended so, in a sentence.
  why text,
  FOREIGN KEY (app_id, to_release) REFERENCES app_releases,
  CONSTRAINT rollout_ended_iff_outcome CHECK ((ended_at IS NULL) = (outcome IS NULL) AND (ended_at IS NULL) = (why IS NULL))
);
CREATE UNIQUE INDEX app_rollouts_active ON app_rollouts (app_id) WHERE ended_at IS NULL;
CREATE INDEX app_rollouts_of_app ON app_rollouts (app_id, started_at DESC);

-- Instances of apps: the row is written before its machine is made, and deleted after nothing is left of it.
-- The machine's row of machine_owners names the app.
CREATE TABLE app_instances (
  -- Its machine; the id of the instance is inst- and the same hexadecimal digits.
  machine_id text PRIMARY KEY,
  -- Its app.
  app_id text NOT NULL REFERENCES apps ON DELETE CASCADE,
  -- The release that it was made from.
  release integer NOT NULL,
  -- When it was decided to make it.
  made_at timestamptz NOT NULL,
  -- Why its machine could not be made or started; null: it could, or was not tried.
  error text,
  -- Each other instance of its release fails too.
  is_hopeless boolean NOT NULL DEFAULT false,
  -- When it was decided to remove it; null: it is wanted. Never undone.
  retired_at timestamptz,
  -- Why, in a sentence; null: it is wanted.
  retired_why text,
  -- When it was decided to delete its machine; null: it was not.
  removed_at timestamptz,
  -- Whether it is in the table of targets that ingresses serve.
  is_routed boolean NOT NULL DEFAULT false,
  -- app_routes_version when it was last put into the table or taken out; 0: never.
  route_version bigint NOT NULL DEFAULT 0 CHECK (route_version >= 0),
  -- When it was last taken out of the table; null: it is in it, or never was.
  unrouted_at timestamptz,
  -- What the last plan knew of its machine: revision, and whether its node was lost. Null: nothing.
  seen text,
  -- Whether it was unhealthy then: a change is an event.
  was_unhealthy boolean NOT NULL DEFAULT false,
  FOREIGN KEY (app_id, release) REFERENCES app_releases,
  CONSTRAINT instance_routed_until_retired CHECK (NOT is_routed OR retired_at IS NULL),
  CONSTRAINT instance_removed_after_retired CHECK (removed_at IS NULL OR retired_at IS NOT NULL),
  CONSTRAINT instance_unrouted_or_routed CHECK (NOT is_routed OR unrouted_at IS NULL)
);
CREATE INDEX app_instances_of_app ON app_instances (app_id, made_at, machine_id);

-- One row: the version of all tables of targets. Who changes one takes the next version, and keeps the row's
-- lock until the change is committed, so that versions become visible in their order.
CREATE TABLE app_routes_version (
  -- Grows with each change of which instances apps have in their tables.
  version bigint NOT NULL CHECK (version >= 0)
);

-- Ingresses that serve apps, and what they serve. Without a lease an ingress serves none. Written by
-- server/src/ingress only.
CREATE TABLE ingress_leases (
  -- Chosen by the process when it starts.
  id text PRIMARY KEY,
  -- Until then it may serve apps; by the clock of the database.
  lease_until timestamptz NOT NULL,
  -- The version of the table that it serves, and no older one.
  version bigint NOT NULL CHECK (version >= 0),
  -- Open requests of instances that are not in the table any more: {machine id: number}.
  open jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(open) = 'object')
);

-- Tells servers that an instance has changed, so that its app is looked at.
CREATE FUNCTION notify_app_of_instance() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  app text;
BEGIN
  SELECT i.app_id INTO app FROM app_instances i WHERE i.machine_id = NEW.id;
  IF FOUND THEN PERFORM pg_notify('apps', app); END IF;
  RETURN NULL;
END $$;

CREATE TRIGGER machines_notify_app AFTER UPDATE ON machines
  FOR EACH ROW WHEN (
    old.observed_state IS DISTINCT FROM new.observed_state
    OR old.observed_details->'health' IS DISTINCT FROM new.observed_details->'health'
    OR old.ready_at IS DISTINCT FROM new.ready_at
    OR old.deleted_at IS DISTINCT FROM new.deleted_at
    OR old.error IS DISTINCT FROM new.error
  ) EXECUTE FUNCTION notify_app_of_instance();
