/**
 * Moves the billing time of a tenant with a test clock forward. Machines that run are billed for the time in
 * between.
 *
 * Always: billing time never goes back, and a tenant without a test clock has real time. The database refuses
 * anything else.
 *
 * A crash leaves the clock where it was, or moved. The loops that make invoices final, write notices and stop
 * machines are notified, and run in their own time if the notification is lost.
 */
import { Refusal } from "@flotilla/contract/errors";
import { TEST_CLOCK_AHEAD_MS_MAX } from "@flotilla/contract/limits";
import type { Context } from "../context.ts";
import { parseInstant } from "../api/instant.ts";
import { advanceClock, lockTenant, type TenantRow } from "./store.ts";
import { notFound } from "../missing.ts";

/**
 * `to`: RFC 3339, in the tenant's billing time. Throws a Refusal when the tenant has no test clock or would
 * go back.
 */
export async function advanceTenant({ clock, db }: Context, id: string, to: string): Promise<TenantRow> {
  const target = parseInstant("to", to);
  const moved = await db.transaction(async (transaction) => {
    const tenant = await lockTenant(transaction, id);
    if (tenant === undefined) throw notFound("tenant", id);
    if (!tenant.hasTestClock)
      throw new Refusal(
        "invalid_request",
        `tenant ${id} has no test clock and is billed in real time; create a tenant with testClock to move its time`,
        { field: "testClock" },
      );
    const now = clock.now();
    const aheadMs = target - now;
    if (aheadMs <= tenant.clockAheadMs)
      throw new Refusal(
        "invalid_request",
        `the billing time of tenant ${id} is ${new Date(now + tenant.clockAheadMs).toISOString()} and cannot go back to ${to}; name a later instant`,
      );
    if (aheadMs > TEST_CLOCK_AHEAD_MS_MAX)
      throw new Refusal(
        "invalid_request",
        `to is more than ${TEST_CLOCK_AHEAD_MS_MAX / 86_400_000} days in the future; name an earlier instant`,
        { field: "to" },
      );
    return await advanceClock(transaction, { id, aheadMs, now });
  });
  if (moved === undefined) throw new Error(`tenant ${id} is locked and gone`);
  // The statement notifies the other servers; this one's loops are notified here.
  await db.notify("clocks", id);
  return moved;
}
