/**
 * Converts a row of api_keys to an API answer, which never has the key or its hash.
 */
import type { ApiKeyInfo } from "@flotilla/contract/apikeys";
import type { ApiKeyRow } from "./store.ts";

export const apiKeyInfo = (row: ApiKeyRow): ApiKeyInfo => ({
  id: row.id,
  description: row.description,
  scopes: [...row.scopes],
  createdAt: new Date(row.createdAt).toISOString(),
  expiresAt: timeOf(row.expiresAt),
  lastUsedAt: timeOf(row.lastUsedAt),
  createdBy: row.createdBy,
});

const timeOf = (ms: number | null): string | null => (ms === null ? null : new Date(ms).toISOString());
