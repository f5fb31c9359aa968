/**
 * `flotilla audit ls`: recorded calls, oldest first, a page at a time: a log may have more rows than memory
 * has room.
 */
import type { AuditEntry } from "@flotilla/sdk";
import type { Call } from "../call.ts";
import { usage } from "../failure.ts";
import { queryOfTenant } from "../find-by-name.ts";
import { checkTenantOptions, type TenantOptions } from "./options.ts";

const PAGE = 1_000;

export interface ListAuditOptions extends TenantOptions {
  readonly from?: number;
  readonly key?: string;
  readonly resource?: string;
  readonly since?: string;
  readonly type?: string;
  readonly until?: string;
}

export async function run(call: Call, _operands: readonly string[], options: ListAuditOptions): Promise<void> {
  const { all = false, from } = options;
  checkTenantOptions(options);
  if (all && from !== undefined)
    throw usage("--from counts the calls of one tenant", "use --since with a time, or leave out --all");
  await call.output.pages(
    [...(all ? ["TENANT"] : []), "SEQUENCE", "TIME", "KEY", "TYPE", "RESOURCE", "STATUS", "ADDRESS", "REQUEST"],
    pagesOf(call, options),
    (entry) => [
      ...(all ? [entry.tenantId] : []),
      String(entry.sequence),
      entry.at,
      entry.keyId,
      entry.type,
      entry.resource ?? "",
      `${entry.status} ${entry.errorCode ?? ""}`.trim() + (entry.calls === undefined ? "" : `, ${entry.calls} calls`),
      entry.address,
      entry.requestId,
    ],
  );
}

async function* pagesOf(call: Call, options: ListAuditOptions): AsyncGenerator<readonly AuditEntry[]> {
  const { all = false, from } = options;
  const flotilla = call.flotilla();
  const whose = await queryOfTenant(flotilla, options.tenant);
  for (let cursor = from === undefined ? undefined : String(from); ; ) {
    const query = { ...queryOf(options), ...whose, ...(cursor === undefined ? {} : { cursor }) };
    const page = await flotilla.listAudit({ query });
    yield page;
    const last = page.at(-1);
    if (last === undefined || page.length < PAGE) return;
    cursor = all ? `${last.at},${last.tenantId},${last.sequence}` : String(last.sequence);
  }
}

const queryOf = ({ all = false, key, resource, type, since, until }: ListAuditOptions) => ({
  limit: PAGE,
  ...(all ? { all } : {}),
  ...(key === undefined ? {} : { keyId: key }),
  ...(resource === undefined ? {} : { resource }),
  ...(type === undefined ? {} : { type }),
  ...(since === undefined ? {} : { from: since }),
  ...(until === undefined ? {} : { to: until }),
});
