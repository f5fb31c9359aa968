/**
 * Brings forward what a clock that was ahead has postponed: ends of leases, and times of next attempts.
 *
 * They are written by servers' clocks. One that is ahead by a month and is set back would leave them for a month: webhooks would receive
 * nothing, operations of a server that died would not be continued, idle machines would run.
 *
 * Always: nothing is postponed for longer than an hour, and clocks of servers differ by less than another one. So what is further
 * ahead is wrong. What is brought forward too early costs an attempt: each claim is fenced. A crash leaves rows for the next activation.
 */
import { ownMessageOf } from "@flotilla/base/errors";
import type { Context } from "../context.ts";
import { type Statement, sql } from "../db/database.ts";
import { instantOf } from "../db/instant.ts";
import type { Reconciler } from "./driver.ts";

const AHEAD_MS_MAX = 2 * 60 * 60_000;

interface Instants {
  readonly now: string;
  /** What lies behind it is wrong. */
  readonly latest: string;
}

/** By the name of the count in the log. Of a webhook without deliveries `due_at` is infinity. */
const POSTPONED: Readonly<Record<string, (at: Instants) => Statement>> = {
  machines: ({ now, latest }) => sql`UPDATE machines SET reconcile_at = ${now} WHERE reconcile_at > ${latest}`,
  /** A machine would count as used until then. One that was never used is idle since its start, or since now. */
  activity: ({ now, latest }) => sql`
    UPDATE machines SET last_activity_at = ${now}
    WHERE coalesce(last_activity_at, ready_at, desired_at) > ${latest} AND desired_state = 'running' AND auto_stop_seconds > 0`,
  operations: ({ now, latest }) => sql`UPDATE operations SET leased_until = ${now} WHERE leased_until > ${latest}`,
  followingDisks: ({ now, latest }) =>
    sql`UPDATE following_disks SET leased_until = ${now} WHERE leased_until > ${latest}`,
  requests: ({ now, latest }) =>
    sql`UPDATE idempotency_keys SET lease_until = ${now} WHERE lease_until > ${latest} AND status IS NULL`,
  pools: ({ now, latest }) => sql`UPDATE pools SET retry_at = ${now} WHERE retry_at > ${latest}`,
  webhooks: ({ now, latest }) => sql`
    UPDATE webhooks SET leased_until = least(leased_until, ${now}), reads_at = least(reads_at, ${now}),
      due_at = CASE WHEN due_at < 'infinity' THEN least(due_at, ${now}) ELSE due_at END
    WHERE leased_until > ${latest} OR reads_at > ${latest} AND reads_at < 'infinity' OR due_at > ${latest} AND due_at < 'infinity'`,
  deliveries: ({ now, latest }) =>
    sql`UPDATE webhook_deliveries SET next_attempt_at = ${now} WHERE next_attempt_at > ${latest} AND status = 'pending'`,
};

export function clockReconciler({ clock, db }: Context): Reconciler {
  return {
    name: "clocks",
    purpose: "brings forward what a clock that was ahead, and has been set back, has postponed",
    periodMs: 10 * 60_000,
    wakeOn: [],
    async activate() {
      const now = clock.now();
      const at = { now: instantOf(now), latest: instantOf(now + AHEAD_MS_MAX) };
      const errors: string[] = [];
      const counts: Record<string, number> = {};
      for (const [name, statement] of Object.entries(POSTPONED)) {
        try {
          counts[name] = await db.execute(statement(at));
        } catch (error) {
          errors.push(`${name}: ${ownMessageOf(error)}`);
        }
      }
      return { errors, counts, isRepair: Object.values(counts).some((count) => count > 0) };
    },
  };
}
