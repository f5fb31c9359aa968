-- What a request under an idempotency key makes has ids that a repetition makes again.

ALTER TABLE idempotency_keys ADD COLUMN seed text NOT NULL DEFAULT '';
COMMENT ON COLUMN idempotency_keys.seed IS 'Ids of what the request makes are made from it; kept when a request that was lost runs again.';
