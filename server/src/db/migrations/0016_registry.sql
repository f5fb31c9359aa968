-- The registry of packages: which repository has which manifests, blobs and tags. Their bytes are in a
-- backend, which only the server reaches.

-- Manifests by repository. Written by server/src/registry/store.ts only.
CREATE TABLE registry_manifests (
  -- tenants/<tenant id>/<name> or library/<name>.
  repository text NOT NULL,
  -- sha256 and 64 hex digits, of its bytes.
  digest text NOT NULL CHECK (digest ~ '^sha256:[0-9a-f]{64}$'),
  -- Whose repository it is; null: the library.
  tenant_id text REFERENCES tenants,
  -- As it was sent.
  media_type text NOT NULL,
  -- What it is, as it says of itself; null: an ordinary image.
  artifact_type text,
  -- Its own size, without what it names.
  bytes bigint NOT NULL CHECK (bytes > 0),
  -- What a machine is made with: PackageFacts of the server; null: it is not a machine's disk.
  facts jsonb,
  -- When it was first put.
  created_at timestamptz NOT NULL,
  -- When it was last put, or lost a tag or an index that names it.
  idle_since timestamptz NOT NULL,
  -- Since when it is deleted for every reader; its row stays until the backend has deleted it too.
  removed_at timestamptz,
  -- Until then a server deletes it from the backend, and it cannot be put.
  removing_until timestamptz,
  PRIMARY KEY (repository, digest)
);
CREATE INDEX registry_manifests_tenant ON registry_manifests (tenant_id);
CREATE INDEX registry_manifests_idle ON registry_manifests (idle_since);

-- What manifests name: layers and configurations.
CREATE TABLE registry_blobs (
  -- The manifest's.
  repository text NOT NULL,
  -- The manifest that names it.
  manifest_digest text NOT NULL,
  -- Its own digest.
  digest text NOT NULL CHECK (digest ~ '^sha256:[0-9a-f]{64}$'),
  -- Its size.
  bytes bigint NOT NULL CHECK (bytes >= 0),
  PRIMARY KEY (repository, manifest_digest, digest),
  FOREIGN KEY (repository, manifest_digest) REFERENCES registry_manifests ON DELETE CASCADE
);
CREATE INDEX registry_blobs_digest ON registry_blobs (repository, digest);

-- Manifests that an index names, in the same repository.
CREATE TABLE registry_children (
  -- The repository of both.
  repository text NOT NULL,
  -- The index.
  parent text NOT NULL,
  -- What it names.
  child text NOT NULL,
  PRIMARY KEY (repository, parent, child),
  FOREIGN KEY (repository, parent) REFERENCES registry_manifests ON DELETE CASCADE,
  FOREIGN KEY (repository, child) REFERENCES registry_manifests
);
CREATE INDEX registry_children_child ON registry_children (repository, child);

-- Names of manifests.
CREATE TABLE registry_tags (
  -- Where it is unique.
  repository text NOT NULL,
  -- The name.
  tag text NOT NULL,
  -- The manifest that it means.
  digest text NOT NULL,
  -- When it was last set.
  updated_at timestamptz NOT NULL,
  PRIMARY KEY (repository, tag),
  FOREIGN KEY (repository, digest) REFERENCES registry_manifests
);
CREATE INDEX registry_tags_digest ON registry_tags (repository, digest);

-- Blobs that were uploaded to a repository and that no manifest of it names yet. A collection ends them.
CREATE TABLE registry_loose_blobs (
  -- Where it was uploaded.
  repository text NOT NULL,
  -- Its digest.
  digest text NOT NULL CHECK (digest ~ '^sha256:[0-9a-f]{64}$'),
  -- Whose repository it is; null: the library.
  tenant_id text REFERENCES tenants,
  -- Its size.
  bytes bigint NOT NULL CHECK (bytes >= 0),
  -- When the backend had all of it.
  uploaded_at timestamptz NOT NULL,
  PRIMARY KEY (repository, digest)
);
CREATE INDEX registry_loose_blobs_tenant ON registry_loose_blobs (tenant_id);

-- Uploads that have begun and not ended.
CREATE TABLE registry_uploads (
  -- Random, part of the address under which its client continues.
  id text PRIMARY KEY,
  -- Where it is uploaded.
  repository text NOT NULL,
  -- Whose repository it is; null: the library.
  tenant_id text REFERENCES tenants,
  -- Where it continues in the backend.
  location text NOT NULL,
  -- How much the backend has of it.
  bytes bigint NOT NULL CHECK (bytes >= 0),
  -- When it last grew.
  updated_at timestamptz NOT NULL
);
CREATE INDEX registry_uploads_tenant ON registry_uploads (tenant_id);
CREATE INDEX registry_uploads_updated ON registry_uploads (updated_at);

-- A push to a repository, or an export to it: while one is live, nothing of the repository is
-- deleted from the backend, and no collection runs.
CREATE TABLE registry_leases (
  -- What has it: an operation, or an API key.
  holder text NOT NULL,
  -- What it keeps.
  repository text NOT NULL,
  -- The node that may push to the repository and read it meanwhile; null: none.
  node_id text,
  -- The tenant that pushes; null: an operator, for the library.
  tenant_id text REFERENCES tenants,
  -- It ends then, unless it is used again.
  expires_at timestamptz NOT NULL,
  PRIMARY KEY (holder, repository)
);
CREATE INDEX registry_leases_repository ON registry_leases (repository);
CREATE INDEX registry_leases_expires ON registry_leases (expires_at);

-- One row: whether a collection deletes blobs of the backend now.
CREATE TABLE registry_collection (
  -- Always true, so that a second row cannot exist.
  is_only_row boolean PRIMARY KEY DEFAULT true CHECK (is_only_row),
  -- Until then no lease begins; null: none runs.
  running_until timestamptz,
  -- The operation that runs it, or ran it last; null: none has.
  operation_id text,
  -- When the last one ended; null: none has.
  ended_at timestamptz
);
INSERT INTO registry_collection DEFAULT VALUES;
