/**
 * The lease of one ingress: whether it may serve apps. Pure; instants are of this process's monotonic clock.
 *
 * Servers stop an instance when every ingress that has a lease has confirmed a table without it. So:
 *
 * Always:
 * - A lease is over here before it is over in the database: it is counted from before the renewal was sent.
 * - After a lease began, or began again, the table counts only from a query that began later: while the
 *   ingress had no lease, servers did not wait for it.
 */

/**
 * How long a renewal holds: longer than a database restarts or fails over. An ingress that crashed holds up
 * rollouts for as long.
 */
export const LEASE_MS = 30_000;

export interface Lease {
  readonly until: number;
  /** Since when it is held without a break. */
  readonly since: number;
}

export const NO_LEASE: Lease = { until: Number.NEGATIVE_INFINITY, since: Number.POSITIVE_INFINITY };

/** A renewal that the database has answered. */
export interface Renewal {
  readonly sentAt: number;
  readonly answeredAt: number;
}

/** The lease after a renewal. One that was over when the answer came begins again. */
export const renewedLease = ({ until, since }: Lease, { sentAt, answeredAt }: Renewal): Lease => ({
  until: sentAt + LEASE_MS,
  since: answeredAt < until ? since : answeredAt,
});

/**
 * Whether apps may be served. `readAt`: when the query began that the table is from; null: it was never
 * read.
 */
export const isServing = ({ until, since }: Lease, readAt: number | null, now: number): boolean =>
  now < until && readAt !== null && readAt >= since;
