-- Runs that something was billed for are never deleted.
CREATE FUNCTION refuse_delete_of_billed_run() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (SELECT FROM usage_intervals u WHERE u.machine_id = OLD.machine_id AND u.boot_id = OLD.boot_id) THEN
    RAISE EXCEPTION 'run % of machine % has usage intervals, which invoices are computed from: it cannot be deleted', OLD.boot_id, OLD.machine_id;
  END IF;
  RETURN OLD;
END $$;
CREATE TRIGGER machine_runs_kept BEFORE DELETE ON machine_runs FOR EACH ROW EXECUTE FUNCTION refuse_delete_of_billed_run();
CREATE TRIGGER machine_runs_not_truncated BEFORE TRUNCATE ON machine_runs FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- A tenant's events of one machine, in the order in which they are followed.
CREATE INDEX tenant_events_of_machine ON tenant_events (machine_id, restored_rank, transaction_id, position);
