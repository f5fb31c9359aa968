-- Keys that have expired are purged as revoked ones are: when either happened.
CREATE INDEX api_keys_ended ON api_keys (least(revoked_at, expires_at)) WHERE revoked_at IS NOT NULL OR expires_at IS NOT NULL;
DROP INDEX api_keys_revoked;
