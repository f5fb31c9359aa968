-- Nodes, what admits them to the cluster, and where servers and ingresses listen for them.

-- Hosts that run machines. Written by server/src/nodes/store.ts only.
CREATE TABLE nodes (
  -- Chosen by the operator, or the host name.
  id text PRIMARY KEY CHECK (id ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$'),
  -- Where the server reaches the node's agent: unix:/path or http://host:port.
  address text NOT NULL,
  -- Stored, not computed: the node loop writes unreachable, a heartbeat ready.
  status text NOT NULL CHECK (status IN ('ready', 'draining', 'drained', 'unreachable', 'revoked')),
  -- SHA-256 of the credential the node calls with; null once it was revoked.
  credential_hash bytea CHECK (octet_length(credential_hash) = 32),
  -- SHA-256 of the public key (SPKI) of a node that joined with one: its credential and its certificates work
  -- only with this key. null: a node of the server's host.
  key_hash bytea,
  -- The prefix of the join token with which it was admitted, so that a registration whose answer was lost can
  -- be repeated.
  joined_with text,
  -- When the certificate expires with which it last reported; null: it has none, as a node of the server's
  -- host.
  certificate_expires_at timestamptz,
  -- The operator's (from the join token) and the node's own facts, such as arch and accelerator.
  labels jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(labels) = 'object'),
  -- What runs machines there, for people.
  runtime text,
  -- The version of its agent; null: it has not said.
  release text,
  -- The version of the link between server and nodes that it has; null: it has not reported.
  link_version integer,
  -- One run of the node's agent; its event sequence numbers count within it.
  agent_boot_id text,
  -- Processors of the host.
  total_cpus integer NOT NULL DEFAULT 0 CHECK (total_cpus >= 0),
  -- Processors busy with machines, a mean over seconds.
  used_cpus double precision NOT NULL DEFAULT 0 CHECK (used_cpus >= 0),
  -- Memory of the host in MiB.
  total_memory_mb integer NOT NULL DEFAULT 0 CHECK (total_memory_mb >= 0),
  -- Memory of the host that is free now.
  available_memory_mb integer NOT NULL DEFAULT 0 CHECK (available_memory_mb >= 0),
  -- Memory that its machines hold now.
  used_memory_mb integer NOT NULL DEFAULT 0 CHECK (used_memory_mb >= 0),
  -- Size in GiB of the disk that holds images and machines.
  total_disk_gb integer NOT NULL DEFAULT 0 CHECK (total_disk_gb >= 0),
  -- What is free of it.
  available_disk_gb integer NOT NULL DEFAULT 0 CHECK (available_disk_gb >= 0),
  -- What images and machines take of it.
  used_disk_gb integer NOT NULL DEFAULT 0 CHECK (used_disk_gb >= 0),
  -- Percent of the last minute in which some or all processes of the host waited, as {"cpu": {"some",
  -- "full"}, "memory": …, "io": …}; null: not reported.
  pressure jsonb,
  -- When it first entered the cluster.
  registered_at timestamptz NOT NULL,
  -- By the server's clock; null: it has not reported yet.
  last_heartbeat_at timestamptz,
  -- How long before last_heartbeat_at the last heartbeat was written, in milliseconds: as far as it seems to
  -- have put the node's clock back.
  last_late_ms bigint NOT NULL DEFAULT 0 CHECK (last_late_ms >= 0),
  -- How far its clock was ahead of the server's with the last report, without the time that the report took;
  -- null: it does not say.
  clock_ahead_ms bigint,
  -- How far the clock of the node seemed to be ahead of the server's when its last report arrived, in
  -- milliseconds. NULL: unknown.
  clock_measured_ms bigint,
  -- The incarnation of the agent whose report of images was applied last; null: it has reported none since it
  -- registered.
  images_boot_id text,
  -- The number of that report; an older one of the incarnation is late.
  images_sequence bigint,
  -- Machines that the node has reported and does not own; it keeps them. At most 1000. Copies that moves
  -- left, which are removed, are not among them.
  unknown_machines text[] NOT NULL DEFAULT '{}',
  -- Ids of machines that run in a VMM of another program than the installed one, as the node last reported;
  -- at most 1000. NULL: it has not said.
  outdated_vmms text[],
  -- The last error that its agent has logged since it started; null: none, as last_error_at.
  last_error text,
  -- When that was, by the clock of the node.
  last_error_at timestamptz,
  -- Since when an operator lets no new machine be placed there; null: they may be. It outlasts restarts,
  -- drains and revocation.
  cordoned_at timestamptz,
  -- Since when an operator works on it, so that its absence is expected; null: none does. It outlasts
  -- restarts, and ends with cordoned_at.
  maintenance_at timestamptz,
  -- Whether its agent fences VMs, as of its last report.
  can_fence boolean NOT NULL DEFAULT false,
  -- When it was decided that its fenced machines are replaced; null: it was not, or the node has reported
  -- since.
  lost_at timestamptz,
  -- Since when it is unreachable and its fenced machines are not replaced; null: that is not so.
  held_at timestamptz,
  -- Why they are not replaced.
  held_reason text,
  CHECK ((status = 'revoked') = (credential_hash IS NULL)),
  CONSTRAINT nodes_held_check CHECK ((held_at IS NULL) = (held_reason IS NULL)),
  CONSTRAINT nodes_lost_check CHECK (lost_at IS NULL OR held_at IS NULL)
);
CREATE UNIQUE INDEX nodes_credential ON nodes (credential_hash);

