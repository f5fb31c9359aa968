/**
 * `flotilla audit ls`: all recorded calls, oldest first.
 */
import type { AuditEntry } from "@flotilla/sdk";
import type { Call } from "../call.ts";
import { clean } from "../table.ts";

const PAGE = 1_000;

export interface ListAuditOptions {
  readonly from?: number;
  readonly tenant?: string;
}

export async function run(call: Call, _operands: readonly string[], { from, tenant }: ListAuditOptions): Promise<void> {
  const entries: AuditEntry[] = [];
  for (let after = from ?? 0; ; ) {
    const query = { limit: PAGE, cursor: String(after), ...(tenant === undefined ? {} : { tenantId: tenant }) };
    const some = await call.flotilla().listAudit({ query });
    entries.push(...some);
    if (some.length < PAGE) break;
    after = some.at(-1)?.sequence ?? after;
  }
  if (call.output.isJson) return call.output.json(entries);
  call.output.table(
    ["SEQUENCE", "TIME", "KEY", "OPERATION", "RESOURCE", "STATUS", "ADDRESS", "REQUEST"],
    entries.map((entry) => [
      String(entry.sequence),
      entry.at,
      entry.keyId,
      entry.operation,
      clean(entry.resource ?? ""),
      `${entry.status} ${entry.errorCode ?? ""}`.trim(),
      entry.address,
      clean(entry.requestId),
    ]),
  );
}
