/**
 * Who calls: an API key with its tenant, or a node. Types only.
 */

/** Who calls. Absent for public endpoints; a node for the node's own. */
export interface Caller {
  readonly kind: "key";
  readonly keyId: string;
  readonly tenantId: string;
  readonly scopes: readonly string[];
  readonly isAdmin: boolean;
  /** Epoch milliseconds; null: never. */
  readonly expiresAt: number | null;
}

export interface NodeCaller {
  readonly kind: "node";
  /** null: a join token, for a node that has no name yet. */
  readonly nodeId: string | null;
  readonly joinTokenPrefix: string | null;
}

/**
 * Guards every query for a credential: calls `read`, or returns undefined or throws a Refusal without it. `name`: identifies
 * an unknown credential in memory.
 */
export type Guard = <T>(name: string | null, read: () => Promise<T | undefined>) => Promise<T | undefined>;
