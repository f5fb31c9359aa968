/**
 * Serves /v1/audit.
 */
import type { AuditEntry, AuditRecord } from "@flotilla/contract/audit";
import { Refusal } from "@flotilla/contract/errors";
import type { Caller } from "../auth/caller.ts";
import type { Context } from "../context.ts";
import type { HandlersOf } from "../api/handler.ts";
import { parseInstant } from "../api/instant.ts";
import { page, parseSequence } from "../api/paging.ts";
import { type AuditFilter, type AuditPosition, type AuditRow, findChain, listAllAudit, listAudit } from "./store.ts";

const LIMIT_DEFAULT = 100;

export function auditHandlers({ db }: Context): HandlersOf<"listAudit" | "getAuditChain"> {
  return {
    listAudit: async ({ caller, query }) => {
      const { limit = LIMIT_DEFAULT, cursor, tenantId, all = false } = query;
      if (all) refuseUnlessOperator(caller, tenantId);
      const filter = { ...filterOf(query), isNewestFirst: query.order === "desc" };
      const found = all
        ? await listAllAudit(db, { ...filter, after: parsePosition(cursor), limit: limit + 1 })
        : await listAudit(db, {
            ...{ ...filter, tenantId: chainOf(caller, tenantId) },
            ...{ after: parseSequence(cursor), limit: limit + 1 },
          });
      const { items, headers } = page(found.map(auditEntry), limit, "/v1/audit", {
        cursorOf: (entry) => (all ? positionOf(entry) : String(entry.sequence)),
        query: keptOf(query),
      });
      return { status: 200, headers, body: [...items] };
    },
    getAuditChain: async ({ caller, query }) => {
      const tenantId = chainOf(caller, query.tenantId);
      return { status: 200, body: { tenantId, ...(await findChain(db, tenantId)) } };
    },
  };
}

function chainOf(caller: Caller, named: string | undefined): string {
  if (named !== undefined && named !== caller.tenantId && !caller.isAdmin)
    throw new Refusal("missing_scope", "missing scope: admin; leave tenantId out to read your own tenant's log", {
      field: "tenantId",
    });
  return named ?? caller.tenantId;
}

function refuseUnlessOperator(caller: Caller, tenantId: string | undefined): void {
  if (!caller.isAdmin)
    throw new Refusal("missing_scope", "missing scope: admin; leave all out to read your own tenant's log");
  if (tenantId !== undefined)
    throw new Refusal("invalid_body", "tenantId and all exclude each other; leave out one of them", {
      field: "tenantId",
    });
}

interface AuditQuery {
  readonly tenantId?: string;
  readonly all?: boolean;
  readonly keyId?: string;
  readonly resource?: string;
  readonly type?: string;
  readonly from?: string;
  readonly to?: string;
  readonly order?: "asc" | "desc";
}

const filterOf = ({ keyId, resource, type, from, to }: AuditQuery): Omit<AuditFilter, "isNewestFirst"> => ({
  keyId: keyId ?? null,
  resource: resource ?? null,
  type: type ?? null,
  from: from === undefined ? null : parseInstant("from", from),
  to: to === undefined ? null : parseInstant("to", to),
});

/** The parameters that the address of the next page repeats. */
function keptOf({ tenantId, all, keyId, resource, type, from, to, order }: AuditQuery): Record<string, string> {
  const given = { tenantId, all: all === true ? "true" : undefined, keyId, resource, type, from, to, order };
  return Object.fromEntries(Object.entries(given).filter((entry): entry is [string, string] => entry[1] !== undefined));
}

const positionOf = ({ at, tenantId, sequence }: AuditEntry): string => `${at},${tenantId},${sequence}`;

function parsePosition(cursor: string | undefined): AuditPosition | null {
  if (cursor === undefined) return null;
  const [at = "", tenantId = "", sequence = "", ...more] = cursor.split(",");
  const isInstant =
    /^[12]\d{3}-/.test(at) && !Number.isNaN(Date.parse(at)) && new Date(Date.parse(at)).toISOString() === at;
  if (!isInstant || !/^[\w-]{1,64}$/.test(tenantId) || !/^\d{1,15}$/.test(sequence) || more.length > 0)
    throw new Refusal("invalid_body", "cursor is not valid; take it from the link header of the previous page", {
      field: "cursor",
    });
  return { at, tenantId, sequence: Number(sequence) };
}

const auditEntry = (row: AuditRow): AuditEntry => ({ ...(JSON.parse(row.record) as AuditRecord), ...row });
