/**
 * From a row of api_keys to what callers see: never the key or its hash.
 */
import type { ApiKeyInfo } from "@flotilla/contract/apikeys";
import type { ApiKeyRow } from "./store.ts";

export const apiKeyInfo = (row: ApiKeyRow): ApiKeyInfo => ({
  id: row.id,
  description: row.description,
  scopes: [...row.scopes],
  createdAt: row.created_at.toISOString(),
  expiresAt: row.expires_at?.toISOString() ?? null,
  lastUsedAt: row.last_used_at?.toISOString() ?? null,
  createdBy: row.created_by,
});
