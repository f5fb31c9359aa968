-- The schema that the migrations make, printed by scripts/schema.ts from a database; not edited by hand, and applied by
-- nothing. To change it, add a migration (docs/adding-a-table.md) and run `node scripts/schema.ts`.

-- API keys, by hash. Written by server/src/apikeys/store.ts only.
CREATE TABLE api_keys (
  -- key-<32 hex>.
  id text NOT NULL,
  -- The tenant whose resources the key reaches.
  tenant_id text NOT NULL,
  -- SHA-256 of the key; the key itself is kept nowhere.
  key_hash bytea NOT NULL,
  -- What the key may do; see contract/src/scopes.ts.
  scopes text[] NOT NULL,
  -- For people.
  description text,
  -- The id of the key that created it; null: the server at its first start.
  created_by text,
  -- When it was created.
  created_at timestamp with time zone DEFAULT now() NOT NULL,
  -- From then on it is refused; null: never.
  expires_at timestamp with time zone,
  -- Written in batches, a few seconds late.
  last_used_at timestamp with time zone,
  -- From then on it is unknown. The row stays, so that what it created has a name.
  revoked_at timestamp with time zone,
  CONSTRAINT api_keys_key_hash_key UNIQUE (key_hash),
  CONSTRAINT api_keys_pkey PRIMARY KEY (id),
  CONSTRAINT api_keys_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES tenants(id),
  CONSTRAINT api_keys_key_hash_check CHECK ((octet_length(key_hash) = 32)),
  CONSTRAINT api_keys_scopes_check CHECK ((cardinality(scopes) > 0))
);

-- The end of each chain. Its row is locked while rows are appended, so that tenants do not wait for each other.
CREATE TABLE audit_chains (
  -- Whose chain it is: that of the keys that called.
  tenant_id text NOT NULL,
  -- Of the last row.
  sequence bigint NOT NULL,
  -- Of the last row.
  hash text NOT NULL,
  CONSTRAINT audit_chains_pkey PRIMARY KEY (tenant_id),
  CONSTRAINT audit_chains_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES tenants(id)
);

-- Calls that changed something or were refused. Rows are never changed, and deleted only by purge_audit.
CREATE TABLE audit_log (
  -- The tenant of the key that called.
  tenant_id text NOT NULL,
  -- From 1, without gaps.
  sequence bigint NOT NULL,
  -- When the call was answered.
  at timestamp with time zone NOT NULL,
  -- Who did what, as JSON text: what the hash is computed from.
  record text NOT NULL,
  -- Of the row before; of the first row 64 zeros.
  previous_hash text NOT NULL,
  -- SHA-256 in hex of previous_hash, tenant_id, sequence and record, separated by newlines.
  hash text NOT NULL,
  -- As in record, to find rows by it.
  key_id text,
  -- The first id of the resource in record, to find rows by it.
  resource text,
  CONSTRAINT audit_log_pkey PRIMARY KEY (tenant_id, sequence)
);

-- One row for each event about a budget, so that each is written once. Written by server/src/usage/notices-store.ts.
CREATE TABLE budget_notices (
  -- Who was notified.
  tenant_id text NOT NULL,
  -- The first day of the month, in UTC.
  month date NOT NULL,
  -- The share of the budget that was used.
  percent integer NOT NULL,
  -- When the event was written.
  noted_at timestamp with time zone NOT NULL,
  CONSTRAINT budget_notices_pkey PRIMARY KEY (tenant_id, month, percent),
  CONSTRAINT budget_notices_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES tenants(id),
  CONSTRAINT budget_notices_month_check CHECK ((date_trunc('month'::text, (month)::timestamp with time zone) = month)),
  CONSTRAINT budget_notices_percent_check CHECK ((percent = ANY (ARRAY[80, 100])))
);

-- How far the billing time of a tenant with a test clock is ahead, from an instant on. Rows are never changed. Written by server/src/tenants/store.ts.
CREATE TABLE clock_advances (
  -- The tenant, which has a test clock.
  tenant_id text NOT NULL,
  -- In real time. Not before that of a smaller ahead_ms, so billing time never goes back.
  active_from timestamp with time zone NOT NULL,
  -- When the operator moved the clock, in real time; not before active_from.
  advanced_at timestamp with time zone NOT NULL,
  -- Milliseconds.
  ahead_ms bigint NOT NULL,
  CONSTRAINT clock_advances_pkey PRIMARY KEY (tenant_id, ahead_ms),
  CONSTRAINT clock_advances_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES tenants(id),
  CONSTRAINT clock_advances_ahead_ms_check CHECK ((ahead_ms > 0))
);

-- One row: the identity of this cluster.
CREATE TABLE cluster (
  -- Random, made once; shown by /health.
  id text NOT NULL,
  -- Always true, so that a second row cannot exist.
  is_only_row boolean DEFAULT true NOT NULL,
  -- When the database was first set up.
  created_at timestamp with time zone DEFAULT now() NOT NULL,
  CONSTRAINT cluster_pkey PRIMARY KEY (is_only_row),
  CONSTRAINT cluster_is_only_row_check CHECK (is_only_row)
);

-- What opens the connect bridge of one machine for a while. Written by server/src/ingress/connect/store.ts only.
CREATE TABLE connect_tokens (
  -- SHA-256 of the token, which is shown once.
  token_hash bytea NOT NULL,
  -- The machine it opens.
  machine_id text NOT NULL,
  -- The API key that made it: it is good for as long as that one is.
  key_id text NOT NULL,
  -- From then on it opens nothing.
  expires_at timestamp with time zone NOT NULL,
  CONSTRAINT connect_tokens_pkey PRIMARY KEY (token_hash),
  CONSTRAINT connect_tokens_key_id_fkey FOREIGN KEY (key_id) REFERENCES api_keys(id) ON DELETE CASCADE,
  CONSTRAINT connect_tokens_machine_id_fkey FOREIGN KEY (machine_id) REFERENCES machines(id) ON DELETE CASCADE,
  CONSTRAINT connect_tokens_token_hash_check CHECK ((length(token_hash) = 32))
);

-- Authorities that servers and nodes trust. Written by server/src/link/fleet-store.ts only.
CREATE TABLE fleet_authorities (
  -- SHA-256 of the certificate, in hex.
  fingerprint text NOT NULL,
  -- PEM.
  certificate text NOT NULL,
  -- Encrypted with the key of this installation (server/src/secrets.ts).
  private_key bytea NOT NULL,
  -- When it was made.
  created_at timestamp with time zone NOT NULL,
  -- From then on it is still trusted, and signs only certificates of servers, for nodes that know no newer one. null: it signs; at most one.
  retired_at timestamp with time zone,
  CONSTRAINT fleet_authorities_pkey PRIMARY KEY (fingerprint)
);

-- Machines whose disk follows them from another node, which keeps it until all of it has arrived. Written by server/src/moves/following-store.ts and store.ts only.
CREATE TABLE following_disks (
  -- The machine that runs, or may run, without all of its disk.
  machine_id text NOT NULL,
  -- The node on which the machine was. Its copy is not removed while this row is there and the machine is not deleted.
  node_id text NOT NULL,
  -- The operation of the move.
  move_id text NOT NULL,
  -- When the machine's owner changed.
  began_at timestamp with time zone NOT NULL,
  -- The work that sends it; null: none yet.
  sent_by text,
  -- Another server may continue after this; null: at once.
  leased_until timestamp with time zone,
  CONSTRAINT following_disks_pkey PRIMARY KEY (machine_id),
  CONSTRAINT following_disks_machine_id_fkey FOREIGN KEY (machine_id) REFERENCES machines(id) ON DELETE CASCADE,
  CONSTRAINT following_disks_node_id_fkey FOREIGN KEY (node_id) REFERENCES nodes(id)
);

-- First answers to POSTs with an Idempotency-Key. Written by server/src/http/idempotency.ts only.
CREATE TABLE idempotency_keys (
  -- The API key that called.
  key_id text NOT NULL,
  -- What the caller sent.
  idempotency_key text NOT NULL,
  -- SHA-256 over method, path with query, and body of the first request.
  fingerprint bytea NOT NULL,
  -- The request that holds the lease.
  owner text NOT NULL,
  -- While it runs it renews this; past it the request counts as lost and may run again.
  lease_until timestamp with time zone NOT NULL,
  -- HTTP status of the answer; null while the request runs.
  status integer,
  -- Headers and body, encrypted with a key that only the bearer of the API key has; null: not kept.
  answer bytea,
  -- When the first request came.
  created_at timestamp with time zone DEFAULT now() NOT NULL,
  -- From then on it is forgotten.
  expires_at timestamp with time zone NOT NULL,
  -- Ids of what the request makes are made from it; kept when a request that was lost runs again.
  seed text DEFAULT ''::text NOT NULL,
  CONSTRAINT idempotency_keys_pkey PRIMARY KEY (key_id, idempotency_key),
  CONSTRAINT idempotency_keys_key_id_fkey FOREIGN KEY (key_id) REFERENCES api_keys(id),
  CONSTRAINT idempotency_keys_check CHECK (((answer IS NULL) OR (status IS NOT NULL)))
);

-- Where running ingresses listen for nodes on other hosts. Written by server/src/link/ingress-store.ts only.
CREATE TABLE ingress_listeners (
  -- Computed from the addresses, so that an ingress that was restarted has the same.
  id text NOT NULL,
  -- host:port, in the order in which nodes try them.
  addresses text[] NOT NULL,
  -- P-256, as PEM. The private key is in the ingress's memory only.
  public_key text NOT NULL,
  -- Of that key, signed by servers: {fingerprint of the authority: {certificate, expiresAt}}. Empty until a server has signed.
  certificates jsonb NOT NULL,
  -- When its ingress last confirmed it; an old row is ignored, and deleted later.
  seen_at timestamp with time zone NOT NULL,
  CONSTRAINT ingress_listeners_pkey PRIMARY KEY (id),
  CONSTRAINT ingress_listeners_certificates_check CHECK ((jsonb_typeof(certificates) = 'object'::text)),
  CONSTRAINT ingress_listeners_id_check CHECK ((id ~ '^[0-9a-f]{16}$'::text)),
  CONSTRAINT ingress_listeners_public_key_check CHECK ((length(public_key) <= 1000))
);

-- One row. Its lock makes transactions that finalize invoices take turns, so that numbers have no gaps.
CREATE TABLE invoice_counter (
  -- Always true.
  is_only boolean DEFAULT true NOT NULL,
  -- The number of the newest invoice of the series; 0: there is none.
  last_number bigint NOT NULL,
  -- The current series: empty, or when the control plane was restored last, such as 20260723T120000Z.
  series text DEFAULT ''::text NOT NULL,
  CONSTRAINT invoice_counter_pkey PRIMARY KEY (is_only),
  CONSTRAINT invoice_counter_is_only_check CHECK (is_only)
);

-- Intervals without an end that an invoice did not count to the end of its month, because their node had not reported. Rows are never changed.
CREATE TABLE invoice_limits (
  -- With month: the invoice.
  tenant_id text NOT NULL,
  -- With tenant_id: the invoice.
  month date NOT NULL,
  -- The interval.
  interval_id bigint NOT NULL,
  -- How far it was counted: the last heartbeat of its node.
  counted_until timestamp with time zone NOT NULL,
  CONSTRAINT invoice_limits_pkey PRIMARY KEY (tenant_id, month, interval_id),
  CONSTRAINT invoice_limits_interval_id_fkey FOREIGN KEY (interval_id) REFERENCES usage_intervals(id),
  CONSTRAINT invoice_limits_tenant_id_month_fkey FOREIGN KEY (tenant_id, month) REFERENCES invoices(tenant_id, month)
);

-- Lines of final invoices; rows are never changed. Written by server/src/billing/store.ts.
CREATE TABLE invoice_lines (
  -- With month: the invoice.
  tenant_id text NOT NULL,
  -- With tenant_id: the invoice.
  month date NOT NULL,
  -- When it was used. An earlier month than the invoice's: an adjustment of that month.
  usage_month date NOT NULL,
  -- What was used.
  meter text NOT NULL,
  -- The price.
  rate_id text NOT NULL,
  -- Quantity × milliseconds; of an adjustment the difference from what was invoiced before.
  amount numeric NOT NULL,
  -- The price of all that was used in usage_month at this rate, rounded down once, less what was invoiced before.
  micros bigint NOT NULL,
  CONSTRAINT invoice_lines_pkey PRIMARY KEY (tenant_id, month, usage_month, meter, rate_id),
  CONSTRAINT invoice_lines_rate_id_fkey FOREIGN KEY (rate_id) REFERENCES rates(id),
  CONSTRAINT invoice_lines_tenant_id_month_fkey FOREIGN KEY (tenant_id, month) REFERENCES invoices(tenant_id, month),
  CONSTRAINT invoice_lines_amount_check CHECK ((amount = trunc(amount))),
  CONSTRAINT invoice_lines_check CHECK ((usage_month <= month)),
  CONSTRAINT invoice_lines_meter_check CHECK ((meter = ANY (ARRAY['uptime'::text, 'cpu'::text, 'memory'::text, 'disk'::text]))),
  CONSTRAINT invoice_lines_usage_month_check CHECK ((date_trunc('month'::text, (usage_month)::timestamp with time zone) = usage_month))
);

-- Final invoices; rows are never changed. Drafts are computed when they are read. Written by server/src/billing/store.ts.
CREATE TABLE invoices (
  -- Who owes it.
  tenant_id text NOT NULL,
  -- The first day of its calendar month in UTC. A tenant has one for each month since it was made, without gaps.
  month date NOT NULL,
  -- Counts the invoices of its series, without gaps. Null: of a tenant with a test clock.
  number bigint,
  -- It knows the starts and ends of intervals with a lower id or closed_in.
  cut bigint NOT NULL,
  -- When it became final, by the clock of the database.
  finalized_at timestamp with time zone NOT NULL,
  -- How many lines it has.
  line_count integer NOT NULL,
  -- The sum of its lines, in micros. Negative when adjustments are larger than the usage.
  total_micros bigint NOT NULL,
  -- With number: names the invoice for good. Empty until the first restore of the control plane.
  series text DEFAULT current_invoice_series() NOT NULL,
  CONSTRAINT invoices_number_key UNIQUE (series, number),
  CONSTRAINT invoices_pkey PRIMARY KEY (tenant_id, month),
  CONSTRAINT invoices_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES tenants(id),
  CONSTRAINT invoices_month_check CHECK ((date_trunc('month'::text, (month)::timestamp with time zone) = month)),
  CONSTRAINT invoices_number_check CHECK ((number >= 1))
);

