/**
 * What an API key may do. A key without a scope can do nothing; `*` and `admin` imply every scope below them.
 *
 * Always: a key grants no more than its creator had (server/src/apikeys/mint.ts).
 */

export const SCOPES = [
  "*",
  "admin",
  "machine:read",
  "machine:create",
  "machine:delete",
  "machine:exec",
  "machine:files",
  "app:read",
  "app:write",
  "usage:read",
  "billing:read",
  "keys:write",
  "pool:write",
  "webhook:write",
  "audit:read",
] as const;

/** The name of one permission of an API key. */
export type Scope = (typeof SCOPES)[number];

/** Other spellings that clients send, and the scope each one means. */
export const SCOPE_ALIASES: Readonly<Record<string, Scope>> = {
  "group:write": "app:write",
  "members:write": "keys:write",
};

/** Scopes that existing clients name and no endpoint needs: any key may have them, they permit nothing. */
export const INERT_SCOPES: readonly string[] = [
  "volume:read",
  "volume:create",
  "volume:delete",
  "ops:read",
  "billing:write",
  "members:read",
];

/**
 * Whether the held scopes include `scope`: directly, or through `*` or `admin`. `admin` itself needs `admin`
 * or `*`.
 */
export function grants(held: readonly string[], scope: Scope): boolean {
  return held.includes(scope) || held.includes("*") || held.includes("admin");
}
