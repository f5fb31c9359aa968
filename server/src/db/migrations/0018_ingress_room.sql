-- The statements over these tables have moved.

COMMENT ON TABLE connect_tokens IS 'What opens the connect bridge of one machine for a while. Written by server/src/ingress/connect/store.ts only.';
COMMENT ON TABLE machine_shares IS 'The one share link of a machine, if it has one. Written by server/src/ingress/share/store.ts only.';
