/**
 * `flotilla audit ls`: recorded calls, oldest first.
 */
import type { AuditEntry } from "@flotilla/sdk";
import type { Call } from "../call.ts";
import { usage } from "../failure.ts";
import { clean } from "../table.ts";
import { checkWhose, type Whose } from "./options.ts";

const PAGE = 1_000;

export interface ListAuditOptions extends Whose {
  readonly from?: number;
  readonly key?: string;
  readonly resource?: string;
  readonly since?: string;
  readonly until?: string;
}

export async function run(call: Call, _operands: readonly string[], options: ListAuditOptions): Promise<void> {
  const { all = false, from } = options;
  checkWhose(options);
  if (all && from !== undefined)
    throw usage("--from counts the calls of one tenant", "use --since with a time, or leave out --all");
  const entries: AuditEntry[] = [];
  for (let cursor = from === undefined ? undefined : String(from); ; ) {
    const some = await call
      .flotilla()
      .listAudit({ query: { ...queryOf(options), ...(cursor === undefined ? {} : { cursor }) } });
    entries.push(...some);
    const last = some.at(-1);
    if (last === undefined || some.length < PAGE) break;
    cursor = all ? `${last.at},${last.tenantId},${last.sequence}` : String(last.sequence);
  }
  if (call.output.isJson) return call.output.json(entries);
  call.output.table(
    [...(all ? ["TENANT"] : []), "SEQUENCE", "TIME", "KEY", "OPERATION", "RESOURCE", "STATUS", "ADDRESS", "REQUEST"],
    entries.map((entry) => [
      ...(all ? [entry.tenantId] : []),
      String(entry.sequence),
      entry.at,
      clean(entry.keyId),
      entry.operation,
      clean(entry.resource ?? ""),
      `${entry.status} ${entry.errorCode ?? ""}`.trim(),
      entry.address,
      clean(entry.requestId),
    ]),
  );
}

const queryOf = ({ tenant, all = false, key, resource, since, until }: ListAuditOptions) => ({
  limit: PAGE,
  ...(all ? { all } : {}),
  ...(tenant === undefined ? {} : { tenantId: tenant }),
  ...(key === undefined ? {} : { keyId: key }),
  ...(resource === undefined ? {} : { resource }),
  ...(since === undefined ? {} : { from: since }),
  ...(until === undefined ? {} : { to: until }),
});
