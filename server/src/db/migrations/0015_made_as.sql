-- What a request under an idempotency key makes is found by its repetition, also where the caller chose the id.

ALTER TABLE tenants ADD COLUMN made_as text;
COMMENT ON COLUMN tenants.made_as IS 'The id that the request which made it would have given it: a repetition has the same one.';
ALTER TABLE plans ADD COLUMN made_as text;
COMMENT ON COLUMN plans.made_as IS 'The id that the request which made it would have given it: a repetition has the same one.';
ALTER TABLE machine_sessions ADD COLUMN made_as text;
COMMENT ON COLUMN machine_sessions.made_as IS 'The id that the request which made it would have given it: a repetition has the same one.';
