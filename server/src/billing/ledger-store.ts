/**
 * Reads the ledger, and posts credits and adjustments of operators. A trigger of the table `invoices` posts
 * invoices.
 *
 * Always, enforced by the database:
 * - Posted rows never change.
 * - The entries of a transaction add up to 0.
 */
import type { LEDGER_ACCOUNTS, LEDGER_KINDS } from "@flotilla/contract/billing";
import { type Queryable, sql } from "../db/database.ts";
import { instantOf } from "../db/instant.ts";

/** Money in micros, instants in epoch milliseconds. */
export interface LedgerRow {
  readonly id: string;
  readonly kind: (typeof LEDGER_KINDS)[number];
  /** The month of the invoice, such as 2026-07. */
  readonly invoice: string | null;
  readonly note: string;
  readonly createdAt: number;
  readonly entries: readonly { readonly account: (typeof LEDGER_ACCOUNTS)[number]; readonly micros: number }[];
  /** The tenant's balance after it. */
  readonly balanceMicros: number;
}

/** All transactions of a tenant, in the order in which they were posted. */
export const listLedger = (db: Queryable, tenantId: string): Promise<readonly LedgerRow[]> =>
  db.query<LedgerRow>(sql`
    SELECT t.id, t.kind, to_char(t.invoice_month, 'YYYY-MM') AS invoice, t.note,
      ms(t.made_at) AS "createdAt", e.entries,
      (sum(e.balance) OVER (ORDER BY t.position))::bigint AS "balanceMicros"
    FROM ledger_transactions t
    CROSS JOIN LATERAL (
      SELECT coalesce(jsonb_agg(jsonb_build_object('account', account, 'micros', micros) ORDER BY account), '[]') AS entries,
        coalesce(sum(micros) FILTER (WHERE account = 'balance'), 0) AS balance
      FROM ledger_entries WHERE transaction_id = t.id) e
    WHERE t.tenant_id = ${tenantId} ORDER BY t.position`);

/** The balance of a tenant in micros; negative if it owes. */
export async function readBalance(db: Queryable, tenantId: string): Promise<number> {
  const row = await db.queryOne<{ readonly micros: number }>(sql`
    SELECT coalesce(sum(e.micros), 0)::bigint AS micros
    FROM ledger_transactions t JOIN ledger_entries e ON e.transaction_id = t.id AND e.account = 'balance'
    WHERE t.tenant_id = ${tenantId}`);
  return row?.micros ?? 0;
}

export interface Posting {
  readonly id: string;
  readonly tenantId: string;
  readonly kind: "credit" | "adjustment";
  readonly micros: number;
  readonly note: string;
  readonly at: number;
}

/** Adds the micros to the tenant's balance. An existing posting with this id stays unchanged. */
export async function insertPosting(db: Queryable, posting: Posting): Promise<void> {
  await db.execute(sql`
    WITH posted AS (
      INSERT INTO ledger_transactions (id, tenant_id, kind, note, made_at)
      VALUES (${posting.id}, ${posting.tenantId}, ${posting.kind}, ${posting.note}, ${instantOf(posting.at)})
      ON CONFLICT (id) DO NOTHING RETURNING id)
    INSERT INTO ledger_entries (transaction_id, account, micros)
    SELECT p.id, e.account, e.micros FROM posted p
    CROSS JOIN (VALUES ('balance', ${posting.micros}::bigint), (${posting.kind}::text, -${posting.micros}::bigint)) AS e(account, micros)`);
}
