/**
 * Tenants: the owners of machines, apps and keys. Tenants never see each other.
 */
import { empty, endpoint, json } from "./endpoint.ts";
import { RECORD_ID } from "./patterns.ts";
import { int32, int64, nullable, oneOf, optional, PageQuery, type Static, text, timestamp, Type } from "./schema.ts";

export const TENANT_STATUSES = ["active", "suspended"] as const;
export type TenantStatus = (typeof TENANT_STATUSES)[number];

export const TenantInfo = Type.Object({
  id: Type.String(),
  name: Type.String(),
  status: oneOf(TENANT_STATUSES),
  createdAt: timestamp(),
  updatedAt: timestamp(),
  planId: nullable(Type.String()),
  externalBillingId: nullable(Type.String()),
  maxApps: nullable(int32()),
  maxCpus: nullable(int32()),
  maxMemoryMb: nullable(int64()),
  maxDiskGb: nullable(int64()),
  maxSandboxPools: nullable(int32()),
  freeCreditMicros: int64({ description: "what is left of its credit, as `prepaidCreditMicros` of the account" }),
  testClock: nullable(timestamp("its billing time, which an operator moves; null: it has no test clock")),
});
export type TenantInfo = Static<typeof TenantInfo>;

export const CreateTenantRequest = Type.Object({
  name: text({ minLength: 1, maxLength: 100 }),
  id: optional(Type.String({ pattern: RECORD_ID })),
  planId: optional(text({ maxLength: 64 })),
  testClock: optional(
    Type.Boolean({
      description: "whether its billing time can be moved, to rehearse months; never changes later. Default: false",
    }),
  ),
});
export type CreateTenantRequest = Static<typeof CreateTenantRequest>;

export const UpdateTenantRequest = Type.Object({
  externalBillingId: optional(text({ maxLength: 200 })),
  planId: optional(text({ maxLength: 64 })),
  status: optional(oneOf(TENANT_STATUSES)),
  maxApps: optional(int32()),
  maxCpus: optional(int32()),
  maxMemoryMb: optional(int64()),
  maxDiskGb: optional(int64()),
});
export type UpdateTenantRequest = Static<typeof UpdateTenantRequest>;

export const AdvanceTenantRequest = Type.Object({
  to: text({
    minLength: 1,
    maxLength: 64,
    examples: ["2026-08-01T00:00:00Z"],
    description: "RFC 3339; later than the tenant's billing time, and at most ten years ahead",
  }),
});

export const tenantEndpoints = {
  listTenants: endpoint({
    method: "GET",
    path: "/v1/tenants",
    family: "tenants",
    summary: "List all tenants",
    access: ["admin"],
    query: PageQuery,
    answers: { 200: json(Type.Array(TenantInfo)) },
    errors: ["invalid_body"],
  }),
  createTenant: endpoint({
    method: "POST",
    path: "/v1/tenants",
    family: "tenants",
    summary: "Create a tenant",
    access: ["admin"],
    body: { kind: "json", schema: CreateTenantRequest },
    answers: { 201: json(TenantInfo) },
    errors: ["invalid_json", "invalid_request", "invalid_body", "name_taken"],
  }),
  getTenant: endpoint({
    method: "GET",
    path: "/v1/tenants/{id}",
    family: "tenants",
    summary: "Read one tenant",
    access: ["admin"],
    answers: { 200: json(TenantInfo) },
    errors: ["not_found"],
  }),
  updateTenant: endpoint({
    method: "PATCH",
    path: "/v1/tenants/{id}",
    family: "tenants",
    summary: "Change a tenant's plan, status or ceilings",
    description: "Omitted fields keep their value. null clears: the default plan, no billing id, the plan's ceiling.",
    access: ["admin"],
    body: { kind: "json", schema: UpdateTenantRequest },
    answers: { 200: json(TenantInfo) },
    errors: ["invalid_json", "invalid_request", "invalid_body", "not_found"],
  }),
  advanceTenant: endpoint({
    method: "POST",
    path: "/v1/tenants/{id}/clock",
    family: "tenants",
    summary: "Move the billing time of a tenant with a test clock forward",
    description: "Machines that run are billed for the time in between; months that end become invoices.",
    access: ["admin"],
    body: { kind: "json", schema: AdvanceTenantRequest },
    answers: { 200: json(TenantInfo) },
    errors: ["invalid_json", "invalid_request", "invalid_body", "not_found"],
    isExtra: true,
  }),
  suspendTenant: endpoint({
    method: "POST",
    path: "/v1/tenants/{id}/suspend",
    family: "tenants",
    summary: "Suspend a tenant: all its calls are answered with 402",
    access: ["admin"],
    answers: { 204: empty() },
    errors: ["not_found"],
  }),
  reactivateTenant: endpoint({
    method: "POST",
    path: "/v1/tenants/{id}/reactivate",
    family: "tenants",
    summary: "End a tenant's suspension",
    access: ["admin"],
    answers: { 204: empty() },
    errors: ["not_found"],
  }),
} as const;
