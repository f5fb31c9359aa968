-- What a deleted machine may have held as a secret is not kept with its row, which stays for 30 days for its usage.

UPDATE machines SET env = '{}', command = NULL WHERE deleted_at IS NOT NULL;
DELETE FROM machine_sessions s USING machines m WHERE m.id = s.machine_id AND m.deleted_at IS NOT NULL;
DELETE FROM connect_tokens t USING machines m WHERE m.id = t.machine_id AND m.deleted_at IS NOT NULL;
DELETE FROM machine_shares s USING machines m WHERE m.id = s.machine_id AND m.deleted_at IS NOT NULL;
