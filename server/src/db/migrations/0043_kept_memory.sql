-- A machine that is stopped with its memory kept.
ALTER TABLE machines ADD COLUMN keeps_memory boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN machines.keeps_memory IS
  'While it is to be stopped: whether its node suspends it and keeps its memory. Otherwise its node discards memory.';
