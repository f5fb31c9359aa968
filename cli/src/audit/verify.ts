/**
 * `flotilla audit verify`: computes every hash of the chain again, and compares its end with what the server says.
 *
 * Exit code 1: a row was changed, is missing or was added. Rows that retention has purged are not checked.
 */
import { createHash } from "node:crypto";
import type { AuditEntry } from "@flotilla/sdk";
import type { Call } from "../call.ts";

const PAGE = 1_000;

export interface VerifyOptions {
  readonly tenant?: string;
}

export async function run(call: Call, _operands: readonly string[], { tenant }: VerifyOptions): Promise<number> {
  const of = tenant === undefined ? {} : { tenantId: tenant };
  const flotilla = call.flotilla();
  const end = await flotilla.getAuditChain({ query: of });
  let last: AuditEntry | undefined;
  let count = 0;
  while ((last?.sequence ?? 0) < end.sequence) {
    const query = { ...of, limit: PAGE, cursor: String(last?.sequence ?? 0) };
    const entries = await flotilla.listAudit({ query });
    for (const entry of entries) {
      if (entry.sequence > end.sequence) break;
      const fault = faultOf(entry, last);
      if (fault !== null) return broken(call, entry.sequence, fault);
      last = entry;
      count += 1;
    }
    if (entries.length === 0)
      return broken(call, (last?.sequence ?? 0) + 1, `is missing; the chain ends at ${end.sequence}`);
  }
  if (last !== undefined && last.hash !== end.hash) return broken(call, last.sequence, "is not the end of the chain");
  if (call.output.isJson) call.output.json({ isIntact: true, checked: count, ...end });
  else call.output.line(`${count} recorded calls are intact, up to ${end.sequence} (${end.hash})`);
  return 0;
}

function faultOf(entry: AuditEntry, before: AuditEntry | undefined): string | null {
  const { previousHash, tenantId, sequence, record, hash } = entry;
  if (before !== undefined && sequence !== before.sequence + 1) return `does not follow ${before.sequence}`;
  if (before !== undefined && previousHash !== before.hash) return "does not have the hash of the row before it";
  if (before === undefined && sequence === 1 && !/^0{64}$/.test(previousHash)) return "does not begin the chain";
  const text = [previousHash, tenantId, sequence, record].join("\n");
  return createHash("sha256").update(text).digest("hex") === hash ? null : "does not have the hash of its content";
}

function broken(call: Call, sequence: number, fault: string): number {
  if (call.output.isJson) call.output.json({ isIntact: false, sequence, fault });
  else call.output.error(`the audit log is broken: row ${sequence} ${fault}`, null);
  return 1;
}
