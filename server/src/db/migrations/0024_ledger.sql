-- The ledger: double entry for each tenant. Invoices are posted by a trigger, credits by operators.

CREATE TABLE ledger_transactions (
  id text PRIMARY KEY CHECK (id ~ '^post-[0-9a-f]{32}$'),
  position bigint GENERATED ALWAYS AS IDENTITY UNIQUE,
  tenant_id text NOT NULL REFERENCES tenants (id),
  kind text NOT NULL CHECK (kind IN ('invoice', 'credit', 'adjustment')),
  invoice_month date,
  note text NOT NULL,
  made_at timestamptz NOT NULL,
  made_in xid8 NOT NULL DEFAULT pg_current_xact_id(),
  CONSTRAINT posted_once UNIQUE (tenant_id, invoice_month),
  FOREIGN KEY (tenant_id, invoice_month) REFERENCES invoices,
  CHECK ((kind = 'invoice') = (invoice_month IS NOT NULL))
);
COMMENT ON TABLE ledger_transactions IS 'What changed the balance of a tenant; rows are never changed. Invoices by a trigger of invoices, others by server/src/billing/ledger-store.ts.';
COMMENT ON COLUMN ledger_transactions.id IS 'post-<32 hex>.';
COMMENT ON COLUMN ledger_transactions.position IS 'The order in which they were posted.';
COMMENT ON COLUMN ledger_transactions.tenant_id IS 'Whose balance.';
COMMENT ON COLUMN ledger_transactions.kind IS 'invoice: of a final invoice; credit: given by an operator; adjustment: a correction by an operator.';
COMMENT ON COLUMN ledger_transactions.invoice_month IS 'Of an invoice: its month. Each invoice is posted once.';
COMMENT ON COLUMN ledger_transactions.note IS 'For people; may be empty.';
COMMENT ON COLUMN ledger_transactions.made_at IS 'When it was posted.';
COMMENT ON COLUMN ledger_transactions.made_in IS 'The database transaction that posted it, which is the only one that adds entries.';

CREATE TABLE ledger_entries (
  transaction_id text NOT NULL REFERENCES ledger_transactions (id),
  account text NOT NULL CHECK (account IN ('balance', 'usage', 'adjustment', 'credit')),
  micros bigint NOT NULL CHECK (micros <> 0),
  PRIMARY KEY (transaction_id, account)
);
COMMENT ON TABLE ledger_entries IS 'What a transaction adds to each of the tenant''s accounts; the sum of a transaction is 0. Rows are never changed.';
COMMENT ON COLUMN ledger_entries.transaction_id IS 'The transaction.';
COMMENT ON COLUMN ledger_entries.account IS 'balance: what the tenant has, or owes when it is negative. Against it: usage that was invoiced, adjustments, credits.';
COMMENT ON COLUMN ledger_entries.micros IS 'Micros; positive or negative.';

CREATE TRIGGER ledger_transactions_immutable BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger_transactions
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER ledger_entries_immutable BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger_entries
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

CREATE FUNCTION check_ledger() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (
    SELECT FROM (SELECT DISTINCT transaction_id FROM added) a JOIN ledger_transactions t ON t.id = a.transaction_id
    WHERE t.made_in <> pg_current_xact_id()
      OR (SELECT sum(e.micros) FROM ledger_entries e WHERE e.transaction_id = a.transaction_id) <> 0) THEN
    RAISE EXCEPTION 'the entries of a transaction do not add up to 0, or it was posted before';
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER ledger_entries_checked AFTER INSERT ON ledger_entries REFERENCING NEW TABLE AS added
  FOR EACH STATEMENT EXECUTE FUNCTION check_ledger();

-- Posts invoices. Runs at the end of the statement that writes them, when their lines are there.
CREATE FUNCTION post_invoices() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  WITH posted AS (
    INSERT INTO ledger_transactions (id, tenant_id, kind, invoice_month, note, made_at)
    SELECT 'post-' || replace(gen_random_uuid()::text, '-', ''), tenant_id, 'invoice', month, 'invoice ' || number, finalized_at
    FROM added ORDER BY number
    RETURNING id, tenant_id, invoice_month),
  parts AS (
    SELECT p.id, CASE WHEN l.usage_month = l.month THEN 'usage' ELSE 'adjustment' END AS account, sum(l.micros) AS micros
    FROM posted p JOIN invoice_lines l ON l.tenant_id = p.tenant_id AND l.month = p.invoice_month
    GROUP BY 1, 2)
  INSERT INTO ledger_entries (transaction_id, account, micros)
  SELECT id, account, micros FROM parts WHERE micros <> 0
  UNION ALL SELECT id, 'balance', -sum(micros) FROM parts GROUP BY id HAVING sum(micros) <> 0;
  RETURN NULL;
END $$;
CREATE TRIGGER invoices_posted AFTER INSERT ON invoices REFERENCING NEW TABLE AS added
  FOR EACH STATEMENT EXECUTE FUNCTION post_invoices();

-- What was final before there was a ledger.
CREATE TEMPORARY TABLE posted ON COMMIT DROP AS
SELECT 'post-' || replace(gen_random_uuid()::text, '-', '') AS id, i.* FROM invoices i;
INSERT INTO ledger_transactions (id, tenant_id, kind, invoice_month, note, made_at)
SELECT id, tenant_id, 'invoice', month, 'invoice ' || number, finalized_at FROM posted ORDER BY number;
INSERT INTO ledger_entries (transaction_id, account, micros)
SELECT p.id, CASE WHEN l.usage_month = l.month THEN 'usage' ELSE 'adjustment' END, sum(l.micros)
FROM posted p JOIN invoice_lines l ON l.tenant_id = p.tenant_id AND l.month = p.month GROUP BY 1, 2 HAVING sum(l.micros) <> 0
UNION ALL SELECT id, 'balance', -total_micros FROM posted WHERE total_micros <> 0;
