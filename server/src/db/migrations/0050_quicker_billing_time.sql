-- As before, in a language that keeps the plan of a function's query for the connection: a function in SQL with a subquery is parsed
-- and planned by each statement that calls it, and every recorded interval calls it.
CREATE OR REPLACE FUNCTION billing_time(tenant text, real_at timestamptz) RETURNS timestamptz
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN real_at + coalesce((
    SELECT max(c.ahead_ms) FROM clock_advances c WHERE c.tenant_id = tenant AND c.active_from <= real_at), 0) * interval '1 millisecond';
END $$;