-- Tokens with which nodes enter the cluster, by hash. Written by server/src/tokens/store.ts only.
CREATE TABLE join_tokens (
  -- The part that is not secret and names the token.
  prefix text NOT NULL,
  -- SHA-256 of the whole token.
  token_hash bytea NOT NULL,
  -- For people.
  description text,
  -- Given to every node that joins with it.
  labels jsonb DEFAULT '{}'::jsonb NOT NULL,
  -- When it was created.
  created_at timestamp with time zone NOT NULL,
  -- From then on it is refused.
  expires_at timestamp with time zone NOT NULL,
  -- How many nodes may enter with it.
  max_uses integer NOT NULL,
  -- How many have.
  uses integer DEFAULT 0 NOT NULL,
  CONSTRAINT join_tokens_pkey PRIMARY KEY (prefix),
  CONSTRAINT join_tokens_check CHECK (((uses >= 0) AND (uses <= max_uses))),
  CONSTRAINT join_tokens_labels_check CHECK ((jsonb_typeof(labels) = 'object'::text)),
  CONSTRAINT join_tokens_max_uses_check CHECK ((max_uses >= 1)),
  CONSTRAINT join_tokens_prefix_check CHECK ((prefix ~ '^[0-9a-f]{12}$'::text)),
  CONSTRAINT join_tokens_token_hash_check CHECK ((octet_length(token_hash) = 32))
);

-- What a transaction adds to each of the tenant's accounts; the sum of a transaction is 0. Rows are never changed.
CREATE TABLE ledger_entries (
  -- The transaction.
  transaction_id text NOT NULL,
  -- balance: what the tenant has, or owes when it is negative. Against it: usage that was invoiced, adjustments, credits.
  account text NOT NULL,
  -- Micros; positive or negative.
  micros bigint NOT NULL,
  CONSTRAINT ledger_entries_pkey PRIMARY KEY (transaction_id, account),
  CONSTRAINT ledger_entries_transaction_id_fkey FOREIGN KEY (transaction_id) REFERENCES ledger_transactions(id),
  CONSTRAINT ledger_entries_account_check CHECK ((account = ANY (ARRAY['balance'::text, 'usage'::text, 'adjustment'::text, 'credit'::text]))),
  CONSTRAINT ledger_entries_micros_check CHECK ((micros <> 0))
);

-- What active machines may cost until they are checked again: from the account budget of their tenant to its account held. Only of tenants whose budget blocks or stops. Written by a trigger of machines, renewed by server/src/usage/holds-store.ts.
CREATE TABLE ledger_holds (
  -- The order in which they were placed.
  number bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
  -- Whose budget.
  tenant_id text NOT NULL,
  -- Which machine; it may be gone.
  machine_id text NOT NULL,
  -- When the machine was started, or its tenant got such a budget. This and the other times: in the billing time of the tenant.
  placed_at timestamp with time zone NOT NULL,
  -- From then on its usage was not counted when this was last renewed.
  held_from timestamp with time zone NOT NULL,
  -- Not after the end of the month of held_from: the next one has its own budget.
  held_until timestamp with time zone NOT NULL,
  -- The price from held_from to held_until, rounded up for each meter and rate.
  micros bigint NOT NULL,
  -- posted: usage of the machine replaced it; voided: the machine did not run. Null while it is held.
  outcome text,
  -- When it was posted or voided, which happens once. Null while it is held.
  ended_at timestamp with time zone,
  CONSTRAINT ledger_holds_pkey PRIMARY KEY (number),
  CONSTRAINT ledger_holds_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES tenants(id),
  CONSTRAINT ended_with_an_outcome CHECK (((ended_at IS NULL) = (outcome IS NULL))),
  CONSTRAINT ledger_holds_check CHECK ((held_from >= placed_at)),
  CONSTRAINT ledger_holds_check1 CHECK ((held_until >= held_from)),
  CONSTRAINT ledger_holds_check2 CHECK ((ended_at >= placed_at)),
  CONSTRAINT ledger_holds_micros_check CHECK ((micros >= 0)),
  CONSTRAINT ledger_holds_outcome_check CHECK ((outcome = ANY (ARRAY['posted'::text, 'voided'::text])))
);

-- What changed the balance of a tenant; rows are never changed. Invoices by a trigger of invoices, others by server/src/billing/ledger-store.ts.
CREATE TABLE ledger_transactions (
  -- post-<32 hex>.
  id text NOT NULL,
  -- The order in which they were posted.
  position bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
  -- Whose balance.
  tenant_id text NOT NULL,
  -- invoice: of a final invoice; credit: given by an operator; adjustment: a correction by an operator.
  kind text NOT NULL,
  -- Of an invoice: its month. Each invoice is posted once.
  invoice_month date,
  -- For people; may be empty.
  note text NOT NULL,
  -- When it was posted.
  made_at timestamp with time zone NOT NULL,
  -- The database transaction that posted it, which is the only one that adds entries.
  made_in xid8 DEFAULT pg_current_xact_id() NOT NULL,
  CONSTRAINT ledger_transactions_position_key UNIQUE ("position"),
  CONSTRAINT posted_once UNIQUE (tenant_id, invoice_month),
  CONSTRAINT ledger_transactions_pkey PRIMARY KEY (id),
  CONSTRAINT ledger_transactions_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES tenants(id),
  CONSTRAINT ledger_transactions_tenant_id_invoice_month_fkey FOREIGN KEY (tenant_id, invoice_month) REFERENCES invoices(tenant_id, month),
  CONSTRAINT ledger_transactions_check CHECK (((kind = 'invoice'::text) = (invoice_month IS NOT NULL))),
  CONSTRAINT ledger_transactions_id_check CHECK ((id ~ '^post-[0-9a-f]{32}$'::text)),
  CONSTRAINT ledger_transactions_kind_check CHECK ((kind = ANY (ARRAY['invoice'::text, 'credit'::text, 'adjustment'::text])))
);

-- Files of machines on nodes that do not own them, to be removed. Written by server/src/moves/store.ts only.
CREATE TABLE machine_copies (
  -- mach-<32 hex>; the row may outlive the machine's.
  machine_id text NOT NULL,
  -- The node that has, or may have, the copy.
  node_id text NOT NULL,
  CONSTRAINT machine_copies_pkey PRIMARY KEY (machine_id, node_id),
  CONSTRAINT machine_copies_node_id_fkey FOREIGN KEY (node_id) REFERENCES nodes(id) ON DELETE CASCADE
);

-- Commands run in a machine, by calendar month; written in batches.
CREATE TABLE machine_exec_months (
  -- Which machine.
  machine_id text NOT NULL,
  -- First day of the month in UTC.
  month date NOT NULL,
  -- How many commands ended.
  exec_count bigint NOT NULL,
  -- How long they took together.
  exec_duration_ms bigint NOT NULL,
  -- Its owner.
  tenant_id text NOT NULL,
  CONSTRAINT machine_exec_months_pkey PRIMARY KEY (machine_id, month),
  CONSTRAINT machine_exec_months_exec_count_check CHECK ((exec_count >= 0)),
  CONSTRAINT machine_exec_months_exec_duration_ms_check CHECK ((exec_duration_ms >= 0))
);

-- One row for each boot that ran: what uptime is computed from. Rows outlive their machine and do not change after the run has ended.
CREATE TABLE machine_runs (
  -- One incarnation of a machine.
  boot_id text NOT NULL,
  -- Which machine ran. It may be gone.
  machine_id text NOT NULL,
  -- Its owner.
  tenant_id text NOT NULL,
  -- As the machine had them.
  cpus integer NOT NULL,
  -- As the machine had it.
  memory_mb integer NOT NULL,
  -- When it was running, by the node's clock; not before the machine was created, and not after the server received it.
  started_at timestamp with time zone NOT NULL,
  -- When its VM ended, by the node's clock; if no agent saw that, when it was last known to run. Null while it runs.
  ended_at timestamp with time zone,
  -- Where it ran. Only this node ends the run.
  node_id text NOT NULL,
  -- Why it ended, as contract/src/runs.ts says. Null while it runs.
  end_cause text,
  -- What the machine ran after that does not count: it was deleted then, or its node had not reported since when it was deleted. By the server's clock; null: no bound.
  counted_until timestamp with time zone,
  -- The number of the node's record of it. Null until that record has arrived: an answer to a request was quicker, or the node has an earlier version.
  sequence bigint,
  -- When the server first received it.
  recorded_at timestamp with time zone NOT NULL,
  CONSTRAINT machine_runs_pkey PRIMARY KEY (boot_id),
  CONSTRAINT machine_runs_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES tenants(id),
  CONSTRAINT machine_runs_check CHECK (((ended_at IS NULL) OR (ended_at >= started_at))),
  CONSTRAINT machine_runs_end_cause_check CHECK ((end_cause = ANY (ARRAY['stop'::text, 'delete'::text, 'poweroff'::text, 'crash'::text, 'unresponsive'::text, 'unseen'::text, 'fenced'::text, 'unknown'::text]))),
  CONSTRAINT machine_runs_end_check CHECK (((ended_at IS NULL) = (end_cause IS NULL)))
);

-- What commands of a session leave to the next one. Written by server/src/machines/sessions/store.ts only.
CREATE TABLE machine_sessions (
  -- The machine it belongs to; it outlives stops of it.
  machine_id text NOT NULL,
  -- Chosen by the caller, or sess-<32 hex>; unique in the machine.
  id text NOT NULL,
  -- Where the next command runs; null: the machine's working directory.
  cwd text,
  -- Variables that differ from the machine's.
  env jsonb NOT NULL,
  -- Variables of the machine that the session does not have.
  unset_names text[] DEFAULT '{}'::text[] NOT NULL,
  -- A login shell's profile was read and what it exports is in env: it must not be read again, it would undo changes.
  has_profile boolean DEFAULT false NOT NULL,
  -- When it was created.
  created_at timestamp with time zone NOT NULL,
  -- When its last command ended; null: none has.
  last_exec_at timestamp with time zone,
  -- The id that the request which made it would have given it: a repetition has the same one.
  made_as text,
  -- Of its variables and directory; those of all sessions of a machine are bounded together.
  bytes integer GENERATED ALWAYS AS ((octet_length((env)::text) + COALESCE(octet_length(cwd), 0))) STORED NOT NULL,
  CONSTRAINT machine_sessions_pkey PRIMARY KEY (machine_id, id),
  CONSTRAINT machine_sessions_machine_id_fkey FOREIGN KEY (machine_id) REFERENCES machines(id) ON DELETE CASCADE,
  CONSTRAINT machine_sessions_env_check CHECK ((jsonb_typeof(env) = 'object'::text)),
  CONSTRAINT machine_sessions_id_check CHECK ((id ~ '^[A-Za-z0-9._-]{1,128}$'::text))
);

-- The one share link of a machine, if it has one. Written by server/src/ingress/share/store.ts only.
CREATE TABLE machine_shares (
  -- Whose url the link opens.
  machine_id text NOT NULL,
  -- SHA-256 of the token, which is shown once.
  token_hash bytea NOT NULL,
  -- The id of the API key that made it.
  created_by text NOT NULL,
  -- When it was made.
  created_at timestamp with time zone NOT NULL,
  CONSTRAINT machine_shares_pkey PRIMARY KEY (machine_id),
  CONSTRAINT machine_shares_machine_id_fkey FOREIGN KEY (machine_id) REFERENCES machines(id) ON DELETE CASCADE,
  CONSTRAINT machine_shares_token_hash_check CHECK ((length(token_hash) = 32))
);

