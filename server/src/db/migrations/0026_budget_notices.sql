-- Which tenants were notified that a share of their monthly budget is used.
CREATE TABLE budget_notices (
  tenant_id text NOT NULL REFERENCES tenants (id),
  month date NOT NULL CHECK (date_trunc('month', month) = month),
  percent int NOT NULL CHECK (percent IN (80, 100)),
  noted_at timestamptz NOT NULL,
  PRIMARY KEY (tenant_id, month, percent)
);
COMMENT ON TABLE budget_notices IS 'One row for each event about a budget, so that each is written once. Written by server/src/usage/notices-store.ts.';
COMMENT ON COLUMN budget_notices.tenant_id IS 'Who was notified.';
COMMENT ON COLUMN budget_notices.month IS 'The first day of the month, in UTC.';
COMMENT ON COLUMN budget_notices.percent IS 'The share of the budget that was used.';
COMMENT ON COLUMN budget_notices.noted_at IS 'When the event was written.';
