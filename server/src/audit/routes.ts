/**
 * Serves /v1/audit.
 */
import type { AuditEntry, AuditRecord } from "@flotilla/contract/audit";
import { Refusal } from "@flotilla/contract/errors";
import type { Caller } from "../auth/caller.ts";
import type { Context } from "../context.ts";
import type { HandlersOf } from "../http/handler.ts";
import { page, parseSequence } from "../http/paging.ts";
import { type AuditRow, findChain, listAudit } from "./store.ts";

const LIMIT_DEFAULT = 100;

export function auditHandlers({ db }: Context): HandlersOf<"listAudit" | "getAuditChain"> {
  return {
    listAudit: async ({ caller, query }) => {
      const { limit = LIMIT_DEFAULT, cursor, tenantId } = query;
      const asked = { tenantId: chainOf(caller, tenantId), after: parseSequence(cursor), limit: limit + 1 };
      const { items, headers } = page(await listAudit(db, asked), limit, "/v1/audit", {
        cursorOf: ({ sequence }) => String(sequence),
        ...(tenantId === undefined ? {} : { query: { tenantId } }),
      });
      return { status: 200, headers, body: items.map(auditEntry) };
    },
    getAuditChain: async ({ caller, query }) => {
      const tenantId = chainOf(caller, query.tenantId);
      return { status: 200, body: { tenantId, ...(await findChain(db, tenantId)) } };
    },
  };
}

function chainOf(caller: Caller, named: string | undefined): string {
  if (named !== undefined && named !== caller.tenantId && !caller.isAdmin)
    throw new Refusal("missing_scope", "missing scope: admin; leave tenantId out to read your own tenant's log");
  return named ?? caller.tenantId;
}

const auditEntry = (row: AuditRow): AuditEntry => ({ ...(JSON.parse(row.record) as AuditRecord), ...row });
