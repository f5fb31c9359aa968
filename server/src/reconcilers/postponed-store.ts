/**
 * The statements that bring forward what a clock that was ahead has postponed: ends of leases, times of next
 * attempts, and uses of machines.
 *
 * Always: only what is more than AHEAD_MS_MAX ahead is changed.
 */
import { type Queryable, sql } from "../db/database.ts";
import { AHEAD_MS_MAX, instantOf } from "../db/instant.ts";

/** A lease ends this long afterwards, so that a server that lives renews it. */
const RENEWAL_MS_MAX = 60_000;

interface Instants {
  readonly now: string;
  /** When leases end. */
  readonly soon: string;
  /** What lies behind it is wrong. */
  readonly latest: string;
}

/** `now`: epoch milliseconds, by a clock that is right. */
export const instantsAt = (now: number): Instants => ({
  now: instantOf(now),
  soon: instantOf(now + RENEWAL_MS_MAX),
  latest: instantOf(now + AHEAD_MS_MAX),
});

/** Statements by what they bring forward; each returns the number of its rows. */
export const POSTPONED: Readonly<Record<string, (db: Queryable, at: Instants) => Promise<number>>> = {
  machines: (db, { now, latest }) =>
    db.execute(sql`UPDATE machines SET reconcile_at = ${now} WHERE reconcile_at > ${latest}`),
  /**
   * A machine would count as used until then. One that was never used is idle since its start, or since now.
   */
  activity: (db, { now, latest }) =>
    db.execute(sql`
      UPDATE machines SET last_activity_at = ${now}
      WHERE coalesce(last_activity_at, ready_at, desired_at) > ${latest} AND desired_state = 'running' AND auto_stop_seconds > 0`),
  operations: (db, { soon, latest }) =>
    db.execute(sql`UPDATE operations SET leased_until = ${soon} WHERE leased_until > ${latest}`),
  requests: (db, { soon, latest }) =>
    db.execute(sql`UPDATE idempotency_keys SET lease_until = ${soon} WHERE lease_until > ${latest} AND status IS NULL`),
  pools: (db, { now, latest }) => db.execute(sql`UPDATE pools SET retry_at = ${now} WHERE retry_at > ${latest}`),
  /** A webhook without deliveries has infinity as `due_at`. */
  webhooks: (db, { now, soon, latest }) =>
    db.execute(sql`
      UPDATE webhooks SET leased_until = least(leased_until, ${soon}), reads_at = least(reads_at, ${now}),
        due_at = CASE WHEN due_at < 'infinity' THEN least(due_at, ${now}) ELSE due_at END
      WHERE leased_until > ${latest} OR reads_at > ${latest} OR (due_at > ${latest} AND due_at < 'infinity')`),
  deliveries: (db, { now, latest }) =>
    db.execute(sql`
      UPDATE webhook_deliveries SET next_attempt_at = ${now} WHERE next_attempt_at > ${latest} AND status = 'pending'`),
};
