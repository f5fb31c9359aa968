-- A tenant's calls since an instant, in their order: rows of before it are passed over in the index. Without it up to all of the tenant's rows were
-- read, 1 to 2 s with 586,000.
CREATE INDEX audit_log_order ON audit_log (tenant_id, sequence, at);
