-- Invoices, the ledger, and holds on budgets. What keeps them correct is in the functions of billing.

-- One row. Its lock makes transactions that finalize invoices take turns, so that numbers have no gaps.
CREATE TABLE invoice_counter (
  -- Always true.
  is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),
  -- The current series: empty, or when the control plane was restored last, such as 20260723T120000Z.
  series text NOT NULL DEFAULT '',
  -- The number of the newest invoice of the series; 0: there is none.
  last_number bigint NOT NULL
);

-- The series of the next invoice. A series ends when the control plane is restored from a backup: numbers
-- that it gave since may have been sent, so the restored one counts from 1 in a new series.
CREATE FUNCTION current_invoice_series() RETURNS text LANGUAGE sql STABLE AS $$ SELECT series FROM invoice_counter $$;

-- Final invoices; rows are never changed. Drafts are computed when they are read. Written by
-- server/src/billing/store.ts.
CREATE TABLE invoices (
  -- The tenant that owes it.
  tenant_id text NOT NULL REFERENCES tenants,
  -- The first day of its calendar month in UTC. A tenant has one for each month since it was made, without
  -- gaps.
  month date NOT NULL CHECK (date_trunc('month', month) = month),
  -- With number: names the invoice for good. Empty until the first restore of the control plane.
  series text NOT NULL DEFAULT current_invoice_series(),
  -- Counts the invoices of its series, without gaps. Null: of a tenant with a test clock.
  number bigint CHECK (number >= 1),
  -- It knows the starts and ends of intervals with a lower id or closed_in.
  cut bigint NOT NULL,
  -- When it became final, by the clock of the database.
  finalized_at timestamptz NOT NULL,
  -- How many lines it has.
  line_count integer NOT NULL,
  -- The sum of its lines, in micros. Negative when adjustments are larger than the usage.
  total_micros bigint NOT NULL,
  PRIMARY KEY (tenant_id, month),
  CONSTRAINT invoices_number_key UNIQUE (series, number)
);

-- Lines of final invoices; rows are never changed. Written by server/src/billing/store.ts.
CREATE TABLE invoice_lines (
  -- With month: the invoice.
  tenant_id text NOT NULL,
  -- With tenant_id: the invoice.
  month date NOT NULL,
  -- When it was used. An earlier month than the invoice's: an adjustment of that month.
  usage_month date NOT NULL CHECK (date_trunc('month', usage_month) = usage_month),
  -- What was used.
  meter text NOT NULL CHECK (meter IN ('uptime', 'cpu', 'memory', 'disk', 'egress', 'registry')),
  -- The price.
  rate_id text NOT NULL REFERENCES rates,
  -- Quantity × milliseconds; of an adjustment the difference from what was invoiced before.
  amount numeric NOT NULL CHECK (amount = trunc(amount)),
  -- The price of all that was used in usage_month at this rate, rounded down once, less what was invoiced
  -- before.
  micros bigint NOT NULL,
  PRIMARY KEY (tenant_id, month, usage_month, meter, rate_id),
  FOREIGN KEY (tenant_id, month) REFERENCES invoices (tenant_id, month),
  CHECK (usage_month <= month)
);

-- Intervals without an end that an invoice did not count to the end of its month, because their node had not
-- reported. Rows are never changed.
CREATE TABLE invoice_limits (
  -- With month: the invoice.
  tenant_id text NOT NULL,
  -- With tenant_id: the invoice.
  month date NOT NULL,
  -- The interval.
  interval_id bigint NOT NULL REFERENCES usage_intervals,
  -- How far it was counted: the last heartbeat of its node.
  counted_until timestamptz NOT NULL,
  PRIMARY KEY (tenant_id, month, interval_id),
  FOREIGN KEY (tenant_id, month) REFERENCES invoices (tenant_id, month)
);

-- What changed the balance of a tenant; rows are never changed. Invoices by a trigger of invoices, others by
-- server/src/billing/ledger-store.ts.
CREATE TABLE ledger_transactions (
  -- post-<32 hex>.
  id text PRIMARY KEY CHECK (id ~ '^post-[0-9a-f]{32}$'),
  -- The order in which they were posted.
  position bigint GENERATED ALWAYS AS IDENTITY UNIQUE,
  -- Whose balance.
  tenant_id text NOT NULL REFERENCES tenants,
  -- invoice: of a final invoice; credit: given by an operator; adjustment: a correction by an operator.
  kind text NOT NULL CHECK (kind IN ('invoice', 'credit', 'adjustment')),
  -- Month of an invoice. Each invoice is posted once.
  invoice_month date,
  -- Text for people; may be empty.
  note text NOT NULL,
  -- When it was posted.
  made_at timestamptz NOT NULL,
  -- The database transaction that posted it, which is the only one that adds entries.
  made_in xid8 NOT NULL DEFAULT pg_current_xact_id(),
  CONSTRAINT posted_once UNIQUE (tenant_id, invoice_month),
  FOREIGN KEY (tenant_id, invoice_month) REFERENCES invoices (tenant_id, month),
  CHECK ((kind = 'invoice') = (invoice_month IS NOT NULL))
);

-- What a transaction adds to each of the tenant's accounts; the sum of a transaction is 0. Rows are never
-- changed.
CREATE TABLE ledger_entries (
  -- The transaction.
  transaction_id text NOT NULL REFERENCES ledger_transactions,
  -- balance: what the tenant has, or owes when it is negative. Against it: usage that was invoiced,
  -- adjustments, credits.
  account text NOT NULL CHECK (account IN ('balance', 'usage', 'adjustment', 'credit')),
  -- Micros; positive or negative.
  micros bigint NOT NULL CHECK (micros <> 0),
  PRIMARY KEY (transaction_id, account)
);

-- What active machines may cost until they are checked again: from the account budget of their tenant to its
-- account held. Only of tenants whose budget blocks or stops. Written by a trigger of machines, renewed by
-- server/src/usage/holds-store.ts. The indexes have no column that a renewal changes, so that renewals write
-- no index.
CREATE TABLE ledger_holds (
  -- The order in which they were placed.
  number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  -- Whose budget.
  tenant_id text NOT NULL REFERENCES tenants,
  -- Which machine; it may be gone.
  machine_id text NOT NULL,
  -- When the machine was started, or its tenant got such a budget. This and the other times: in the billing
  -- time of the tenant.
  placed_at timestamptz NOT NULL,
  -- From then on its usage was not counted when this was last renewed.
  held_from timestamptz NOT NULL,
  -- Not after the end of the month of held_from: the next one has its own budget.
  held_until timestamptz NOT NULL,
  -- The price from held_from to held_until, rounded up for each meter and rate.
  micros bigint NOT NULL CHECK (micros >= 0),
  -- posted: usage of the machine replaced it; voided: the machine did not run. Null while it is held.
  outcome text CHECK (outcome IN ('posted', 'voided')),
  -- When it was posted or voided, which happens once. Null while it is held.
  ended_at timestamptz,
  CONSTRAINT ended_with_an_outcome CHECK ((ended_at IS NULL) = (outcome IS NULL)),
  CHECK (held_from >= placed_at),
  CHECK (held_until >= held_from),
  CHECK (ended_at >= placed_at)
) WITH (fillfactor = 50);
CREATE INDEX ledger_holds_of_tenant ON ledger_holds (tenant_id) WHERE ended_at IS NULL;
CREATE UNIQUE INDEX ledger_holds_open ON ledger_holds (machine_id) WHERE ended_at IS NULL;
