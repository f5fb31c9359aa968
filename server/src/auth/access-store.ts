/**
 * Reads in one query which of the rights of open connections still hold.
 *
 * Writes nothing: the tables belong to apikeys, console, tenants, machines and apps.
 */
import { type Queryable, sql } from "../db/database.ts";

/** The parts of rights. `shares` and `sessions` are hashes of tokens in hexadecimal digits. */
export interface RightParts {
  readonly keys: readonly string[];
  readonly tenants: readonly string[];
  readonly machines: readonly string[];
  readonly shares: readonly string[];
  readonly publicApps: readonly string[];
  readonly sessions: readonly string[];
}

export interface HeldParts {
  readonly keys: ReadonlySet<string>;
  readonly tenants: ReadonlySet<string>;
  /**
   * When machines were deleted (epoch milliseconds), by id and tenant's id, so that no tenant learns of
   * another's.
   */
  readonly gone: ReadonlyMap<string, number>;
  readonly shares: ReadonlySet<string>;
  readonly publicApps: ReadonlySet<string>;
  readonly sessions: ReadonlySet<string>;
}

/**
 * Keys that are not revoked, sessions that were not ended, tenants that are not suspended, share links as
 * they are, apps that are public, also destroyed ones, whose requests end with their instances; and machines
 * that were deleted.
 */
export async function findHeld(db: Queryable, parts: RightParts): Promise<HeldParts> {
  const rows = await db.query<{ kind: keyof HeldParts; name: string; at: number | null }>(sql`
    SELECT 'keys' AS kind, id AS name, NULL::bigint AS at FROM api_keys WHERE id = ANY(${parts.keys}::text[]) AND revoked_at IS NULL
    UNION ALL
    SELECT 'tenants', id, NULL FROM tenants WHERE id = ANY(${parts.tenants}::text[]) AND status <> 'suspended'
    UNION ALL
    SELECT 'gone', id || ' ' || tenant_id, ms(deleted_at) FROM machines
    WHERE id = ANY(${parts.machines}::text[]) AND deleted_at IS NOT NULL
    UNION ALL
    SELECT 'shares', encode(token_hash, 'hex'), NULL
    FROM (SELECT token_hash FROM machine_shares UNION ALL SELECT token_hash FROM app_shares) AS s
    WHERE token_hash IN (SELECT decode(hash, 'hex') FROM unnest(${parts.shares}::text[]) AS hash)
    UNION ALL
    SELECT 'sessions', encode(token_hash, 'hex'), NULL FROM console_sessions
    WHERE token_hash IN (SELECT decode(hash, 'hex') FROM unnest(${parts.sessions}::text[]) AS hash)
    UNION ALL
    SELECT 'publicApps', id, NULL FROM apps WHERE id = ANY(${parts.publicApps}::text[]) AND is_public`);
  const held = {
    keys: new Set<string>(),
    tenants: new Set<string>(),
    gone: new Map<string, number>(),
    shares: new Set<string>(),
    publicApps: new Set<string>(),
    sessions: new Set<string>(),
  };
  for (const { kind, name, at } of rows) {
    if (kind === "gone") held.gone.set(name, at ?? 0);
    else held[kind].add(name);
  }
  return held;
}
