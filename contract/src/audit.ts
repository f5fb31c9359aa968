/**
 * The audit log: who changed what, and which calls were refused.
 *
 * Always: rows are never changed. Each has the hash of the row before it, so a missing or changed row shows.
 * No row holds a secret, a body or an answer.
 */
import { endpoint, json } from "./endpoint.ts";
import {
  anotherTenant,
  int32,
  int64,
  nullable,
  oneOf,
  ORDERS,
  pageQuery,
  type Static,
  text,
  Type,
  typePattern,
} from "./schema.ts";

/** The hash before the first row of a chain. */
export const AUDIT_FIRST_HASH = "0".repeat(64);

export const AuditRecord = Type.Object({
  at: Type.String({ description: "RFC 3339, UTC" }),
  requestId: Type.String(),
  type: Type.String({
    description:
      "the first part of the path after `/v1`, and the operationId of this description: `machines.createMachine`; " +
      "`operator.restore`: an operator restored a backup",
  }),
  resource: nullable(Type.String({ description: "the id that the call named or made" })),
  keyId: Type.String({
    description:
      "who called; for the registration of a node `join-token:` with the prefix of its token, or `node:` with its id; `operator` for a restore",
  }),
  scopes: Type.Array(Type.String(), { description: "of the key" }),
  address: Type.String({ description: "from where the call came" }),
  status: int32({
    description:
      "of the answer; 102: a command, a terminal or a file was sent to the machine and not answered yet; its answer has a row too, with the same `requestId`",
  }),
  errorCode: nullable(Type.String({ description: "of a refusal" })),
  calls: Type.Optional(
    int32({
      description:
        "how many refused or failed calls the row is for: a key made more than ten alike in a minute, which ends at `at`. The rest is that " +
        "of the last one, and `resource` is null if they named several. Absent: one call",
    }),
  ),
});
export type AuditRecord = Static<typeof AuditRecord>;

export const AuditEntry = Type.Object({
  ...AuditRecord.properties,
  tenantId: Type.String(),
  sequence: int64(),
  record: Type.String({ description: "the fields above as the JSON text that was hashed" }),
  previousHash: Type.String(),
  hash: Type.String({
    description: "SHA-256 in hex of previousHash, tenantId, sequence and record, joined by newlines",
  }),
});
export type AuditEntry = Static<typeof AuditEntry>;

export const AuditChain = Type.Object({
  tenantId: Type.String(),
  sequence: int64({ description: "of the last row; 0: there is none" }),
  hash: Type.String({
    description: "of the last row; keep it elsewhere to detect a log that was rewritten as a whole",
  }),
});

export const auditEndpoints = {
  listAudit: endpoint({
    method: "GET",
    path: "/v1/audit",
    family: "audit",
    summary:
      "List the calls of the tenant's keys that changed something or were refused, oldest first unless asked otherwise",
    description:
      "100 at once without a limit. The cursor is the `sequence` of the last row that was read; with `all` its `at`, `tenantId` and `sequence`, joined by commas. With `all` a row may appear up to seconds after its time.",
    access: ["audit:read"],
    query: Type.Object({
      ...pageQuery,
      tenantId: anotherTenant,
      all: Type.Optional(Type.Boolean({ description: "of all tenants; admin only" })),
      keyId: Type.Optional(text({ maxLength: 128, description: "only calls of this key" })),
      resource: Type.Optional(
        text({
          maxLength: 128,
          description: "only calls that named this id, or made it; the first if a path has more",
        }),
      ),
      type: Type.Optional(
        typePattern("only calls of this type; `machines.*`: of all types of a family", [
          "machines.deleteMachine",
          "machines.*",
        ]),
      ),
      from: Type.Optional(text({ maxLength: 64, description: "RFC 3339, inclusive" })),
      to: Type.Optional(text({ maxLength: 64, description: "RFC 3339, exclusive" })),
      order: Type.Optional(oneOf(ORDERS, "`desc`: the newest first")),
    }),
    answers: { 200: json(Type.Array(AuditEntry)) },
    errors: ["invalid_body", "invalid_request"],
  }),
  getAuditChain: endpoint({
    method: "GET",
    path: "/v1/audit/chain",
    family: "audit",
    summary: "Read the end of the tenant's chain",
    access: ["audit:read"],
    query: Type.Object({ tenantId: anotherTenant }),
    answers: { 200: json(AuditChain) },
    errors: ["invalid_body"],
  }),
} as const;
