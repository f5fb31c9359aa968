/**
 * The caller: an API key with its tenant, or a node. Types only.
 */

/** The caller. Absent for public endpoints; a node for the node's own. */
export interface Caller {
  readonly kind: "key";
  readonly keyId: string;
  readonly tenantId: string;
  readonly scopes: readonly string[];
  readonly isAdmin: boolean;
  /** Epoch milliseconds; null: never. */
  readonly expiresAt: number | null;
}

/** The certificate that a node of another host has shown in its handshake; it was verified. */
export interface NodeCertificate {
  readonly nodeId: string;
  /** SHA-256 of its public key, in hex. */
  readonly keyHash: string;
  /** PEM. */
  readonly publicKey: string;
  /** Epoch milliseconds. */
  readonly expiresAt: number;
  /** The name of the authority that signed it. */
  readonly authority: string;
}

export interface NodeCaller {
  readonly kind: "node";
  /** null: it has shown none, as a node of the server's host. */
  readonly certificate: NodeCertificate | null;
  /** It came over the socket of this host, which only its root and the server's user can open. */
  readonly isLocal: boolean;
  /** null: a join token, for a node that has no name yet. */
  readonly nodeId: string | null;
  readonly joinTokenPrefix: string | null;
  /** When its join token was made, in epoch milliseconds; 0: it called with its credential. */
  readonly joinTokenMadeAt: number;
  /** SHA-256 in hex of the token or credential with which it called. */
  readonly bearerHash: string;
}

/**
 * Guards every query for a credential: calls `read`, or returns undefined or throws a Refusal without it.
 * `name`: identifies an unknown credential in memory.
 */
export type Guard = <T>(name: string | null, read: () => Promise<T | undefined>) => Promise<T | undefined>;
