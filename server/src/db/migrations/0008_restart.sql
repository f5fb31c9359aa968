-- Whether a machine is started again when it ends without being asked. Machines that exist are, like new ones.
ALTER TABLE machines ADD COLUMN restart text NOT NULL DEFAULT 'always' CHECK (restart IN ('always', 'never'));
COMMENT ON COLUMN machines.restart IS 'Whether it is started again when its VM ends without being asked or its host goes down.';
