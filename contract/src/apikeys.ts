/**
 * API keys. The plaintext is shown once, in the answer to create.
 */
import { empty, endpoint, json } from "./endpoint.ts";
import { int64, nullable, optional, type Static, TenantPageQuery, text, timestamp, Type } from "./schema.ts";

export const ApiKeyInfo = Type.Object({
  id: Type.String(),
  description: nullable(Type.String()),
  scopes: Type.Array(Type.String()),
  createdAt: timestamp(),
  expiresAt: nullable(timestamp()),
  lastUsedAt: nullable(timestamp()),
  createdBy: nullable(Type.String()),
});
export type ApiKeyInfo = Static<typeof ApiKeyInfo>;

const EXPIRY = "default: when the creator's key expires, if it does; a key does not outlive its creator's key";

const EXPIRY_DAYS_MAX = 36_500;

export const CreateApiKeyRequest = Type.Object({
  description: optional(text({ maxLength: 500 })),
  expiresInDays: optional(int64({ minimum: 1, maximum: EXPIRY_DAYS_MAX, description: EXPIRY })),
  expiresInSeconds: optional(
    int64({ minimum: 1, maximum: EXPIRY_DAYS_MAX * 24 * 60 * 60, description: "instead of `expiresInDays`" }),
  ),
  scopes: optional(Type.Array(text({ maxLength: 64 }), { maxItems: 64, description: "default: the creator's" })),
  tenantId: optional(text({ maxLength: 64, description: "admin only" })),
});
export type CreateApiKeyRequest = Static<typeof CreateApiKeyRequest>;

export const ApiKeyCreated = Type.Object({ id: Type.String(), key: Type.String() });
export type ApiKeyCreated = Static<typeof ApiKeyCreated>;

export const apiKeyEndpoints = {
  listApiKeys: endpoint({
    method: "GET",
    path: "/v1/apikeys",
    family: "apikeys",
    summary: "List the tenant's API keys, without their secrets",
    access: ["keys:write"],
    query: TenantPageQuery,
    answers: { 200: json(Type.Array(ApiKeyInfo)) },
    errors: ["missing_scope", "invalid_body"],
  }),
  createApiKey: endpoint({
    method: "POST",
    path: "/v1/apikeys",
    family: "apikeys",
    summary: "Create an API key; its secret is in this answer only",
    access: ["keys:write"],
    body: { kind: "json", schema: CreateApiKeyRequest, isOptional: true },
    answers: { 200: json(ApiKeyCreated) },
    errors: ["invalid_json", "invalid_request", "invalid_body", "missing_scope", "not_found", "quota_exceeded"],
  }),
  deleteApiKey: endpoint({
    method: "DELETE",
    path: "/v1/apikeys/{id}",
    family: "apikeys",
    summary: "Revoke an API key, immediately on every server; connections opened with it end",
    description:
      "Needs a key that could have made the revoked one, or the key itself. Keys made with it stay valid unless `cascade` is set: their `createdBy` names it.",
    access: ["keys:write"],
    query: Type.Object({
      cascade: Type.Optional(
        Type.Boolean({ description: "also every key made with it, with one of those, and so on" }),
      ),
    }),
    answers: { 204: empty() },
    errors: ["missing_scope", "invalid_body", "not_found"],
  }),
} as const;