-- What users own: what was asked (desired_…) and what a node saw (observed_…). Written by server/src/machines only.
CREATE TABLE machines (
  -- mach-<32 hex>.
  id text NOT NULL,
  -- Its owner.
  tenant_id text NOT NULL,
  -- Unique among the tenant's machines that are not deleted.
  name text,
  -- MachineSource of the contract.
  source jsonb NOT NULL,
  -- MachineNetwork of the contract.
  network jsonb NOT NULL,
  -- Environment of the machine and of every command in it.
  env jsonb NOT NULL,
  -- Argv that overrides the image's entrypoint and command; null: the image's.
  command jsonb,
  -- Published ports as [{port}].
  ports jsonb NOT NULL,
  -- The owner's labels.
  labels jsonb NOT NULL,
  -- Null: the image's.
  workdir text,
  -- Virtual processors.
  cpus integer NOT NULL,
  -- Memory in MiB.
  memory_mb integer NOT NULL,
  -- Size in GiB of its sparse disk.
  disk_gb integer NOT NULL,
  -- Deleted once it has stopped.
  is_ephemeral boolean NOT NULL,
  -- Whether its url needs no key.
  is_public boolean NOT NULL,
  -- Whether it may be branched.
  is_branchable boolean NOT NULL,
  -- Stop after this long without activity.
  auto_stop_seconds bigint,
  -- Delete this long after creation.
  ttl_seconds bigint,
  -- The id of the API key.
  created_by text,
  -- When it was created.
  created_at timestamp with time zone NOT NULL,
  -- When anything of it but its activity last changed.
  updated_at timestamp with time zone NOT NULL,
  -- What is wanted; generation grows with every change of it.
  desired_state text NOT NULL,
  -- Grows with every change of what is wanted.
  generation integer NOT NULL,
  -- When desired_state last changed: transitional states have deadlines.
  desired_at timestamp with time zone NOT NULL,
  -- The node that owns its disk, and the only one on which it may run; null until its first start. Only a move changes it.
  node_id text,
  -- Why the server itself gave up on the last wish; the next start or stop clears it.
  error text,
  -- The last start was asked for by a command, not by a start call.
  is_auto_started boolean DEFAULT false NOT NULL,
  -- It has been seen running since it was last asked to start.
  has_run boolean DEFAULT false NOT NULL,
  -- What the node last reported.
  observed_state text NOT NULL,
  -- The generation the node acted on; 0: none.
  observed_generation integer NOT NULL,
  -- The incarnation that runs or ran last; null: none known.
  observed_boot_id text,
  -- Why it failed.
  observed_reason text,
  -- Unused: see observed_details.
  observed_progress text,
  -- Unused: see observed_details.
  observed_host_ports jsonb DEFAULT '[]'::jsonb NOT NULL,
  -- Unused: see observed_details.
  observed_timings jsonb,
  -- When the running boot became ready.
  ready_at timestamp with time zone,
  -- Grows with every write of the columns above: the fence of optimistic writers.
  revision integer NOT NULL,
  -- Not before this instant the machine reconciler looks at the row; null when nothing is to be done.
  reconcile_at timestamp with time zone,
  -- Activity of users; written in batches, outside the fence.
  last_activity_at timestamp with time zone,
  -- Set by a delete; the row is kept for 30 days, so that usage stays readable.
  deleted_at timestamp with time zone,
  -- Whether it takes one of the plan's places for running machines: isActive() of machines/state.ts, in SQL.
  is_active boolean GENERATED ALWAYS AS (((deleted_at IS NULL) AND
CASE desired_state
    WHEN 'running'::text THEN (NOT ((observed_state = 'failed'::text) AND (observed_generation = generation)))
    ELSE (observed_state = ANY (ARRAY['preparing'::text, 'booting'::text, 'running'::text, 'stopping'::text]))
END)) STORED NOT NULL,
  -- The first label of its host name under the domain for machines; no other machine has it as long as this one lives.
  host_label text NOT NULL,
  -- Whether it is started again when its VM ends without being asked or its host goes down.
  restart text DEFAULT 'always'::text NOT NULL,
  -- Secret variables, encrypted as server/src/machines/secrets.ts says; null: none.
  secret_env bytea,
  -- Their names, which are shown.
  secret_names text[] DEFAULT '{}'::text[] NOT NULL,
  -- What observed_reason says of the image, for programs; null: nothing, or another start may succeed.
  observed_reason_code text,
  -- Fields of the newest report that have no column, as ObservedMachine in contract/src/link names them.
  observed_details jsonb DEFAULT '{}'::jsonb NOT NULL,
  -- The API key whose call, or whose command, last started it; null: none has.
  started_by text,
  -- Labels that the node on which the machine is placed must have, with their values.
  node_labels jsonb DEFAULT '{}'::jsonb NOT NULL,
  -- The operation that moves it; null: none. While it is set the node receives stopped, whatever is desired.
  move_id text,
  -- The node to which it moves; null exactly when move_id is.
  move_node_id text,
  -- The operation of its last completed move; null: it never moved.
  moved_by text,
  -- While it is to be stopped: whether its node suspends it and keeps its memory. Otherwise its node discards memory.
  keeps_memory boolean DEFAULT false NOT NULL,
  -- When it moves to another node while it runs: its memory moves too where possible, it boots there, or it is stopped and stays so.
  disruption text DEFAULT 'migrate'::text NOT NULL,
  -- While it is to run and move_id is set: whether it is to be stopped when the move is complete. A move that fails lets it run again.
  move_stops boolean DEFAULT false NOT NULL,
  -- on: another machine may replace it, so its VM ends while its node is cut off. lifting: it was given to a user, and its node may not know yet. Null: it is not fenced.
  fence text,
  CONSTRAINT machines_pkey PRIMARY KEY (id),
  CONSTRAINT machines_node_id_fkey FOREIGN KEY (node_id) REFERENCES nodes(id),
  CONSTRAINT machines_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES tenants(id),
  CONSTRAINT absent_iff_deleted CHECK (((desired_state = 'absent'::text) = (deleted_at IS NOT NULL))),
  CONSTRAINT failed_has_reason CHECK (((observed_state <> 'failed'::text) OR (observed_reason IS NOT NULL))),
  CONSTRAINT machines_auto_stop_seconds_check CHECK ((auto_stop_seconds >= 0)),
  CONSTRAINT machines_cpus_check CHECK ((cpus >= 1)),
  CONSTRAINT machines_desired_state_check CHECK ((desired_state = ANY (ARRAY['running'::text, 'stopped'::text, 'absent'::text]))),
  CONSTRAINT machines_disk_gb_check CHECK ((disk_gb >= 1)),
  CONSTRAINT machines_disruption_check CHECK ((disruption = ANY (ARRAY['migrate'::text, 'restart'::text, 'stop'::text]))),
  CONSTRAINT machines_fence_check CHECK ((fence = ANY (ARRAY['on'::text, 'lifting'::text]))),
  CONSTRAINT machines_generation_check CHECK ((generation >= 1)),
  CONSTRAINT machines_id_check CHECK ((id ~ '^mach-[0-9a-f]{32}$'::text)),
  CONSTRAINT machines_memory_mb_check CHECK ((memory_mb >= 1)),
  CONSTRAINT machines_observed_generation_check CHECK ((observed_generation >= 0)),
  CONSTRAINT machines_observed_reason_code_check CHECK ((observed_reason_code = ANY (ARRAY['image_not_found'::text, 'image_refused'::text, 'image_not_allowed'::text, 'image_wrong_platform'::text, 'image_not_cached'::text]))),
  CONSTRAINT machines_observed_state_check CHECK ((observed_state = ANY (ARRAY['absent'::text, 'stopped'::text, 'preparing'::text, 'booting'::text, 'running'::text, 'stopping'::text, 'failed'::text]))),
  CONSTRAINT machines_restart_check CHECK ((restart = ANY (ARRAY['always'::text, 'never'::text]))),
  CONSTRAINT machines_revision_check CHECK ((revision >= 1)),
  CONSTRAINT machines_ttl_seconds_check CHECK ((ttl_seconds >= 0)),
  CONSTRAINT move_has_target CHECK (((move_id IS NULL) = (move_node_id IS NULL))),
  CONSTRAINT ready_only_when_running CHECK (((ready_at IS NULL) OR (observed_state = 'running'::text))),
  CONSTRAINT running_needs_node CHECK (((desired_state <> 'running'::text) OR (node_id IS NOT NULL)))
);

-- Which node has which image, as nodes report it.
CREATE TABLE node_images (
  -- The node that has it.
  node_id text NOT NULL,
  -- Its canonical name.
  reference text NOT NULL,
  -- As image configurations name it, such as amd64.
  architecture text NOT NULL,
  -- The tenant that fetched it; null: the operator, or a local image, which every tenant may use. As the node says.
  tenant_id text,
  CONSTRAINT node_images_reference_architecture_tenant_id_node_id_key UNIQUE NULLS NOT DISTINCT (reference, architecture, tenant_id, node_id),
  CONSTRAINT node_images_node_id_fkey FOREIGN KEY (node_id) REFERENCES nodes(id) ON DELETE CASCADE
);

-- Where running servers listen for nodes on other hosts. Written by server/src/link/fleet-store.ts only.
CREATE TABLE node_listeners (
  -- Computed from the addresses, so that a server that was restarted has the same.
  id text NOT NULL,
  -- host:port, in the order in which nodes try them.
  addresses text[] NOT NULL,
  -- When its server last confirmed it; an old row is ignored, and deleted later.
  seen_at timestamp with time zone NOT NULL,
  CONSTRAINT node_listeners_pkey PRIMARY KEY (id)
);

-- Nodes that an operator has revoked; kept also when the node is admitted again or its row is removed. Written by server/src/nodes/revocation-store.ts only.
CREATE TABLE node_revocations (
  -- The id that it had.
  node_id text NOT NULL,
  -- SHA-256 of its public key; null: it had none, as a node of the server's host.
  key_hash bytea,
  -- The last time. A join token made before admits neither the id nor the key; the server's own token counts as made when the server started.
  revoked_at timestamp with time zone NOT NULL,
  CONSTRAINT node_revocations_node_id_key_hash_key UNIQUE NULLS NOT DISTINCT (node_id, key_hash)
);

