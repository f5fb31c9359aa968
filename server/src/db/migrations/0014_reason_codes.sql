-- Why a machine failed, as a word for programs: a start that its image is the end of is the caller's to mend.
ALTER TABLE machines ADD COLUMN observed_reason_code text CHECK (observed_reason_code IN (
  'image_not_found', 'image_refused', 'image_not_allowed', 'image_wrong_platform', 'image_not_cached'));
COMMENT ON COLUMN machines.observed_reason_code IS
  'What observed_reason says of the image, for programs; null: nothing, or another start may succeed.';
