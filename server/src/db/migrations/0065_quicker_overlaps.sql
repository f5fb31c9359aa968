-- Recording what is used costs less.

-- The index that refuses overlaps compared texts of some 40 characters on its way to each entry. It has their hash now. Two that are the same
-- for different runs or meters refuse an interval that overlaps none: one in 2^64 for each pair at the same time. None that overlaps is admitted.
ALTER TABLE usage_intervals
  DROP CONSTRAINT nothing_twice,
  ADD CONSTRAINT nothing_twice EXCLUDE USING gist (
    hashtextextended(coalesce(boot_id, machine_id) || ' ' || meter, 0) WITH =,
    tstzrange(started_at, ended_at) WITH &&);

-- Plans that were made while there were few machines read all of them later, until the next ANALYZE: each machine is looked up by its key now.
ALTER FUNCTION record_runs() SET enable_seqscan = off;
ALTER FUNCTION record_runs() SET enable_hashjoin = off;
ALTER FUNCTION record_runs() SET enable_mergejoin = off;