-- Which node has which image, as nodes report it.
CREATE TABLE node_images (
  -- The node that has it.
  node_id text NOT NULL REFERENCES nodes ON DELETE CASCADE,
  -- Its canonical name.
  reference text NOT NULL,
  -- As image configurations name it, such as amd64.
  architecture text NOT NULL,
  -- The tenant that fetched it; null: the operator, or a local image, which every tenant may use. As the node
  -- says.
  tenant_id text,
  UNIQUE NULLS NOT DISTINCT (reference, architecture, tenant_id, node_id)
);
CREATE INDEX node_images_by_node ON node_images (node_id);

-- Tokens with which nodes enter the cluster, by hash. Written by server/src/tokens/store.ts only.
CREATE TABLE join_tokens (
  -- The part that is not secret and names the token.
  prefix text PRIMARY KEY CHECK (prefix ~ '^[0-9a-f]{12}$'),
  -- SHA-256 of the whole token.
  token_hash bytea NOT NULL CHECK (octet_length(token_hash) = 32),
  -- Text for people.
  description text,
  -- Given to every node that joins with it.
  labels jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(labels) = 'object'),
  -- When it was created.
  created_at timestamptz NOT NULL,
  -- From then on it is refused.
  expires_at timestamptz NOT NULL,
  -- How many nodes may enter with it.
  max_uses integer NOT NULL CHECK (max_uses >= 1),
  -- How many have.
  uses integer NOT NULL DEFAULT 0,
  CHECK (uses >= 0 AND uses <= max_uses)
);

-- Nodes that an operator has revoked; kept also when the node is admitted again or its row is removed.
-- Written by server/src/nodes/revocation-store.ts only.
CREATE TABLE node_revocations (
  -- The id that it had.
  node_id text NOT NULL,
  -- SHA-256 of its public key; null: it had none, as a node of the server's host.
  key_hash bytea,
  -- The last time. A join token made before admits neither the id nor the key; the server's own token counts
  -- as made when the server started.
  revoked_at timestamptz NOT NULL,
  UNIQUE NULLS NOT DISTINCT (node_id, key_hash)
);
CREATE INDEX node_revocations_by_key ON node_revocations (key_hash);

-- Authorities that servers and nodes trust. Written by server/src/link/fleet-store.ts only.
CREATE TABLE fleet_authorities (
  -- SHA-256 of the certificate, in hex.
  fingerprint text PRIMARY KEY,
  -- PEM.
  certificate text NOT NULL,
  -- Encrypted with the key of this installation (server/src/secrets.ts).
  private_key bytea NOT NULL,
  -- When it was made.
  created_at timestamptz NOT NULL,
  -- From then on it is still trusted, and signs only certificates of servers, for nodes that know no newer
  -- one. null: it signs; at most one.
  retired_at timestamptz
);
CREATE UNIQUE INDEX fleet_authorities_signing ON fleet_authorities ((retired_at IS NULL)) WHERE retired_at IS NULL;

-- Where running servers listen for nodes on other hosts. Written by server/src/link/fleet-store.ts only.
CREATE TABLE node_listeners (
  -- Computed from the addresses, so that a server that was restarted has the same.
  id text PRIMARY KEY,
  -- host:port, in the order in which nodes try them.
  addresses text[] NOT NULL,
  -- When its server last confirmed it; an old row is ignored, and deleted later.
  seen_at timestamptz NOT NULL
);

-- Where running ingresses listen for nodes on other hosts. Written by server/src/link/ingress-store.ts only.
CREATE TABLE ingress_listeners (
  -- Computed from the addresses, so that an ingress that was restarted has the same.
  id text PRIMARY KEY CHECK (id ~ '^[0-9a-f]{16}$'),
  -- host:port, in the order in which nodes try them.
  addresses text[] NOT NULL,
  -- P-256, as PEM. The private key is in the ingress's memory only.
  public_key text NOT NULL CHECK (length(public_key) <= 1000),
  -- Certificates of that key, signed by servers: {fingerprint of the authority: {certificate, expiresAt}}.
  -- Empty until a server has signed.
  certificates jsonb NOT NULL CHECK (jsonb_typeof(certificates) = 'object'),
  -- When its ingress last confirmed it; an old row is ignored, and deleted later.
  seen_at timestamptz NOT NULL
);

-- Servers that run. Written by server/src/nodes/servers-store.ts only.
CREATE TABLE servers (
  -- Id of one run of a server.
  id text PRIMARY KEY,
  -- The name of its host.
  host text NOT NULL,
  -- Its version.
  release text NOT NULL,
  -- Its version of the link between server and nodes.
  link_version integer NOT NULL,
  -- When it announced itself for the first time, by the clock of the database.
  started_at timestamptz NOT NULL,
  -- When it last announced itself, by the clock of the database. An old row is ignored, and deleted later.
  seen_at timestamptz NOT NULL
);
