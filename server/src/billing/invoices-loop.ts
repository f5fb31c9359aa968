/**
 * Makes invoices final when the grace period of their month is over, oldest months first.
 *
 * Writes through store.ts: some tenants at a time, each time in one transaction, so a server that
 * dies leaves whole invoices, and the next activation of any server continues. Servers that find the same
 * tenants skip those that another one has locked.
 */
import { ownMessageOf } from "@flotilla/base/errors";
import type { Billing } from "./invoices.ts";
import { monthAt } from "./month.ts";
import { finalizeInvoices, listDue } from "./store.ts";
import { isOutOfRange } from "../db/out-of-range.ts";
import { isTooLong } from "../db/too-long.ts";
import type { Reconciler } from "../family.ts";

const TENANTS_PER_ACTIVATION_MAX = 20_000;
/**
 * Starts of these tenants' machines wait for their transaction, so it is short: after one that takes longer,
 * fewer share the next ones.
 */
const TENANTS_PER_TRANSACTION_MAX = 100;
const TRANSACTION_MS = 250;
const HOUR_MS = 3_600_000;

export function invoiceReconciler({ context, graceHours }: Billing): Reconciler {
  return {
    name: "invoices",
    purpose: "makes invoices final when the grace period of their month is over",
    periodMs: 60_000,
    wakeOn: ["clocks"],
    async activate(signal) {
      const now = context.clock.now();
      const due = await listDue(context.db, {
        endedBefore: now - graceHours * HOUR_MS,
        limit: TENANTS_PER_ACTIVATION_MAX,
      });
      const errors: string[] = [];
      let finalized = 0;
      const left = batches(due).toReversed();
      for (let batch = left.pop(); batch !== undefined && !signal.aborted; batch = left.pop()) {
        const { from, tenantIds } = batch;
        // The tenants that are left have as much to do.
        const divideLeft = (): void =>
          void left.splice(0, left.length, ...left.flatMap((other) => halvesOfLarge(other, tenantIds)));
        const startedAt = context.clock.monotonic();
        try {
          finalized += await finalizeInvoices(context.db, { tenantIds, month: monthAt(from), now });
          if (context.clock.monotonic() - startedAt > TRANSACTION_MS) divideLeft();
        } catch (error) {
          const isDivided = (isOutOfRange(error) || isTooLong(error)) && tenantIds.length > 1;
          if (isTooLong(error)) divideLeft();
          if (isDivided) left.push(...halves(batch));
          else errors.push(`${monthAt(from).id} of ${tenantIds[0]}${others(tenantIds)}: ${ownMessageOf(error)}`);
        }
      }
      // A tenant may have more than one month to catch up on.
      return { counts: { finalized }, errors, hasMore: finalized > 0 };
    },
  };
}

/**
 * Tenants of the same month, which become final in one transaction. `from`: of the month, in epoch
 * milliseconds.
 */
interface Batch {
  readonly from: number;
  readonly tenantIds: string[];
}

/**
 * Amounts of one tenant that are too large for the database delay no other's invoice: they end up alone. A
 * batch whose usage takes too long to read is divided until it does not.
 */
function halves({ from, tenantIds }: Batch): Batch[] {
  const middle = Math.ceil(tenantIds.length / 2);
  return [
    { from, tenantIds: tenantIds.slice(middle) },
    { from, tenantIds: tenantIds.slice(0, middle) },
  ];
}

/** The batch, or its halves if it is as large as one that took too long. */
const halvesOfLarge = (batch: Batch, tooLong: readonly string[]): readonly Batch[] =>
  batch.tenantIds.length > 1 && batch.tenantIds.length >= tooLong.length ? halves(batch) : [batch];

const others = ({ length }: readonly string[]): string => (length > 1 ? ` and ${length - 1} others` : "");

/** Tenants of the same month together, in the order in which they are due. */
function batches(due: readonly { readonly tenantId: string; readonly from: number }[]): Batch[] {
  const made: Batch[] = [];
  for (const { tenantId, from } of due) {
    const last = made.at(-1);
    if (last === undefined || last.from !== from || last.tenantIds.length >= TENANTS_PER_TRANSACTION_MAX)
      made.push({ from, tenantIds: [tenantId] });
    else last.tenantIds.push(tenantId);
  }
  return made;
}
