-- The images that nodes report, so that a start that depends on one asks no node.
CREATE TABLE node_images (
  node_id text NOT NULL REFERENCES nodes (id) ON DELETE CASCADE,
  reference text NOT NULL,
  architecture text NOT NULL,
  tenant_id text,
  UNIQUE NULLS NOT DISTINCT (reference, architecture, tenant_id, node_id)
);
CREATE INDEX node_images_by_node ON node_images (node_id);
COMMENT ON TABLE node_images IS 'Which node has which image, as nodes report it.';
COMMENT ON COLUMN node_images.node_id IS 'The node that has it.';
COMMENT ON COLUMN node_images.reference IS 'Its canonical name.';
COMMENT ON COLUMN node_images.architecture IS 'As image configurations name it, such as amd64.';
COMMENT ON COLUMN node_images.tenant_id IS
  'The tenant that fetched it; null: the operator, or a local image, which every tenant may use. As the node says.';
ALTER TABLE nodes ADD COLUMN images_boot_id text, ADD COLUMN images_sequence bigint;
COMMENT ON COLUMN nodes.images_boot_id IS
  'The incarnation of the agent whose report of images was applied last; null: it has reported none since it registered.';
COMMENT ON COLUMN nodes.images_sequence IS 'The number of that report; an older one of the incarnation is late.';
