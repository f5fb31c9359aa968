-- What a node that leaves for good still has of machines is erased with its host, so nothing is left to confirm.
DELETE FROM machine_copies c WHERE NOT EXISTS (SELECT FROM nodes n WHERE n.id = c.node_id);
ALTER TABLE machine_copies ADD CONSTRAINT machine_copies_node_id_fkey FOREIGN KEY (node_id) REFERENCES nodes (id) ON DELETE CASCADE;
