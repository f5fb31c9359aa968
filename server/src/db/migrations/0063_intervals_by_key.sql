-- The check of what new intervals refer to looked at every attribution that there is, when its plan had been made while the table was small:
-- each statement then cost as much as all starts before it. Each row is looked up by its key now, whatever the plan was made for.

CREATE OR REPLACE FUNCTION check_intervals() RETURNS trigger LANGUAGE plpgsql SET enable_seqscan = off AS $$
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
END $$;
