-- A series of invoice numbers ends when the control plane is restored from a backup: numbers that it gave since may have been sent, so
-- the restored one counts again from 1 in a series of its own.
--
-- A server of the release before names no series, and gets the current one by the default.

ALTER TABLE invoice_counter ADD COLUMN series text NOT NULL DEFAULT '';
COMMENT ON COLUMN invoice_counter.series IS 'The current series: empty, or when the control plane was restored last, such as 20260723T120000Z.';

CREATE FUNCTION current_invoice_series() RETURNS text LANGUAGE sql STABLE AS $$ SELECT series FROM invoice_counter $$;

ALTER TABLE invoices ADD COLUMN series text NOT NULL DEFAULT '';
ALTER TABLE invoices ALTER COLUMN series SET DEFAULT current_invoice_series();
COMMENT ON COLUMN invoices.series IS 'With number: names the invoice for good. Empty until the first restore of the control plane.';
COMMENT ON COLUMN invoices.number IS 'Counts the invoices of its series, without gaps. Null: of a tenant with a test clock.';
COMMENT ON COLUMN invoice_counter.last_number IS 'The number of the newest invoice of the series; 0: there is none.';
ALTER TABLE invoices DROP CONSTRAINT invoices_number_key;
ALTER TABLE invoices ADD CONSTRAINT invoices_number_key UNIQUE (series, number);

CREATE OR REPLACE FUNCTION check_invoice_numbers() RETURNS trigger LANGUAGE plpgsql AS $$
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
END $$;

CREATE OR REPLACE FUNCTION post_invoices() RETURNS trigger LANGUAGE plpgsql AS $$
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
END $$;
