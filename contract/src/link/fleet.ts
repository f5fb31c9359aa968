/**
 * What server and nodes on other hosts must agree on to trust each other: join tokens, names in certificates,
 * and the bytes on a parked connection.
 *
 * A node that dials out opens TLS connections to a server's node listener and parks them. With the ALPN
 * protocol PARKED_PROTOCOL a connection is parked; with any other it is HTTP from the node to the server.
 *
 * On a parked connection, before HTTP begins:
 *
 *     node → server   PING    every PING_MS; the server answers each with PING
 *     server → node   CLAIM   the server wants the connection
 *     node → server   CLAIM   the node agrees, and sends no more PING: from now on the server sends HTTP requests on it
 *
 * Pure.
 */
export type { FleetFacts, FleetListener } from "./membership.ts";

export const PARKED_PROTOCOL = "flotilla-parked";
export const PING = 0;
export const CLAIM = 1;
export const PING_MS = 15_000;

/** The subject alternative name of a server's certificate, as Node shows it. */
export const SERVER_IDENTITY = "URI:urn:flotilla:server";

/**
 * The subject alternative name of an ingress's certificate, as Node shows it. It may dial ports of machines,
 * and nothing else.
 */
export const INGRESS_IDENTITY = "URI:urn:flotilla:ingress";

/** The subject alternative name of a node's certificate, as Node shows it. */
export const nodeIdentity = (nodeId: string): string => `URI:urn:flotilla:node:${nodeId}`;

/** The node that a subject alternative name identifies; undefined: it is not a node's. */
export const nodeOfIdentity = (name: string): string | undefined =>
  /^URI:urn:flotilla:node:([A-Za-z0-9][A-Za-z0-9._-]{0,127})$/.exec(name)?.[1];

/**
 * The name for which a client asks (SNI), so that the server presents a certificate of this fleet authority.
 */
export const authorityServerName = (fingerprint: string): string => `${fingerprint.slice(0, 32)}.flotilla`;

/**
 * What a node signs with its key when it registers, to prove that it has the key. `bearerHash`: SHA-256 in
 * hex.
 */
export const registrationProof = (nodeId: string, bearerHash: string): string =>
  `flotilla registration\n${nodeId}\n${bearerHash}`;

/** The address of a node that dials out. */
export const parkedAddress = (nodeId: string): string => `parked:${nodeId}`;

/**
 * `join_<prefix>_<secret>`; the secret is 256 random bits in base64url and then the SHA-256 of the fleet
 * authority's certificate in hex: a joining node recognizes the server with it.
 */
export function parseJoinToken(token: string): { readonly prefix: string; readonly authority: string | null } | null {
  const [, prefix, authority] = /^join_([0-9a-f]{12})_[A-Za-z0-9_-]{43}([0-9a-f]{64})?$/.exec(token) ?? [];
  return prefix === undefined ? null : { prefix, authority: authority ?? null };
}