-- Hosts that run machines. Written by server/src/nodes/store.ts only.
CREATE TABLE nodes (
  -- Chosen by the operator, or the host name.
  id text NOT NULL,
  -- Where the server reaches the node's agent: unix:/path or http://host:port.
  address text NOT NULL,
  -- Stored, not computed: the node loop writes unreachable, a heartbeat ready.
  status text NOT NULL,
  -- SHA-256 of the credential the node calls with; null once it was revoked.
  credential_hash bytea,
  -- The operator's (from the join token) and the node's own facts, such as arch and accelerator.
  labels jsonb DEFAULT '{}'::jsonb NOT NULL,
  -- What runs machines there, in words.
  runtime text,
  -- Processors of the host.
  total_cpus integer DEFAULT 0 NOT NULL,
  -- Memory of the host in MiB.
  total_memory_mb integer DEFAULT 0 NOT NULL,
  -- Memory of the host that is free now.
  available_memory_mb integer DEFAULT 0 NOT NULL,
  -- Memory that its machines hold now.
  used_memory_mb integer DEFAULT 0 NOT NULL,
  -- Size in GiB of the disk that holds images and machines.
  total_disk_gb integer DEFAULT 0 NOT NULL,
  -- What is free of it.
  available_disk_gb integer DEFAULT 0 NOT NULL,
  -- What images and machines take of it.
  used_disk_gb integer DEFAULT 0 NOT NULL,
  -- Processors busy with machines, a mean over seconds.
  used_cpus double precision DEFAULT 0 NOT NULL,
  -- One run of the node's agent; its event sequence numbers count within it.
  agent_boot_id text,
  -- When it first entered the cluster.
  registered_at timestamp with time zone NOT NULL,
  -- By the server's clock; null: it has not reported yet.
  last_heartbeat_at timestamp with time zone,
  -- The incarnation of the agent whose report of images was applied last; null: it has reported none since it registered.
  images_boot_id text,
  -- The number of that report; an older one of the incarnation is late.
  images_sequence bigint,
  -- SHA-256 of the public key (SPKI) of a node that joined with one: its credential and its certificates work only with this key. null: a node of the server's host.
  key_hash bytea,
  -- The prefix of the join token with which it was admitted, so that a registration whose answer was lost can be repeated.
  joined_with text,
  -- Since when an operator lets no new machine be placed there; null: they may be. It outlasts restarts, drains and revocation.
  cordoned_at timestamp with time zone,
  -- The version of the link between server and nodes that it has; null: it has not reported since this column exists.
  link_version integer,
  -- How far its clock was ahead of the server's with the last report, without the time that the report took; null: it does not say.
  clock_ahead_ms bigint,
  -- When the certificate expires with which it last reported; null: it has none, as a node of the server's host.
  certificate_expires_at timestamp with time zone,
  -- Machines that the node has reported and does not own; it keeps them. At most 1000. Copies that moves left, which are removed, are not among them.
  unknown_machines text[] DEFAULT '{}'::text[] NOT NULL,
  -- The version of its agent; null: it has not said.
  release text,
  -- The last error that its agent has logged since it started; null: none, as last_error_at.
  last_error text,
  -- When that was, by the clock of the node.
  last_error_at timestamp with time zone,
  -- Since when an operator works on it, so that its absence is expected; null: none does. It outlasts restarts, and ends with cordoned_at.
  maintenance_at timestamp with time zone,
  -- Percent of the last minute in which some or all processes of the host waited, as {"cpu": {"some", "full"}, "memory": …, "io": …}; null: not reported.
  pressure jsonb,
  -- Whether its agent fences VMs, as of its last report.
  can_fence boolean DEFAULT false NOT NULL,
  -- When it was decided that its fenced machines are replaced; null: it was not, or the node has reported since.
  lost_at timestamp with time zone,
  -- Since when it is unreachable and its fenced machines are not replaced; null: that is not so.
  held_at timestamp with time zone,
  -- Why they are not replaced.
  held_reason text,
  -- The prepared VMs that wait there for shared pools, as in its last heartbeat: a list of image, size, number and what is in the way. null: it keeps none, or has an earlier version.
  reserve jsonb,
  -- Ids of machines that run in a VMM of another program than the installed one, as the node last reported; at most 1000. NULL: it has not said.
  outdated_vmms text[],
  -- How far the clock of the node seemed to be ahead of the server's when its last report arrived, in milliseconds. NULL: unknown.
  clock_measured_ms bigint,
  -- How long before last_heartbeat_at the last heartbeat was written, in milliseconds: as far as it seems to have put the node's clock back.
  last_late_ms bigint DEFAULT 0 NOT NULL,
  CONSTRAINT nodes_pkey PRIMARY KEY (id),
  CONSTRAINT nodes_available_disk_gb_check CHECK ((available_disk_gb >= 0)),
  CONSTRAINT nodes_available_memory_mb_check CHECK ((available_memory_mb >= 0)),
  CONSTRAINT nodes_check CHECK (((status = 'revoked'::text) = (credential_hash IS NULL))),
  CONSTRAINT nodes_credential_hash_check CHECK ((octet_length(credential_hash) = 32)),
  CONSTRAINT nodes_held_check CHECK (((held_at IS NULL) = (held_reason IS NULL))),
  CONSTRAINT nodes_id_check CHECK ((id ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$'::text)),
  CONSTRAINT nodes_labels_check CHECK ((jsonb_typeof(labels) = 'object'::text)),
  CONSTRAINT nodes_last_late_ms_check CHECK ((last_late_ms >= 0)),
  CONSTRAINT nodes_lost_check CHECK (((lost_at IS NULL) OR (held_at IS NULL))),
  CONSTRAINT nodes_status_check CHECK ((status = ANY (ARRAY['ready'::text, 'draining'::text, 'drained'::text, 'unreachable'::text, 'revoked'::text]))),
  CONSTRAINT nodes_total_cpus_check CHECK ((total_cpus >= 0)),
  CONSTRAINT nodes_total_disk_gb_check CHECK ((total_disk_gb >= 0)),
  CONSTRAINT nodes_total_memory_mb_check CHECK ((total_memory_mb >= 0)),
  CONSTRAINT nodes_used_cpus_check CHECK ((used_cpus >= (0)::double precision)),
  CONSTRAINT nodes_used_disk_gb_check CHECK ((used_disk_gb >= 0)),
  CONSTRAINT nodes_used_memory_mb_check CHECK ((used_memory_mb >= 0))
);

-- Long work that a user can watch. Written by server/src/operations/store.ts only.
CREATE TABLE operations (
  -- op-<32 hex>.
  id text NOT NULL,
  -- Whose it is; nobody else sees it.
  tenant_id text NOT NULL,
  -- What it is about: OPERATION_KINDS of the contract.
  kind text NOT NULL,
  -- Anything but running is final.
  status text NOT NULL,
  -- What kind of thing it works on, such as image.
  resource_kind text NOT NULL,
  -- The id of that thing.
  resource_id text NOT NULL,
  -- Its name, where it has one.
  resource_name text,
  -- What its worker needs to know; the shape is the kind's own business.
  input jsonb NOT NULL,
  -- OperationStep[] of the contract: what users see, and what a server that takes over goes on from.
  steps jsonb NOT NULL,
  -- Why it failed, in one sentence.
  error text,
  -- When it was asked for.
  created_at timestamp with time zone NOT NULL,
  -- When a step or the status last changed.
  updated_at timestamp with time zone NOT NULL,
  -- It has failed when it still runs then.
  deadline_at timestamp with time zone NOT NULL,
  -- Grows each time a server takes it up: the fence of the servers before.
  attempt integer NOT NULL,
  -- Until then no other server takes it up; null once it has ended.
  leased_until timestamp with time zone,
  -- Since when it is to be canceled; null: it is not. The server that works on it undoes what it did and ends it.
  cancel_requested_at timestamp with time zone,
  CONSTRAINT operations_pkey PRIMARY KEY (id),
  CONSTRAINT operations_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES tenants(id),
  CONSTRAINT failed_iff_error CHECK (((status = 'failed'::text) = (error IS NOT NULL))),
  CONSTRAINT leased_while_running CHECK (((status = 'running'::text) = (leased_until IS NOT NULL))),
  CONSTRAINT operations_attempt_check CHECK ((attempt >= 0)),
  CONSTRAINT operations_id_check CHECK ((id ~ '^op-[0-9a-f]{32}$'::text)),
  CONSTRAINT operations_input_check CHECK ((jsonb_typeof(input) = 'object'::text)),
  CONSTRAINT operations_kind_check CHECK ((kind = ANY (ARRAY['app deploy'::text, 'app scale'::text, 'app promote'::text, 'app redeploy'::text, 'app destroy'::text, 'node drain'::text, 'node upgrade'::text, 'machine export'::text, 'machine branch'::text, 'machine move'::text, 'image pull'::text]))),
  CONSTRAINT operations_status_check CHECK ((status = ANY (ARRAY['running'::text, 'succeeded'::text, 'failed'::text, 'canceled'::text]))),
  CONSTRAINT operations_steps_check CHECK ((jsonb_typeof(steps) = 'array'::text))
);

-- Ceilings and per-unit rates that tenants have. Written by server/src/plans/store.ts only.
CREATE TABLE plans (
  -- plan-<32 hex>, or what its creator chose.
  id text NOT NULL,
  -- Named in refusals over a ceiling.
  name text NOT NULL,
  -- The plan of tenants that name none; exactly one has it.
  is_default boolean DEFAULT false NOT NULL,
  -- What happens when the monthly budget is used up.
  budget_policy text DEFAULT 'none'::text NOT NULL,
  -- Apps a tenant may have.
  max_apps integer NOT NULL,
  -- Processors of one machine.
  max_cpus integer NOT NULL,
  -- Memory of one machine in MiB.
  max_memory_mb bigint NOT NULL,
  -- Disk of one machine in GiB.
  max_disk_gb bigint NOT NULL,
  -- Machines a tenant may have, in any state.
  max_machines integer NOT NULL,
  -- Machines that may be started or creating at once.
  max_concurrent_machines integer NOT NULL,
  -- The price per virtual processor and hour it was made with; rates says which holds.
  rate_cpu_hour_micros bigint DEFAULT 0 NOT NULL,
  -- The price per GiB of memory and hour it was made with; rates says which holds.
  rate_memory_gb_hour_micros bigint DEFAULT 0 NOT NULL,
  -- Price of one exec in millionths.
  rate_exec_micros bigint DEFAULT 0 NOT NULL,
  -- Refill of the tenant's token bucket.
  rate_requests_per_second integer DEFAULT 200 NOT NULL,
  -- Size of the tenant's token bucket.
  rate_burst integer DEFAULT 1000 NOT NULL,
  -- Traffic out of machines per month; null: no ceiling.
  max_egress_gb bigint,
  -- Budget per calendar month; null: none.
  monthly_budget_micros bigint,
  -- When it was created.
  created_at timestamp with time zone DEFAULT now() NOT NULL,
  -- Processors of all machines of a tenant that are active, together.
  max_total_cpus bigint NOT NULL,
  -- Memory in MiB of all machines of a tenant that are active, together.
  max_total_memory_mb bigint NOT NULL,
  -- Disk in GiB of all machines of a tenant in any state, together.
  max_total_disk_gb bigint NOT NULL,
  -- The id that the request which made it would have given it: a repetition has the same one.
  made_as text,
  CONSTRAINT plans_name_key UNIQUE (name),
  CONSTRAINT plans_pkey PRIMARY KEY (id),
  CONSTRAINT plans_budget_policy_check CHECK ((budget_policy = ANY (ARRAY['none'::text, 'notify'::text, 'block'::text, 'stop'::text]))),
  CONSTRAINT plans_max_apps_check CHECK ((max_apps >= 0)),
  CONSTRAINT plans_max_concurrent_machines_check CHECK ((max_concurrent_machines >= 0)),
  CONSTRAINT plans_max_cpus_check CHECK ((max_cpus >= 0)),
  CONSTRAINT plans_max_disk_gb_check CHECK ((max_disk_gb >= 0)),
  CONSTRAINT plans_max_egress_gb_check CHECK ((max_egress_gb >= 0)),
  CONSTRAINT plans_max_machines_check CHECK ((max_machines >= 0)),
  CONSTRAINT plans_max_memory_mb_check CHECK ((max_memory_mb >= 0)),
  CONSTRAINT plans_max_total_cpus_check CHECK ((max_total_cpus >= 0)),
  CONSTRAINT plans_max_total_disk_gb_check CHECK ((max_total_disk_gb >= 0)),
  CONSTRAINT plans_max_total_memory_mb_check CHECK ((max_total_memory_mb >= 0)),
  CONSTRAINT plans_monthly_budget_micros_check CHECK ((monthly_budget_micros >= 0)),
  CONSTRAINT plans_rate_burst_check CHECK ((rate_burst >= 1)),
  CONSTRAINT plans_rate_cpu_hour_micros_check CHECK ((rate_cpu_hour_micros >= 0)),
  CONSTRAINT plans_rate_exec_micros_check CHECK ((rate_exec_micros >= 0)),
  CONSTRAINT plans_rate_memory_gb_hour_micros_check CHECK ((rate_memory_gb_hour_micros >= 0)),
  CONSTRAINT plans_rate_requests_per_second_check CHECK ((rate_requests_per_second >= 1))
);

-- The machines of pools: those that wait, those that were claimed and still exist, and those to delete.
CREATE TABLE pool_machines (
  -- The machine; the row is written before the machine is made.
  machine_id text NOT NULL,
  -- Its pool.
  pool_id text NOT NULL,
  -- When the row was written.
  created_at timestamp with time zone NOT NULL,
  -- When it was claimed, or first used without a claim: the pool does not touch it any more.
  claimed_at timestamp with time zone,
  -- Recognizes a repeated claim.
  claim_id text,
  -- When the pool decided to delete it, unused.
  discarded_at timestamp with time zone,
  CONSTRAINT pool_machines_claim_id_key UNIQUE (claim_id),
  CONSTRAINT pool_machines_pkey PRIMARY KEY (machine_id),
  CONSTRAINT pool_machines_pool_id_fkey FOREIGN KEY (pool_id) REFERENCES pools(id) ON DELETE CASCADE,
  CONSTRAINT pool_machines_check CHECK (((claimed_at IS NULL) OR (discarded_at IS NULL))),
  CONSTRAINT pool_machines_check1 CHECK (((claim_id IS NULL) OR (claimed_at IS NOT NULL)))
);

-- Pools of started machines that wait to be claimed.
CREATE TABLE pools (
  -- pool-<32 hex>.
  id text NOT NULL,
  -- Whose machines they are, and who claims them.
  tenant_id text NOT NULL,
  -- The API key that made it: what waiting machines cost is attributed to it.
  created_by text NOT NULL,
  -- The image reference of its machines.
  image text NOT NULL,
  -- Processors of each machine; null: the default.
  cpus integer,
  -- Memory of each machine, in MiB; null: the default.
  memory_mb integer,
  -- Whether its machines reach the network.
  has_network boolean NOT NULL,
  -- A machine that has waited longer is replaced; null: never.
  max_idle_seconds bigint,
  -- How many machines wait.
  target_size integer NOT NULL,
  -- Why the last machine could not be made or started; null: it could.
  error text,
  -- How many times in a row no machine could be made or started.
  failures integer DEFAULT 0 NOT NULL,
  -- After an error: no machine is made before.
  retry_at timestamp with time zone,
  -- When it was created.
  created_at timestamp with time zone NOT NULL,
  -- When it was deleted; the row stays until its waiting machines are deleted.
  deleted_at timestamp with time zone,
  CONSTRAINT pools_pkey PRIMARY KEY (id),
  CONSTRAINT pools_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES tenants(id),
  CONSTRAINT pools_cpus_check CHECK ((cpus > 0)),
  CONSTRAINT pools_failures_check CHECK ((failures >= 0)),
  CONSTRAINT pools_max_idle_seconds_check CHECK ((max_idle_seconds > 0)),
  CONSTRAINT pools_memory_mb_check CHECK ((memory_mb > 0)),
  CONSTRAINT pools_target_size_check CHECK ((target_size >= 0))
);

-- Prices of a plan, each from an instant until the next one. Rows are never changed. Written by server/src/plans/rates-store.ts, the first of a plan by a trigger.
CREATE TABLE rates (
  -- rate-<32 hex>.
  id text DEFAULT ('rate-'::text || replace((gen_random_uuid())::text, '-'::text, ''::text)) NOT NULL,
  -- Whose prices they are.
  plan_id text NOT NULL,
  -- They hold from then on. The first rate of a plan holds since the epoch, so that every instant has one.
  active_from timestamp with time zone NOT NULL,
  -- Micros for one virtual processor for an hour.
  cpu_hour_micros bigint NOT NULL,
  -- Micros for one GiB of memory for an hour.
  memory_gb_hour_micros bigint NOT NULL,
  -- When it was made; before active_from, but for the first.
  created_at timestamp with time zone NOT NULL,
  CONSTRAINT rates_plan_id_active_from_key UNIQUE (plan_id, active_from),
  CONSTRAINT rates_pkey PRIMARY KEY (id),
  CONSTRAINT rates_plan_id_fkey FOREIGN KEY (plan_id) REFERENCES plans(id),
  CONSTRAINT rates_cpu_hour_micros_check CHECK ((cpu_hour_micros >= 0)),
  CONSTRAINT rates_id_check CHECK ((id ~ '^rate-[0-9a-f]{32}$'::text)),
  CONSTRAINT rates_memory_gb_hour_micros_check CHECK ((memory_gb_hour_micros >= 0))
);

-- Which files of server/src/db/migrations this database has seen.
CREATE TABLE schema_migrations (
  -- The number that the file name starts with.
  version integer NOT NULL,
  -- The file name without its ending.
  name text NOT NULL,
  -- When it was applied.
  applied_at timestamp with time zone DEFAULT now() NOT NULL,
  CONSTRAINT schema_migrations_pkey PRIMARY KEY (version)
);

-- Servers that run. Written by server/src/nodes/servers-store.ts only.
CREATE TABLE servers (
  -- Of one run of a server.
  id text NOT NULL,
  -- The name of its host.
  host text NOT NULL,
  -- Its version.
  release text NOT NULL,
  -- Its version of the link between server and nodes.
  link_version integer NOT NULL,
  -- When it announced itself for the first time, by the clock of the database.
  started_at timestamp with time zone NOT NULL,
  -- When it last announced itself, by the clock of the database. An old row is ignored, and deleted later.
  seen_at timestamp with time zone NOT NULL,
  CONSTRAINT servers_pkey PRIMARY KEY (id)
);

-- Pools of prepared VMs without an owner, from which every tenant claims a machine of its own.
CREATE TABLE shared_pools (
  -- pool-<32 hex>.
  id text NOT NULL,
  -- The API key that made it.
  created_by text NOT NULL,
  -- The image reference of the machines that are claimed.
  image text NOT NULL,
  -- Processors of each machine; null: the default.
  cpus integer,
  -- Memory of each machine, in MiB; null: the default.
  memory_mb integer,
  -- Whether the machines reach the network.
  has_network boolean NOT NULL,
  -- How many VMs wait, on all nodes together.
  target_size integer NOT NULL,
  -- When it was created.
  created_at timestamp with time zone NOT NULL,
  CONSTRAINT shared_pools_pkey PRIMARY KEY (id),
  CONSTRAINT shared_pools_cpus_check CHECK ((cpus > 0)),
  CONSTRAINT shared_pools_memory_mb_check CHECK ((memory_mb > 0)),
  CONSTRAINT shared_pools_target_size_check CHECK ((target_size >= 0))
);

-- What happened to things of tenants. Rows are never updated, except after a restore (events/store.ts).
CREATE TABLE tenant_events (
  -- The order in which rows were written; within one transaction the order of events. Cursors name it.
  position bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
  -- ev-<32 hex>.
  id text NOT NULL,
  -- The machine that it is about, which may be deleted; null: it is about no machine.
  machine_id text,
  -- How much it matters.
  level text NOT NULL,
  -- One plain sentence.
  message text NOT NULL,
  -- When it happened.
  created_at timestamp with time zone NOT NULL,
  -- Of an event that a node reported: it is written once, however often it is reported.
  node_id text,
  -- The run of the node's agent that numbered it.
  agent_boot_id text,
  -- Its number within that run.
  node_sequence bigint,
  -- Whose event it is.
  tenant_id text NOT NULL,
  -- Who follows events reads them in the order of transactions, and only those of transactions before the oldest that still runs: no later commit can come before them.
  transaction_id xid8 DEFAULT pg_current_xact_id() NOT NULL,
  -- The order of rows from before a restore into another PostgreSQL, whose transactions are numbered anew. The largest number for all others, which come behind them.
  restored_rank bigint DEFAULT '9223372036854775807'::bigint NOT NULL,
  -- The webhook that it is about, which may be deleted; null: it is about no webhook.
  webhook_id text,
  CONSTRAINT tenant_events_id_key UNIQUE (id),
  CONSTRAINT tenant_events_pkey PRIMARY KEY ("position"),
  CONSTRAINT tenant_events_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES tenants(id),
  CONSTRAINT machine_events_check CHECK ((((node_id IS NULL) = (node_sequence IS NULL)) AND ((node_id IS NULL) = (agent_boot_id IS NULL)))),
  CONSTRAINT machine_events_level_check CHECK ((level = ANY (ARRAY['info'::text, 'warn'::text, 'error'::text])))
);

-- Which plan a tenant was on, from an instant until the next row. Written by triggers of tenants and plans only; rows are never changed.
CREATE TABLE tenant_plans (
  -- The tenant.
  tenant_id text NOT NULL,
  -- Its own plan, or the one that was the default.
  plan_id text NOT NULL,
  -- The first row of a tenant holds since the epoch, so that every instant has one.
  active_from timestamp with time zone NOT NULL,
  CONSTRAINT tenant_plans_pkey PRIMARY KEY (tenant_id, active_from),
  CONSTRAINT tenant_plans_plan_id_fkey FOREIGN KEY (plan_id) REFERENCES plans(id),
  CONSTRAINT tenant_plans_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES tenants(id)
);

-- Who owns machines, apps and keys. Written by server/src/tenants/store.ts only.
CREATE TABLE tenants (
  -- tenant-<32 hex>, or what its creator chose.
  id text NOT NULL,
  -- For people; unique.
  name text NOT NULL,
  -- suspended: every call of the tenant is answered with 402.
  status text DEFAULT 'active'::text NOT NULL,
  -- null: the default plan.
  plan_id text,
  -- The tenant's id in the operator's billing system.
  external_billing_id text,
  -- Instead of the plan's ceiling; null: the plan's.
  max_apps integer,
  -- Instead of the plan's ceiling; null: the plan's.
  max_cpus integer,
  -- Instead of the plan's ceiling; null: the plan's.
  max_memory_mb bigint,
  -- Instead of the plan's ceiling; null: the plan's.
  max_disk_gb bigint,
  -- When it was created.
  created_at timestamp with time zone DEFAULT now() NOT NULL,
  -- When it was last changed.
  updated_at timestamp with time zone DEFAULT now() NOT NULL,
  -- The id that the request which made it would have given it: a repetition has the same one.
  made_as text,
  -- Whether its billing time can be moved. Chosen when it is created, and never changed.
  has_test_clock boolean DEFAULT false NOT NULL,
  -- How far its billing time is ahead of real time, in milliseconds. 0 without a test clock; never smaller than before.
  clock_ahead_ms bigint DEFAULT 0 NOT NULL,
  CONSTRAINT tenants_name_key UNIQUE (name),
  CONSTRAINT tenants_pkey PRIMARY KEY (id),
  CONSTRAINT tenants_plan_id_fkey FOREIGN KEY (plan_id) REFERENCES plans(id),
  CONSTRAINT only_test_clocks_move CHECK ((has_test_clock OR (clock_ahead_ms = 0))),
  CONSTRAINT tenants_clock_ahead_ms_check CHECK ((clock_ahead_ms >= 0)),
  CONSTRAINT tenants_max_apps_check CHECK ((max_apps >= 0)),
  CONSTRAINT tenants_max_cpus_check CHECK ((max_cpus >= 0)),
  CONSTRAINT tenants_max_disk_gb_check CHECK ((max_disk_gb >= 0)),
  CONSTRAINT tenants_max_memory_mb_check CHECK ((max_memory_mb >= 0)),
  CONSTRAINT tenants_status_check CHECK ((status = ANY (ARRAY['active'::text, 'suspended'::text])))
);

-- Whose costs intervals are. One row for each machine, key and set of labels that intervals have; never changed; outlives its machine. Written by triggers of machine_runs and machines only.
CREATE TABLE usage_attributions (
  -- Intervals name it.
  id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
  -- Which machine; it may be gone.
  machine_id text NOT NULL,
  -- The API key that started the machine, or created it if none had; null: none did.
  key_id text,
  -- The machine's labels.
  labels jsonb NOT NULL,
  -- SHA-256 of labels as text, which are too long for an index.
  labels_hash bytea NOT NULL,
  CONSTRAINT usage_attributions_machine_id_labels_hash_key_id_key UNIQUE NULLS NOT DISTINCT (machine_id, labels_hash, key_id),
  CONSTRAINT usage_attributions_pkey PRIMARY KEY (id),
  CONSTRAINT usage_attributions_labels_check CHECK ((jsonb_typeof(labels) = 'object'::text))
);

-- What was used. Split where the rate changes; never changed once it has an end; outlives its machine. Written by triggers of machine_runs and machines only.
CREATE TABLE usage_intervals (
  -- The order in which intervals were recorded, among ids and closed_in.
  id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
  -- Who pays.
  tenant_id text NOT NULL,
  -- Which machine; it may be gone.
  machine_id text NOT NULL,
  -- Which run of it; null for its disk.
  boot_id text,
  -- What was used.
  meter text NOT NULL,
  -- How much at a time: 1 of uptime, virtual processors, MiB of memory, GiB of disk.
  quantity bigint NOT NULL,
  -- By the clock of the node; of a disk by the server's. This and all other times of billing: in the billing time of the tenant.
  started_at timestamp with time zone NOT NULL,
  -- Null as long as it is in use.
  ended_at timestamp with time zone,
  -- The rate that held; while it has no end, the one it began with.
  rate_id text NOT NULL,
  -- When its start was recorded, by the clock of the database. A part that was split off has the instant of the whole.
  recorded_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
  -- When its end was recorded, by the clock of the database. Null while it has no end.
  closed_at timestamp with time zone,
  -- The order in which its end was recorded, among ids and closed_in. Null while it has no end; 0: before invoices existed.
  closed_in bigint,
  -- Whose cost it is, as of its start; null: the machine was gone when this was first recorded.
  attribution_id bigint,
  CONSTRAINT nothing_twice EXCLUDE USING gist (hashtextextended(((COALESCE(boot_id, machine_id) || ' '::text) || meter), (0)::bigint) WITH =, tstzrange(started_at, ended_at) WITH &&),
  CONSTRAINT usage_intervals_pkey PRIMARY KEY (id),
  CONSTRAINT closed_with_its_end CHECK ((((ended_at IS NULL) = (closed_at IS NULL)) AND ((ended_at IS NULL) = (closed_in IS NULL)))),
  CONSTRAINT disk_outlives_boots CHECK (((meter = 'disk'::text) = (boot_id IS NULL))),
  CONSTRAINT usage_intervals_check CHECK ((ended_at >= started_at)),
  CONSTRAINT usage_intervals_meter_check CHECK ((meter = ANY (ARRAY['uptime'::text, 'cpu'::text, 'memory'::text, 'disk'::text]))),
  CONSTRAINT usage_intervals_quantity_check CHECK ((quantity >= 1))
);

-- What of a month closed intervals of a tenant amount to, up to a cut: one row for each tenant, replaced by later ones. Only derived: may be deleted at any time. Written by server/src/usage/subtotals-store.ts.
CREATE TABLE usage_subtotals (
  -- Whose usage.
  tenant_id text NOT NULL,
  -- The first day of the month in UTC, in the billing time of the tenant.
  month date NOT NULL,
  -- It has the intervals with a lower closed_in, and no others.
  cut bigint NOT NULL,
  -- cpu or memory, of each sum.
  meters text[] NOT NULL,
  -- The rate of each sum.
  rate_ids text[] NOT NULL,
  -- Quantity × milliseconds of the whole month, of each sum.
  amounts numeric[] NOT NULL,
  CONSTRAINT usage_subtotals_pkey PRIMARY KEY (tenant_id),
  CONSTRAINT usage_subtotals_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES tenants(id),
  CONSTRAINT one_amount_each CHECK (((cardinality(meters) = cardinality(rate_ids)) AND (cardinality(meters) = cardinality(amounts)))),
  CONSTRAINT usage_subtotals_month_check CHECK ((date_trunc('month'::text, (month)::timestamp with time zone) = month))
);

-- Records of volumes, without storage.
CREATE TABLE volumes (
  -- vol-<32 hex>.
  id text NOT NULL,
  -- Whose volume it is.
  tenant_id text NOT NULL,
  -- Unique in the tenant.
  name text NOT NULL,
  -- The node that the request named; empty: none.
  node text NOT NULL,
  -- The size that the request named, in GB.
  size_gb bigint NOT NULL,
  -- When it was created.
  created_at timestamp with time zone NOT NULL,
  CONSTRAINT volumes_tenant_id_name_key UNIQUE (tenant_id, name),
  CONSTRAINT volumes_pkey PRIMARY KEY (id),
  CONSTRAINT volumes_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES tenants(id),
  CONSTRAINT volumes_size_gb_check CHECK ((size_gb > 0))
);

-- Events on their way to a webhook, and the last ones that ended.
CREATE TABLE webhook_deliveries (
  -- The webhook.
  webhook_id text NOT NULL,
  -- The event's id, which the receiver gets as webhook-id.
  event_id text NOT NULL,
  -- Its position in tenant_events; null: a test, which is not there.
  event_position bigint,
  -- The order of delivery. A redelivery or a replay gives a new one.
  sequence bigint GENERATED BY DEFAULT AS IDENTITY NOT NULL,
  -- What the event is about: events of one resource are delivered in order.
  resource_id text NOT NULL,
  -- The type that the body names.
  type text NOT NULL,
  -- What is sent, byte for byte.
  body text NOT NULL,
  -- pending: waits for its next attempt. failed: no further attempt.
  status text NOT NULL,
  -- How often it was attempted since it was queued.
  attempts integer NOT NULL,
  -- When it was queued, last by a redelivery or a replay.
  queued_at timestamp with time zone NOT NULL,
  -- Not before; null unless pending.
  next_attempt_at timestamp with time zone,
  -- When it was last attempted.
  last_attempt_at timestamp with time zone,
  -- The HTTP status of the last attempt; null: there was no answer.
  last_status integer,
  -- Why the last attempt failed; null: it did not.
  last_error text,
  CONSTRAINT webhook_deliveries_pkey PRIMARY KEY (webhook_id, event_id),
  CONSTRAINT webhook_deliveries_webhook_id_fkey FOREIGN KEY (webhook_id) REFERENCES webhooks(id) ON DELETE CASCADE,
  CONSTRAINT webhook_deliveries_check CHECK (((status = 'pending'::text) = (next_attempt_at IS NOT NULL))),
  CONSTRAINT webhook_deliveries_status_check CHECK ((status = ANY (ARRAY['pending'::text, 'delivered'::text, 'failed'::text])))
);

-- Addresses that receive the events of a tenant. A server delivers for a webhook while it has its lease.
CREATE TABLE webhooks (
  -- hook-<32 hex>.
  id text NOT NULL,
  -- Whose events it receives.
  tenant_id text NOT NULL,
  -- Where they are sent. May hold a token of the receiver, so it is not logged.
  url text NOT NULL,
  -- For people.
  description text,
  -- The types of events that it receives; null: all.
  types text[],
  -- Signs deliveries; encrypted (server/src/secrets.ts).
  secret bytea NOT NULL,
  -- Signs them as well until previous_until; encrypted.
  previous_secret bytea,
  -- The end of the previous secret.
  previous_until timestamp with time zone,
  -- Whether anything is delivered.
  is_enabled boolean NOT NULL,
  -- Why the server disabled it; null: it did not.
  disabled_reason text,
  -- Failed attempts since the last successful one.
  failures integer DEFAULT 0 NOT NULL,
  -- The first of them.
  failing_since timestamp with time zone,
  -- The position of the last event that was copied to webhook_deliveries; null: none.
  cursor bigint,
  -- When a waiting delivery is attempted next; infinity: none waits.
  due_at timestamp with time zone NOT NULL,
  -- New events are not read before: its queue is full, or its receiver fails.
  reads_at timestamp with time zone NOT NULL,
  -- Counts requests to deliver something now, so that the end of a lease does not overwrite due_at.
  changes bigint DEFAULT 0 NOT NULL,
  -- Counts leases; every write of a worker names its own.
  turn bigint DEFAULT 0 NOT NULL,
  -- Until then one server delivers for it.
  leased_until timestamp with time zone NOT NULL,
  -- When it was created.
  created_at timestamp with time zone NOT NULL,
  -- When its owner, or the server by disabling it, last changed it.
  updated_at timestamp with time zone NOT NULL,
  CONSTRAINT webhooks_pkey PRIMARY KEY (id),
  CONSTRAINT webhooks_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES tenants(id),
  CONSTRAINT webhooks_check CHECK (((failures = 0) = (failing_since IS NULL))),
  CONSTRAINT webhooks_check1 CHECK (((previous_secret IS NULL) = (previous_until IS NULL))),
  CONSTRAINT webhooks_check2 CHECK (((disabled_reason IS NULL) OR (NOT is_enabled))),
  CONSTRAINT webhooks_failures_check CHECK ((failures >= 0))
);

CREATE EXTENSION btree_gist;

CREATE INDEX api_keys_ended ON public.api_keys USING btree (LEAST(revoked_at, expires_at)) WHERE ((revoked_at IS NOT NULL) OR (expires_at IS NOT NULL));

CREATE INDEX api_keys_of_creator ON public.api_keys USING btree (created_by) WHERE (created_by IS NOT NULL);

CREATE INDEX api_keys_of_tenant ON public.api_keys USING btree (tenant_id, created_at);

CREATE INDEX audit_log_of_key ON public.audit_log USING btree (key_id, at);

CREATE INDEX audit_log_of_resource ON public.audit_log USING btree (resource, at);

CREATE INDEX audit_log_order ON public.audit_log USING btree (tenant_id, sequence, at);

CREATE INDEX audit_log_time ON public.audit_log USING btree (at, tenant_id, sequence);

CREATE INDEX connect_tokens_by_expiry ON public.connect_tokens USING btree (expires_at);

CREATE INDEX connect_tokens_machine ON public.connect_tokens USING btree (machine_id, expires_at);

CREATE UNIQUE INDEX fleet_authorities_signing ON public.fleet_authorities USING btree (((retired_at IS NULL))) WHERE (retired_at IS NULL);

CREATE INDEX following_disks_of_nodes ON public.following_disks USING btree (node_id);

CREATE INDEX idempotency_keys_by_expiry ON public.idempotency_keys USING btree (expires_at);

CREATE INDEX ledger_holds_of_tenant ON public.ledger_holds USING btree (tenant_id) WHERE (ended_at IS NULL);

CREATE UNIQUE INDEX ledger_holds_open ON public.ledger_holds USING btree (machine_id) WHERE (ended_at IS NULL);

CREATE INDEX machine_exec_months_of_tenant ON public.machine_exec_months USING btree (tenant_id, month);

CREATE INDEX machine_runs_machine ON public.machine_runs USING btree (machine_id, started_at);

CREATE UNIQUE INDEX machine_runs_open ON public.machine_runs USING btree (machine_id, node_id) WHERE (ended_at IS NULL);

CREATE INDEX machine_runs_open_of_node ON public.machine_runs USING btree (node_id) WHERE (ended_at IS NULL);

CREATE INDEX machines_active ON public.machines USING btree (tenant_id) INCLUDE (cpus, memory_mb) WHERE is_active;

CREATE INDEX machines_arriving ON public.machines USING btree (move_node_id) INCLUDE (cpus, memory_mb) WHERE (is_active AND (move_node_id IS NOT NULL) AND (NOT move_stops));

CREATE INDEX machines_auto_stop ON public.machines USING btree (id) WHERE ((auto_stop_seconds > 0) AND (desired_state = 'running'::text));

CREATE INDEX machines_by_fence ON public.machines USING btree (fence, id) WHERE (fence IS NOT NULL);

CREATE INDEX machines_deleted ON public.machines USING btree (deleted_at) WHERE (deleted_at IS NOT NULL);

CREATE UNIQUE INDEX machines_host_label ON public.machines USING btree (host_label) WHERE (deleted_at IS NULL);

CREATE INDEX machines_list ON public.machines USING btree (tenant_id, created_at DESC, id DESC) INCLUDE (disk_gb) WHERE (deleted_at IS NULL);

CREATE INDEX machines_moving ON public.machines USING btree (node_id) WHERE (move_id IS NOT NULL);

CREATE UNIQUE INDEX machines_name ON public.machines USING btree (tenant_id, name) WHERE ((deleted_at IS NULL) AND (name IS NOT NULL));

CREATE INDEX machines_of_node ON public.machines USING btree (node_id, is_active, (((deleted_at IS NULL) OR (observed_state <> 'absent'::text) OR (observed_generation <> generation)))) INCLUDE (cpus, memory_mb);

CREATE INDEX machines_reconcile ON public.machines USING btree (reconcile_at) WHERE (reconcile_at IS NOT NULL);

CREATE INDEX machines_ttl ON public.machines USING btree (id) WHERE ((ttl_seconds > 0) AND (deleted_at IS NULL));

CREATE INDEX node_images_by_node ON public.node_images USING btree (node_id);

CREATE INDEX node_revocations_by_key ON public.node_revocations USING btree (key_hash);

CREATE UNIQUE INDEX nodes_credential ON public.nodes USING btree (credential_hash);

CREATE INDEX operations_due ON public.operations USING btree (leased_until) WHERE (leased_until IS NOT NULL);

CREATE INDEX operations_ended ON public.operations USING btree (updated_at) WHERE (status <> 'running'::text);

CREATE INDEX operations_list ON public.operations USING btree (tenant_id, created_at DESC, id DESC);

CREATE INDEX operations_running ON public.operations USING btree (tenant_id) WHERE (status = 'running'::text);

CREATE UNIQUE INDEX plans_one_default ON public.plans USING btree (is_default) WHERE is_default;

CREATE INDEX pool_machines_by_pool ON public.pool_machines USING btree (pool_id, created_at);

CREATE INDEX pools_by_tenant ON public.pools USING btree (tenant_id, created_at, id);

CREATE INDEX tenant_events_age ON public.tenant_events USING btree (created_at);

CREATE INDEX tenant_events_of_machine ON public.tenant_events USING btree (machine_id, restored_rank, transaction_id, "position");

CREATE UNIQUE INDEX tenant_events_of_nodes ON public.tenant_events USING btree (node_id, agent_boot_id, node_sequence) WHERE (node_id IS NOT NULL);

CREATE INDEX tenant_events_order ON public.tenant_events USING btree (tenant_id, restored_rank, transaction_id, "position");

CREATE INDEX tenant_events_timeline ON public.tenant_events USING btree (machine_id, created_at, "position");

CREATE INDEX usage_intervals_closed ON public.usage_intervals USING btree (tenant_id, closed_in) WHERE (closed_in IS NOT NULL);

CREATE INDEX usage_intervals_of_machine ON public.usage_intervals USING btree (machine_id, ended_at);

CREATE INDEX usage_intervals_of_tenant ON public.usage_intervals USING btree (tenant_id, ended_at);

CREATE INDEX usage_intervals_open ON public.usage_intervals USING btree (COALESCE(boot_id, machine_id)) WHERE (ended_at IS NULL);

CREATE INDEX webhook_deliveries_order ON public.webhook_deliveries USING btree (webhook_id, sequence);

CREATE INDEX webhook_deliveries_pending ON public.webhook_deliveries USING btree (webhook_id, resource_id, sequence) WHERE (status = 'pending'::text);

CREATE INDEX webhooks_of_tenant ON public.webhooks USING btree (tenant_id);

CREATE OR REPLACE FUNCTION public.active_machines_locked(tenant text)
 RETURNS integer
 LANGUAGE plpgsql
AS $function$
BEGIN
  PERFORM 1 FROM tenants WHERE id = tenant FOR NO KEY UPDATE;
  RETURN (SELECT count(*) FROM machines WHERE tenant_id = tenant AND is_active);
END $function$;

CREATE OR REPLACE FUNCTION public.append_audit(records jsonb)
 RETURNS void
 LANGUAGE plpgsql
AS $function$
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
END $function$;

CREATE OR REPLACE FUNCTION public.attribution_of(machine text)
 RETURNS bigint
 LANGUAGE plpgsql
AS $function$
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
END $function$;

CREATE OR REPLACE FUNCTION public.billing_time(tenant text, real_at timestamp with time zone)
 RETURNS timestamp with time zone
 LANGUAGE plpgsql
 STABLE
AS $function$
BEGIN
  RETURN real_at + coalesce((
    SELECT max(c.ahead_ms) FROM clock_advances c WHERE c.tenant_id = tenant AND c.active_from <= real_at), 0) * interval '1 millisecond';
END $function$;

CREATE OR REPLACE FUNCTION public.budget_allows_start_locked(tenant text, machine text, cpus integer, memory_mb integer, real_at timestamp with time zone)
 RETURNS boolean
 LANGUAGE plpgsql
AS $function$
DECLARE
  budget bigint;
  taken numeric;
  at timestamptz;
BEGIN
  PERFORM 1 FROM tenants WHERE id = tenant FOR NO KEY UPDATE;
  budget := held_budget(tenant);
  IF budget IS NULL THEN RETURN true; END IF;
  taken := spent_in_month(tenant, real_at)::numeric + held_in_month(tenant, real_at, machine);
  at := billing_time(tenant, real_at);
  RETURN taken < budget AND taken + hold_micros(tenant, cpus, memory_mb, at, hold_until(at)) <= budget;
END $function$;

CREATE OR REPLACE FUNCTION public.change_tenant_plan(tenant text, plan text, at timestamp with time zone)
 RETURNS void
 LANGUAGE sql
AS $function$
  INSERT INTO tenant_plans (tenant_id, plan_id, active_from)
  SELECT tenant, plan, greatest(at,
    (SELECT max(u.ended_at) FROM usage_intervals u WHERE u.tenant_id = tenant),
    (SELECT (max(i.month) + interval '1 month') AT TIME ZONE 'UTC' FROM invoices i WHERE i.tenant_id = tenant),
    (SELECT max(p.active_from) + interval '1 millisecond' FROM tenant_plans p WHERE p.tenant_id = tenant))
$function$;

CREATE OR REPLACE FUNCTION public.check_clock_advance()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
  IF NOT (SELECT t.has_test_clock FROM tenants t WHERE t.id = NEW.tenant_id)
    OR EXISTS (SELECT FROM clock_advances c WHERE c.tenant_id = NEW.tenant_id
      AND (c.ahead_ms >= NEW.ahead_ms OR c.active_from > NEW.active_from)) THEN
    RAISE EXCEPTION 'tenant % has no test clock, or it would be set back', NEW.tenant_id;
  END IF;
  RETURN NEW;
END $function$;

CREATE OR REPLACE FUNCTION public.check_intervals()
 RETURNS trigger
 LANGUAGE plpgsql
 SET enable_seqscan TO 'off'
AS $function$
BEGIN
  IF EXISTS (
    SELECT FROM (SELECT DISTINCT rate_id FROM written) w
    LEFT JOIN LATERAL (SELECT r.id FROM rates r WHERE r.id = w.rate_id LIMIT 1) r ON true WHERE r.id IS NULL) THEN
    RAISE foreign_key_violation USING MESSAGE = 'a usage interval names a rate that does not exist';
  END IF;
  IF EXISTS (
    SELECT FROM (SELECT DISTINCT attribution_id FROM written WHERE attribution_id IS NOT NULL) w
    LEFT JOIN LATERAL (SELECT u.id FROM usage_attributions u WHERE u.id = w.attribution_id LIMIT 1) u ON true WHERE u.id IS NULL) THEN
    RAISE foreign_key_violation USING MESSAGE = 'a usage interval names an attribution that does not exist';
  END IF;
  RETURN NULL;
END $function$;

CREATE OR REPLACE FUNCTION public.check_invoice_numbers()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
  IF EXISTS (SELECT FROM added a JOIN tenants t ON t.id = a.tenant_id WHERE t.has_test_clock <> (a.number IS NULL)) THEN
    RAISE EXCEPTION 'an invoice has a number unless its tenant has a test clock';
  END IF;
  IF EXISTS (SELECT FROM added a WHERE a.series <> current_invoice_series()) THEN
    RAISE EXCEPTION 'an invoice is not of the current series of numbers';
  END IF;
  IF (SELECT max(a.number) - min(a.number) + 1 <> count(*)
      OR min(a.number) <> 1 + coalesce(
        (SELECT max(i.number) FROM invoices i WHERE i.series = current_invoice_series() AND i.number < min(a.number)), 0)
      OR max(a.number) <> (SELECT last_number FROM invoice_counter)
    FROM added a WHERE a.number IS NOT NULL HAVING count(*) > 0) THEN
    RAISE EXCEPTION 'the numbers of invoices have a gap';
  END IF;
  RETURN NULL;
END $function$;

CREATE OR REPLACE FUNCTION public.check_invoices()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
  IF EXISTS (
    SELECT FROM (SELECT DISTINCT tenant_id, month FROM added) a
    JOIN invoices i USING (tenant_id, month)
    LEFT JOIN LATERAL (SELECT count(*) AS lines, coalesce(sum(micros), 0) AS micros FROM invoice_lines l
      WHERE l.tenant_id = a.tenant_id AND l.month = a.month) s ON true
    WHERE (s.lines, s.micros) <> (i.line_count, i.total_micros)) THEN
    RAISE EXCEPTION 'the lines of an invoice do not add up to it';
  END IF;
  RETURN NULL;
END $function$;

CREATE OR REPLACE FUNCTION public.check_ledger()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
  IF EXISTS (
    SELECT FROM (SELECT DISTINCT transaction_id FROM added) a JOIN ledger_transactions t ON t.id = a.transaction_id
    WHERE t.made_in <> pg_current_xact_id()
      OR (SELECT sum(e.micros) FROM ledger_entries e WHERE e.transaction_id = a.transaction_id) <> 0) THEN
    RAISE EXCEPTION 'the entries of a transaction do not add up to 0, or it was posted before';
  END IF;
  RETURN NULL;
END $function$;

CREATE OR REPLACE FUNCTION public.close_usage(subject text, at timestamp with time zone)
 RETURNS void
 LANGUAGE plpgsql
AS $function$
DECLARE
  used usage_intervals[];
  part record;
  is_first boolean := true;
BEGIN
  SELECT array_agg(u ORDER BY u.id) INTO used FROM usage_intervals u
  WHERE coalesce(u.boot_id, u.machine_id) = subject AND u.ended_at IS NULL;
  IF used IS NULL THEN RETURN; END IF;
  PERFORM 1 FROM tenants t WHERE t.id = used[1].tenant_id FOR KEY SHARE;
  FOR part IN SELECT * FROM rated_parts(
    used[1].tenant_id, used[1].started_at, greatest(billing_time(used[1].tenant_id, at), used[1].started_at))
  LOOP
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
END $function$;

CREATE OR REPLACE FUNCTION public.current_invoice_series()
 RETURNS text
 LANGUAGE sql
 STABLE
AS $function$ SELECT series FROM invoice_counter $function$;

CREATE OR REPLACE FUNCTION public.free_host_label(machine_id text, machine_name text)
 RETURNS text
 LANGUAGE plpgsql
AS $function$
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
END $function$;

CREATE OR REPLACE FUNCTION public.good_connect_tokens_locked(machine text, at timestamp with time zone)
 RETURNS integer
 LANGUAGE plpgsql
AS $function$
BEGIN
  PERFORM 1 FROM machines WHERE id = machine FOR NO KEY UPDATE;
  RETURN (SELECT count(*) FROM connect_tokens WHERE machine_id = machine AND expires_at > at);
END $function$;

CREATE OR REPLACE FUNCTION public.good_keys_locked(tenant text, at timestamp with time zone)
 RETURNS integer
 LANGUAGE plpgsql
AS $function$
BEGIN
  PERFORM 1 FROM tenants WHERE id = tenant FOR NO KEY UPDATE;
  RETURN (SELECT count(*) FROM api_keys
    WHERE tenant_id = tenant AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > at));
END $function$;

CREATE OR REPLACE FUNCTION public.held_budget(tenant text)
 RETURNS bigint
 LANGUAGE sql
 STABLE
AS $function$
  SELECT p.monthly_budget_micros FROM tenants t JOIN plans p ON p.id = coalesce(t.plan_id, (SELECT id FROM plans WHERE is_default))
  WHERE t.id = tenant AND p.budget_policy IN ('block', 'stop')
$function$;

CREATE OR REPLACE FUNCTION public.held_in_month(tenant text, real_at timestamp with time zone, without_machine text)
 RETURNS bigint
 LANGUAGE sql
 STABLE
AS $function$
  SELECT least(coalesce(sum(h.micros), 0), 9007199254740991)::bigint FROM ledger_holds h
  WHERE h.tenant_id = tenant AND h.ended_at IS NULL AND h.machine_id IS DISTINCT FROM without_machine
    AND h.held_until > month_of(billing_time(tenant, real_at))
$function$;

CREATE OR REPLACE FUNCTION public.held_machines_locked(tenant text)
 RETURNS integer
 LANGUAGE plpgsql
AS $function$
BEGIN
  PERFORM 1 FROM tenants WHERE id = tenant FOR NO KEY UPDATE;
  RETURN (SELECT count(*) FROM machines WHERE tenant_id = tenant AND deleted_at IS NULL);
END $function$;

CREATE OR REPLACE FUNCTION public.hold_micros(tenant text, cpus integer, memory_mb integer, from_at timestamp with time zone, until_at timestamp with time zone)
 RETURNS bigint
 LANGUAGE sql
 STABLE
AS $function$
  SELECT coalesce(sum(div(cpus * p.ms * r.cpu_hour_micros + 3599999, 3600000)
    + div(memory_mb * p.ms * r.memory_gb_hour_micros + 3686399999, 3686400000)), 0)::bigint
  FROM (
    SELECT rate_id, sum(ceil(1000 * extract(epoch FROM ended_at - started_at))) AS ms FROM rated_parts(tenant, from_at, until_at) GROUP BY 1) p
  JOIN rates r ON r.id = p.rate_id
$function$;

CREATE OR REPLACE FUNCTION public.hold_outcome(machine text, since timestamp with time zone)
 RETURNS text
 LANGUAGE sql
 STABLE
AS $function$
  SELECT CASE WHEN EXISTS (
    SELECT FROM usage_intervals u WHERE u.machine_id = machine AND u.boot_id IS NOT NULL AND (u.ended_at IS NULL OR u.ended_at > since))
    THEN 'posted' ELSE 'voided' END
$function$;

CREATE OR REPLACE FUNCTION public.hold_until(at timestamp with time zone)
 RETURNS timestamp with time zone
 LANGUAGE sql
 IMMUTABLE
AS $function$
  SELECT least(at + interval '60 seconds', (date_trunc('month', at AT TIME ZONE 'UTC') + interval '1 month') AT TIME ZONE 'UTC')
$function$;

CREATE OR REPLACE FUNCTION public.month_of(at timestamp with time zone)
 RETURNS timestamp with time zone
 LANGUAGE sql
 IMMUTABLE
AS $function$
  SELECT date_trunc('month', at AT TIME ZONE 'UTC') AT TIME ZONE 'UTC'
$function$;

CREATE OR REPLACE FUNCTION public.moves_from_locked(node text)
 RETURNS integer
 LANGUAGE plpgsql
AS $function$
BEGIN
  PERFORM 1 FROM nodes WHERE id = node FOR NO KEY UPDATE;
  RETURN (SELECT count(*) FROM machines WHERE node_id = node AND move_id IS NOT NULL);
END $function$;

CREATE OR REPLACE FUNCTION public.node_admits_start(node text, is_new boolean, cpus integer, memory_mb integer, cpu_ratio double precision, memory_ratio double precision)
 RETURNS boolean
 LANGUAGE plpgsql
AS $function$
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
END $function$;

CREATE OR REPLACE FUNCTION public.nodes_admit_start_in_move(machine text, source text, target text, cpus integer, memory_mb integer, cpu_ratio double precision, memory_ratio double precision)
 RETURNS boolean
 LANGUAGE plpgsql
AS $function$
DECLARE
  held nodes%ROWTYPE;
  promised_cpus bigint;
  promised_memory_mb bigint;
BEGIN
  IF cpu_ratio IS NULL AND memory_ratio IS NULL THEN RETURN true; END IF;
  FOR held IN SELECT * FROM nodes WHERE id IN (source, target) ORDER BY id FOR NO KEY UPDATE LOOP
    SELECT coalesce(sum(m.cpus), 0), coalesce(sum(m.memory_mb), 0) INTO promised_cpus, promised_memory_mb
      FROM (
        SELECT p.cpus, p.memory_mb FROM machines p WHERE p.node_id = held.id AND p.is_active AND p.id <> machine
        UNION ALL
        SELECT a.cpus, a.memory_mb FROM machines a WHERE a.move_node_id = held.id AND a.is_active AND NOT a.move_stops AND a.id <> machine) m;
    IF cpu_ratio IS NOT NULL AND held.total_cpus > 0 AND promised_cpus + cpus > floor(held.total_cpus * cpu_ratio) THEN
      RETURN false;
    END IF;
    IF memory_ratio IS NOT NULL AND held.total_memory_mb > 0
      AND promised_memory_mb + memory_mb > floor(held.total_memory_mb * memory_ratio) THEN
      RETURN false;
    END IF;
  END LOOP;
  RETURN true;
END $function$;

CREATE OR REPLACE FUNCTION public.note_closing()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
  NEW.closed_at := billing_time(NEW.tenant_id, clock_timestamp());
  NEW.closed_in := nextval('usage_intervals_id_seq');
  RETURN NEW;
END $function$;

CREATE OR REPLACE FUNCTION public.post_invoices()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
  WITH posted AS (
    INSERT INTO ledger_transactions (id, tenant_id, kind, invoice_month, note, made_at)
    SELECT 'post-' || replace(gen_random_uuid()::text, '-', ''), tenant_id, 'invoice', month,
      coalesce('invoice ' || CASE WHEN series = '' THEN '' ELSE series || '-' END || number, 'invoice of a test clock'), finalized_at
    FROM added ORDER BY number, tenant_id
    RETURNING id, tenant_id, invoice_month),
  parts AS (
    SELECT p.id, CASE WHEN l.usage_month = l.month THEN 'usage' ELSE 'adjustment' END AS account, sum(l.micros) AS micros
    FROM posted p JOIN invoice_lines l ON l.tenant_id = p.tenant_id AND l.month = p.invoice_month
    GROUP BY 1, 2)
  INSERT INTO ledger_entries (transaction_id, account, micros)
  SELECT id, account, micros FROM parts WHERE micros <> 0
  UNION ALL SELECT id, 'balance', -sum(micros) FROM parts GROUP BY id HAVING sum(micros) <> 0;
  RETURN NULL;
END $function$;

CREATE OR REPLACE FUNCTION public.purge_audit(before timestamp with time zone, most integer)
 RETURNS integer
 LANGUAGE plpgsql
AS $function$
DECLARE
  purged integer;
BEGIN
  IF (SELECT min(o.at) FROM audit_log o) >= before THEN RETURN 0; END IF;
  PERFORM set_config('flotilla.audit_purge', 'on', true);
  DELETE FROM audit_log a USING (
    SELECT c.tenant_id, o.sequence FROM audit_chains c
    CROSS JOIN LATERAL (SELECT f.at FROM audit_log f WHERE f.tenant_id = c.tenant_id ORDER BY f.sequence LIMIT 1) beginning
    CROSS JOIN LATERAL (
      SELECT r.sequence, bool_and(r.at < before) OVER (ORDER BY r.sequence) AS is_old
      FROM (SELECT l.sequence, l.at FROM audit_log l WHERE l.tenant_id = c.tenant_id ORDER BY l.sequence LIMIT most) r) o
    WHERE beginning.at < before AND o.is_old LIMIT most) old
  WHERE a.tenant_id = old.tenant_id AND a.sequence = old.sequence;
  GET DIAGNOSTICS purged = ROW_COUNT;
  PERFORM set_config('flotilla.audit_purge', 'off', true);
  RETURN purged;
END $function$;

CREATE OR REPLACE FUNCTION public.rated_parts(tenant text, from_at timestamp with time zone, to_at timestamp with time zone)
 RETURNS TABLE(rate_id text, started_at timestamp with time zone, ended_at timestamp with time zone)
 LANGUAGE sql
 STABLE
AS $function$
  SELECT t.rate_id, greatest(t.active_from, from_at), least(t.active_until, to_at) FROM tenant_rates t
  WHERE t.tenant_id = tenant AND (t.active_from < to_at OR t.active_from = from_at) AND t.active_until > from_at
  ORDER BY 2
$function$;

CREATE OR REPLACE FUNCTION public.record_disk()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
DECLARE
  start_at timestamptz;
  attribution bigint;
BEGIN
  IF TG_OP = 'INSERT' THEN
    start_at := billing_time(NEW.tenant_id, NEW.created_at);
    attribution := attribution_of(NEW.id);
    INSERT INTO usage_intervals (tenant_id, machine_id, attribution_id, meter, quantity, started_at, rate_id, recorded_at)
    SELECT NEW.tenant_id, NEW.id, attribution, 'disk', NEW.disk_gb, start_at, p.rate_id, billing_time(NEW.tenant_id, clock_timestamp())
    FROM rated_parts(NEW.tenant_id, start_at, start_at) p;
  ELSIF NEW.deleted_at IS NOT NULL THEN
    PERFORM close_usage(NEW.id, NEW.deleted_at);
  END IF;
  RETURN NULL;
END $function$;

CREATE OR REPLACE FUNCTION public.record_hold()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
DECLARE
  held ledger_holds;
  at timestamptz;
BEGIN
  IF NEW.is_active THEN
    IF held_budget(NEW.tenant_id) IS NULL THEN RETURN NULL; END IF;
    at := billing_time(NEW.tenant_id, NEW.updated_at);
    INSERT INTO ledger_holds (tenant_id, machine_id, placed_at, held_from, held_until, micros)
    VALUES (NEW.tenant_id, NEW.id, at, at, hold_until(at), hold_micros(NEW.tenant_id, NEW.cpus, NEW.memory_mb, at, hold_until(at)))
    ON CONFLICT DO NOTHING;
  ELSE
    SELECT * INTO held FROM ledger_holds h WHERE h.machine_id = NEW.id AND h.ended_at IS NULL;
    IF NOT FOUND THEN RETURN NULL; END IF;
    UPDATE ledger_holds h SET outcome = hold_outcome(NEW.id, held.placed_at),
      ended_at = greatest(held.placed_at, billing_time(NEW.tenant_id, NEW.updated_at))
    WHERE h.number = held.number AND h.ended_at IS NULL;
  END IF;
  RETURN NULL;
END $function$;

CREATE OR REPLACE FUNCTION public.record_plan()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
  INSERT INTO rates (plan_id, active_from, cpu_hour_micros, memory_gb_hour_micros, created_at)
  VALUES (NEW.id, 'epoch', NEW.rate_cpu_hour_micros, NEW.rate_memory_gb_hour_micros, NEW.created_at);
  IF NEW.is_default THEN
    PERFORM change_tenant_plan(t.id, NEW.id, billing_time(t.id, NEW.created_at))
    FROM (SELECT id FROM tenants WHERE plan_id IS NULL ORDER BY id FOR UPDATE) t;
  END IF;
  RETURN NULL;
END $function$;

CREATE OR REPLACE FUNCTION public.record_run()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
  IF NEW.ended_at IS NOT NULL OR NEW.counted_until IS NOT NULL THEN
    PERFORM close_usage(NEW.boot_id, least(NEW.ended_at, NEW.counted_until));
  END IF;
  RETURN NULL;
END $function$;

CREATE OR REPLACE FUNCTION public.record_runs()
 RETURNS trigger
 LANGUAGE plpgsql
 SET enable_seqscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
AS $function$
DECLARE
  seen_at timestamptz := clock_timestamp();
  runs bigint;
  simple bigint;
BEGIN
  SELECT count(*), count(*) FILTER (WHERE a.ended_at IS NULL AND a.counted_until IS NULL AND NOT t.has_test_clock)
  INTO runs, simple FROM added a LEFT JOIN tenants t ON t.id = a.tenant_id;
  IF runs = 0 THEN RETURN NULL; END IF;
  INSERT INTO usage_attributions (machine_id, key_id, labels, labels_hash)
  SELECT DISTINCT ON (m.id) m.id, coalesce(m.started_by, m.created_by), m.labels, h.hash
  FROM added a JOIN machines m ON m.id = a.machine_id
  CROSS JOIN LATERAL (SELECT sha256(convert_to(m.labels::text, 'UTF8')) AS hash) h
  WHERE NOT EXISTS (
    SELECT FROM usage_attributions u
    WHERE u.machine_id = m.id AND u.labels_hash = h.hash AND u.key_id IS NOT DISTINCT FROM coalesce(m.started_by, m.created_by))
  ORDER BY m.id ON CONFLICT DO NOTHING;
  INSERT INTO usage_intervals (tenant_id, machine_id, boot_id, attribution_id, meter, quantity, started_at, rate_id, recorded_at)
  SELECT a.tenant_id, a.machine_id, a.boot_id, u.id, k.meter,
    CASE k.meter WHEN 'uptime' THEN 1::bigint WHEN 'cpu' THEN a.cpus ELSE a.memory_mb END, a.started_at, r.id, seen_at
  FROM added a
  JOIN tenants t ON t.id = a.tenant_id
  LEFT JOIN machines m ON m.id = a.machine_id
  LEFT JOIN usage_attributions u ON u.machine_id = m.id AND u.labels_hash = sha256(convert_to(m.labels::text, 'UTF8'))
    AND u.key_id IS NOT DISTINCT FROM coalesce(m.started_by, m.created_by)
  CROSS JOIN LATERAL (
    SELECT p.plan_id FROM tenant_plans p WHERE p.tenant_id = a.tenant_id AND p.active_from <= a.started_at
    ORDER BY p.active_from DESC LIMIT 1) p
  CROSS JOIN LATERAL (
    SELECT o.id FROM rates o WHERE o.plan_id = p.plan_id AND o.active_from <= a.started_at ORDER BY o.active_from DESC LIMIT 1) r
  CROSS JOIN (VALUES (1, 'uptime'), (2, 'cpu'), (3, 'memory')) AS k(place, meter)
  WHERE a.ended_at IS NULL AND a.counted_until IS NULL AND NOT t.has_test_clock
  ORDER BY a.machine_id, a.started_at, k.place;
  IF simple = runs THEN RETURN NULL; END IF;
  INSERT INTO usage_intervals (tenant_id, machine_id, boot_id, attribution_id, meter, quantity, started_at, ended_at, rate_id, recorded_at)
  SELECT a.tenant_id, a.machine_id, a.boot_id, u.id, q.meter, q.quantity, p.started_at, CASE WHEN NOT t.is_open THEN p.ended_at END,
    p.rate_id, t.recorded_at
  FROM added a
  JOIN tenants c ON c.id = a.tenant_id
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
  WHERE a.ended_at IS NOT NULL OR a.counted_until IS NOT NULL OR c.has_test_clock
  ORDER BY a.machine_id, a.started_at, p.started_at, k.place;
  RETURN NULL;
END $function$;

CREATE OR REPLACE FUNCTION public.record_tenant_plan()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
DECLARE
  plan text := coalesce(NEW.plan_id, (SELECT id FROM plans WHERE is_default));
BEGIN
  IF TG_OP = 'INSERT' THEN
    INSERT INTO tenant_plans (tenant_id, plan_id, active_from) VALUES (NEW.id, plan, 'epoch');
  ELSIF NEW.plan_id IS DISTINCT FROM OLD.plan_id THEN
    PERFORM 1 FROM tenants WHERE id = NEW.id FOR UPDATE;
    PERFORM change_tenant_plan(NEW.id, plan, billing_time(NEW.id, NEW.updated_at));
  END IF;
  RETURN NULL;
END $function$;

CREATE OR REPLACE FUNCTION public.refuse_audit_change()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
  IF TG_OP = 'DELETE' AND current_setting('flotilla.audit_purge', true) = 'on' THEN RETURN OLD; END IF;
  RAISE EXCEPTION 'rows of audit_log are append-only: % is refused', TG_OP;
END $function$;

CREATE OR REPLACE FUNCTION public.refuse_change()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
  RAISE EXCEPTION 'rows of % are never changed', TG_TABLE_NAME;
END $function$;

CREATE OR REPLACE FUNCTION public.refuse_change_of_ended_run()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
  RAISE EXCEPTION 'run % has ended and cannot change', OLD.boot_id;
END $function$;

CREATE OR REPLACE FUNCTION public.refuse_clock_change()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
  RAISE EXCEPTION 'tenant % cannot get or lose a test clock, and a test clock is never set back', OLD.id;
END $function$;

CREATE OR REPLACE FUNCTION public.refuse_delete_of_billed_run()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
  IF EXISTS (SELECT FROM usage_intervals u WHERE u.machine_id = OLD.machine_id AND u.boot_id = OLD.boot_id) THEN
    RAISE EXCEPTION 'run % of machine % has usage intervals, which invoices are computed from: it cannot be deleted', OLD.boot_id, OLD.machine_id;
  END IF;
  RETURN OLD;
END $function$;

CREATE OR REPLACE FUNCTION public.sessions_locked(machine text)
 RETURNS integer
 LANGUAGE plpgsql
AS $function$
BEGIN
  PERFORM 1 FROM machines WHERE id = machine FOR NO KEY UPDATE;
  RETURN (SELECT count(*) FROM machine_sessions WHERE machine_id = machine);
END $function$;

CREATE OR REPLACE FUNCTION public.set_host_label()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
  NEW.host_label := free_host_label(NEW.id, NEW.name);
  RETURN NEW;
END $function$;

CREATE OR REPLACE FUNCTION public.spent_in_month(tenant text, real_at timestamp with time zone)
 RETURNS bigint
 LANGUAGE sql
 STABLE
AS $function$
  WITH month AS MATERIALIZED (
    SELECT b.at AS to_at, month_of(b.at) AS from_at, (month_of(b.at) AT TIME ZONE 'UTC' + interval '1 month') AT TIME ZONE 'UTC' AS until_at
    FROM (SELECT billing_time(tenant, real_at) AS at) b),
  subtotal AS MATERIALIZED (
    SELECT s.* FROM usage_subtotals s WHERE s.tenant_id = tenant AND s.month = (SELECT from_at AT TIME ZONE 'UTC' FROM month)::date),
  parts AS (
    SELECT u.meter, u.quantity, u.rate_id, u.started_at, u.ended_at FROM usage_intervals u
    WHERE u.tenant_id = tenant AND u.meter IN ('cpu', 'memory') AND u.ended_at > (SELECT from_at FROM month) AND NOT EXISTS (SELECT FROM subtotal)
    UNION ALL
    SELECT u.meter, u.quantity, u.rate_id, u.started_at, u.ended_at FROM usage_intervals u
    WHERE u.tenant_id = tenant AND u.meter IN ('cpu', 'memory') AND u.closed_in >= (SELECT cut FROM subtotal)
    UNION ALL
    SELECT u.meter, u.quantity, p.rate_id, p.started_at, p.ended_at
    FROM usage_intervals u
    LEFT JOIN machines m ON m.id = u.machine_id
    LEFT JOIN nodes n ON n.id = m.node_id
    CROSS JOIN LATERAL rated_parts(tenant, u.started_at,
      greatest(u.started_at, billing_time(tenant, least(real_at, n.last_heartbeat_at)))) p
    WHERE u.tenant_id = tenant AND u.meter IN ('cpu', 'memory') AND u.ended_at IS NULL),
  amounts AS (
    SELECT p.meter, p.rate_id, p.quantity * greatest(0, floor(1000 * extract(epoch FROM
      least(p.ended_at, m.to_at) - greatest(p.started_at, m.from_at)))) AS amount
    FROM parts p CROSS JOIN month m
    UNION ALL
    SELECT l.meter, l.rate_id, l.amount FROM subtotal s CROSS JOIN unnest(s.meters, s.rate_ids, s.amounts) AS l(meter, rate_id, amount)
    UNION ALL
    SELECT u.meter, u.rate_id, u.quantity * (
      greatest(0, floor(1000 * extract(epoch FROM m.to_at - greatest(u.started_at, m.from_at))))
      - greatest(0, floor(1000 * extract(epoch FROM least(u.ended_at, m.until_at) - greatest(u.started_at, m.from_at)))))
    FROM month m CROSS JOIN subtotal s JOIN usage_intervals u ON u.tenant_id = tenant AND u.meter IN ('cpu', 'memory')
      AND u.ended_at > (SELECT to_at FROM month) AND u.closed_in - s.cut < 0),
  lines AS (SELECT meter, rate_id, sum(amount) AS amount FROM amounts GROUP BY 1, 2)
  SELECT least(coalesce(sum(usage_micros(l.meter, l.amount, r.cpu_hour_micros, r.memory_gb_hour_micros)), 0), 9007199254740991)::bigint
  FROM lines l JOIN rates r ON r.id = l.rate_id
$function$;

CREATE OR REPLACE FUNCTION public.tenant_admits_start(tenant text, active_max integer, more_cpus integer, more_memory_mb integer)
 RETURNS boolean
 LANGUAGE plpgsql
AS $function$
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
END $function$;

CREATE VIEW tenant_rates AS
 SELECT p.tenant_id,
    r.id AS rate_id,
    GREATEST(p.active_from, r.active_from) AS active_from,
    LEAST(p.active_until, r.active_until) AS active_until
   FROM (( SELECT tenant_plans.tenant_id,
            tenant_plans.plan_id,
            tenant_plans.active_from,
            COALESCE(lead(tenant_plans.active_from) OVER (PARTITION BY tenant_plans.tenant_id ORDER BY tenant_plans.active_from), 'infinity'::timestamp with time zone) AS active_until
           FROM tenant_plans) p
     CROSS JOIN LATERAL ( SELECT f.id,
            f.active_from,
            COALESCE(lead(f.active_from) OVER (ORDER BY f.active_from, f.set_for), 'infinity'::timestamp with time zone) AS active_until
           FROM ( SELECT o.id,
                    o.active_from AS set_for,
                        CASE
                            WHEN ((o.active_from = '1970-01-01 00:00:00+00'::timestamp with time zone) OR (a.ahead_ms IS NULL)) THEN o.active_from
                            ELSE GREATEST(o.active_from, ((o.created_at + ((a.ahead_ms)::double precision * '00:00:00.001'::interval)) + '00:01:00'::interval))
                        END AS active_from
                   FROM (rates o
                     CROSS JOIN LATERAL ( SELECT max(c.ahead_ms) AS ahead_ms
                           FROM clock_advances c
                          WHERE ((c.tenant_id = p.tenant_id) AND (c.advanced_at <= o.created_at))) a)
                  WHERE (o.plan_id = p.plan_id)) f) r)
  WHERE ((p.active_from < r.active_until) AND (r.active_from < p.active_until) AND (r.active_from < r.active_until));

CREATE OR REPLACE FUNCTION public.totals_allow_disk_locked(tenant text, more_disk_gb integer)
 RETURNS boolean
 LANGUAGE plpgsql
AS $function$
BEGIN
  PERFORM 1 FROM tenants WHERE id = tenant FOR NO KEY UPDATE;
  RETURN (
    SELECT coalesce(sum(m.disk_gb), 0) + more_disk_gb <= p.max_total_disk_gb
    FROM tenants t
    JOIN plans p ON p.id = coalesce(t.plan_id, (SELECT id FROM plans WHERE is_default))
    LEFT JOIN machines m ON m.tenant_id = t.id AND m.deleted_at IS NULL
    WHERE t.id = tenant GROUP BY p.max_total_disk_gb);
END $function$;

CREATE OR REPLACE FUNCTION public.totals_allow_start_locked(tenant text, more_cpus integer, more_memory_mb integer)
 RETURNS boolean
 LANGUAGE plpgsql
AS $function$
BEGIN
  PERFORM 1 FROM tenants WHERE id = tenant FOR NO KEY UPDATE;
  RETURN (
    SELECT coalesce(sum(m.cpus), 0) + more_cpus <= p.max_total_cpus
      AND coalesce(sum(m.memory_mb), 0) + more_memory_mb <= p.max_total_memory_mb
    FROM tenants t
    JOIN plans p ON p.id = coalesce(t.plan_id, (SELECT id FROM plans WHERE is_default))
    LEFT JOIN machines m ON m.tenant_id = t.id AND m.is_active
    WHERE t.id = tenant GROUP BY p.max_total_cpus, p.max_total_memory_mb);
END $function$;

CREATE OR REPLACE FUNCTION public.usage_micros(meter text, amount numeric, cpu_hour_micros bigint, memory_gb_hour_micros bigint)
 RETURNS numeric
 LANGUAGE sql
 IMMUTABLE
AS $function$
  SELECT CASE meter WHEN 'cpu' THEN div(amount * cpu_hour_micros, 3600000)
    WHEN 'memory' THEN div(amount * memory_gb_hour_micros, 3686400000) ELSE 0 END
$function$;

CREATE TRIGGER audit_log_append_only BEFORE DELETE OR UPDATE ON public.audit_log FOR EACH ROW EXECUTE FUNCTION refuse_audit_change();

CREATE TRIGGER audit_log_no_truncate BEFORE TRUNCATE ON public.audit_log FOR EACH STATEMENT EXECUTE FUNCTION refuse_audit_change();

CREATE TRIGGER clock_advances_checked BEFORE INSERT ON public.clock_advances FOR EACH ROW EXECUTE FUNCTION check_clock_advance();

CREATE TRIGGER clock_advances_immutable BEFORE DELETE OR UPDATE OR TRUNCATE ON public.clock_advances FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

CREATE TRIGGER invoice_limits_immutable BEFORE DELETE OR UPDATE OR TRUNCATE ON public.invoice_limits FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

CREATE TRIGGER invoice_lines_checked AFTER INSERT ON public.invoice_lines REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION check_invoices();

CREATE TRIGGER invoice_lines_immutable BEFORE DELETE OR UPDATE OR TRUNCATE ON public.invoice_lines FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

CREATE TRIGGER invoices_checked AFTER INSERT ON public.invoices REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION check_invoices();

CREATE TRIGGER invoices_immutable BEFORE DELETE OR UPDATE OR TRUNCATE ON public.invoices FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

CREATE TRIGGER invoices_numbered AFTER INSERT ON public.invoices REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION check_invoice_numbers();

CREATE TRIGGER invoices_posted AFTER INSERT ON public.invoices REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION post_invoices();

CREATE TRIGGER ledger_entries_checked AFTER INSERT ON public.ledger_entries REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION check_ledger();

CREATE TRIGGER ledger_entries_immutable BEFORE DELETE OR UPDATE OR TRUNCATE ON public.ledger_entries FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

CREATE TRIGGER ledger_holds_final BEFORE UPDATE ON public.ledger_holds FOR EACH ROW WHEN (((old.ended_at IS NOT NULL) OR (((old.tenant_id IS DISTINCT FROM new.tenant_id) OR (old.machine_id IS DISTINCT FROM new.machine_id)) OR (old.placed_at IS DISTINCT FROM new.placed_at)))) EXECUTE FUNCTION refuse_change();

CREATE TRIGGER ledger_holds_kept BEFORE DELETE OR TRUNCATE ON public.ledger_holds FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

CREATE TRIGGER ledger_transactions_immutable BEFORE DELETE OR UPDATE OR TRUNCATE ON public.ledger_transactions FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

CREATE TRIGGER machine_runs_final BEFORE UPDATE ON public.machine_runs FOR EACH ROW WHEN ((old.ended_at IS NOT NULL)) EXECUTE FUNCTION refuse_change_of_ended_run();

CREATE TRIGGER machine_runs_kept BEFORE DELETE ON public.machine_runs FOR EACH ROW EXECUTE FUNCTION refuse_delete_of_billed_run();

CREATE TRIGGER machine_runs_not_truncated BEFORE TRUNCATE ON public.machine_runs FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

CREATE TRIGGER machine_runs_recorded AFTER INSERT ON public.machine_runs REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION record_runs();

CREATE TRIGGER machine_runs_used AFTER UPDATE OF ended_at, counted_until ON public.machine_runs FOR EACH ROW EXECUTE FUNCTION record_run();

CREATE TRIGGER machines_held AFTER UPDATE ON public.machines FOR EACH ROW WHEN ((old.is_active IS DISTINCT FROM new.is_active)) EXECUTE FUNCTION record_hold();

CREATE TRIGGER machines_host_label BEFORE INSERT ON public.machines FOR EACH ROW EXECUTE FUNCTION set_host_label();

CREATE TRIGGER machines_used AFTER INSERT OR UPDATE OF deleted_at ON public.machines FOR EACH ROW EXECUTE FUNCTION record_disk();

CREATE TRIGGER plans_rate AFTER INSERT ON public.plans FOR EACH ROW EXECUTE FUNCTION record_plan();

CREATE TRIGGER rates_immutable BEFORE DELETE OR UPDATE ON public.rates FOR EACH ROW EXECUTE FUNCTION refuse_change();

CREATE TRIGGER rates_not_truncated BEFORE TRUNCATE ON public.rates FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

CREATE TRIGGER tenant_plans_immutable BEFORE DELETE OR UPDATE ON public.tenant_plans FOR EACH ROW EXECUTE FUNCTION refuse_change();

CREATE TRIGGER tenants_clock BEFORE UPDATE OF has_test_clock, clock_ahead_ms ON public.tenants FOR EACH ROW WHEN (((new.has_test_clock <> old.has_test_clock) OR (new.clock_ahead_ms < old.clock_ahead_ms))) EXECUTE FUNCTION refuse_clock_change();

CREATE TRIGGER tenants_plan AFTER INSERT OR UPDATE OF plan_id ON public.tenants FOR EACH ROW EXECUTE FUNCTION record_tenant_plan();

CREATE TRIGGER usage_attributions_immutable BEFORE DELETE OR UPDATE ON public.usage_attributions FOR EACH ROW EXECUTE FUNCTION refuse_change();

CREATE TRIGGER usage_attributions_not_truncated BEFORE TRUNCATE ON public.usage_attributions FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

CREATE TRIGGER usage_intervals_immutable BEFORE UPDATE ON public.usage_intervals FOR EACH ROW WHEN ((old.ended_at IS NOT NULL)) EXECUTE FUNCTION refuse_change();

CREATE TRIGGER usage_intervals_kept BEFORE DELETE ON public.usage_intervals FOR EACH ROW EXECUTE FUNCTION refuse_change();

CREATE TRIGGER usage_intervals_noted BEFORE INSERT OR UPDATE ON public.usage_intervals FOR EACH ROW WHEN ((new.ended_at IS NOT NULL)) EXECUTE FUNCTION note_closing();

CREATE TRIGGER usage_intervals_refer AFTER INSERT ON public.usage_intervals REFERENCING NEW TABLE AS written FOR EACH STATEMENT EXECUTE FUNCTION check_intervals();

CREATE TRIGGER usage_intervals_still_refer AFTER UPDATE ON public.usage_intervals REFERENCING NEW TABLE AS written FOR EACH STATEMENT EXECUTE FUNCTION check_intervals();
