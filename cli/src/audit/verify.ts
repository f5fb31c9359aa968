/**
 * `flotilla audit verify`: computes every hash of a tenant's chain again, or of all chains, and compares the
 * end of each with what the server answers.
 *
 * Exit code 1: a row was changed, is missing or was added. Rows that retention has purged are not checked.
 */
import { createHash } from "node:crypto";
import type { AuditEntry, Flotilla } from "@flotilla/sdk";
import type { Call } from "../call.ts";
import { queryOfTenant } from "../find-by-name.ts";
import { checkTenantOptions, type TenantOptions } from "./options.ts";

const PAGE = 1_000;

export async function run(call: Call, _operands: readonly string[], options: TenantOptions): Promise<number> {
  checkTenantOptions(options);
  const flotilla = call.flotilla();
  if (options.all !== true) {
    const { tenantId } = await queryOfTenant(flotilla, options.tenant);
    const found = await verifyChain(flotilla, tenantId);
    if (call.output.isJson) call.output.json(found);
    else print(call, "", found);
    return found.isIntact ? 0 : 1;
  }
  const all: Verified[] = [];
  for (const { id } of await flotilla.listTenants()) {
    const found = await verifyChain(flotilla, id);
    all.push(found);
    if (!call.output.isJson && (!found.isIntact || found.checked > 0)) print(call, `${id}: `, found);
  }
  const broken = all.filter(({ isIntact }) => !isIntact).length;
  if (call.output.isJson) call.output.json(all);
  else call.output.line(`${all.length} tenants, ${broken} broken logs`);
  return broken === 0 ? 0 : 1;
}

interface Verified {
  readonly tenantId: string;
  readonly isIntact: boolean;
  /** How many rows were checked before the first fault. */
  readonly checked: number;
  /** Number of the last row, or of the faulty one. */
  readonly sequence: number;
  readonly hash?: string;
  readonly fault?: string;
}

/** `tenant` undefined: the caller's own. */
async function verifyChain(flotilla: Flotilla, tenant: string | undefined): Promise<Verified> {
  const of = tenant === undefined ? {} : { tenantId: tenant };
  const end = await flotilla.getAuditChain({ query: of });
  let last: AuditEntry | undefined;
  let checked = 0;
  const broken = (sequence: number, fault: string): Verified => ({
    ...{ tenantId: end.tenantId, isIntact: false, checked, sequence, fault },
  });
  while ((last?.sequence ?? 0) < end.sequence) {
    const query = { ...of, limit: PAGE, cursor: String(last?.sequence ?? 0) };
    const entries = await flotilla.listAudit({ query });
    for (const entry of entries) {
      if (entry.sequence > end.sequence) break;
      const fault = faultOf(entry, last);
      if (fault !== null) return broken(entry.sequence, fault);
      last = entry;
      checked += 1;
    }
    if (entries.length === 0) return broken((last?.sequence ?? 0) + 1, `is missing; the chain ends at ${end.sequence}`);
  }
  if (last !== undefined && last.hash !== end.hash) return broken(last.sequence, "is not the end of the chain");
  return { ...end, isIntact: true, checked };
}

function print(
  { output }: Call,
  prefix: string,
  { tenantId, isIntact, checked, sequence, hash, fault }: Verified,
): void {
  if (isIntact) output.line(`${prefix}${checked} recorded calls are intact, up to ${sequence} (${hash})`);
  else output.error(`the audit log of ${tenantId} is broken: row ${sequence} ${fault}`, null);
}

function faultOf(entry: AuditEntry, before: AuditEntry | undefined): string | null {
  const { previousHash, tenantId, sequence, record, hash } = entry;
  if (before !== undefined && sequence !== before.sequence + 1) return `does not follow ${before.sequence}`;
  if (before !== undefined && previousHash !== before.hash) return "does not have the hash of the row before it";
  if (before === undefined && sequence === 1 && !/^0{64}$/.test(previousHash)) return "does not begin the chain";
  const text = [previousHash, tenantId, sequence, record].join("\n");
  return createHash("sha256").update(text).digest("hex") === hash ? null : "does not have the hash of its content";
}
