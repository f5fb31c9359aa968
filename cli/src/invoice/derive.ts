/**
 * Computes what intervals amount to and cost, from the intervals alone: independent of the server and of its
 * SQL. Pure.
 *
 * Always: integers without a bound; a price is rounded down once, from the sum over the period.
 */
import type { InvoiceInterval, InvoiceRate } from "@flotilla/sdk";

/** Instants in epoch milliseconds. */
export interface Span {
  readonly from: number;
  readonly to: number;
}

export interface Part {
  readonly interval: InvoiceInterval;
  readonly rateId: string;
  /** Quantity × milliseconds; of egress bytes. */
  readonly amount: bigint;
}

/**
 * What an interval amounts to within the span, for each rate that held. Throws an Error when none did for a
 * while.
 */
export function partsOf(interval: InvoiceInterval, rates: readonly InvoiceRate[], span: Span): Part[] {
  const from = Math.max(span.from, Date.parse(interval.startedAt));
  const to = Math.min(span.to, Date.parse(interval.countedUntil));
  const parts: Part[] = [];
  let covered = 0;
  for (const rate of rates) {
    const begin = Math.max(from, Date.parse(rate.activeFrom));
    const end = Math.min(to, rate.activeUntil === null ? Number.POSITIVE_INFINITY : Date.parse(rate.activeUntil));
    if (begin >= end) continue;
    covered += end - begin;
    parts.push({ interval, rateId: rate.id, amount: BigInt(interval.quantity) * BigInt(end - begin) });
  }
  if (covered !== Math.max(0, to - from))
    throw new Error(`interval ${interval.id}: no price, or two, held for a part of it`);
  if (interval.rateId !== null && parts.some(({ rateId }) => rateId !== interval.rateId))
    throw new Error(`interval ${interval.id}: it names another price than the one that held`);
  return parts;
}

/** The price in micros, rounded down. */
export function priceOf(meter: string, amount: bigint, rate: InvoiceRate | undefined): bigint {
  if (rate === undefined) throw new Error("a line names a price that never held");
  if (meter === "cpu") return (amount * BigInt(rate.cpuHourMicros)) / 3_600_000n;
  if (meter === "memory") return (amount * BigInt(rate.memoryGbHourMicros)) / (3_600_000n * 1024n);
  if (meter === "registry") return (amount * BigInt(rate.registryGbHourMicros)) / (3_600_000n * 1024n);
  if (meter === "egress") return (amount * BigInt(rate.egressGbMicros)) / 2n ** 30n;
  return 0n;
}

/** Sums by meter and rate, under `<meter> <rate id>`; sums of 0 are left out. */
export function derive(
  intervals: readonly InvoiceInterval[],
  rates: readonly InvoiceRate[],
  span: Span,
): Map<string, bigint> {
  const sums = new Map<string, bigint>();
  for (const { interval, rateId, amount } of intervals.flatMap((each) => partsOf(each, rates, span))) {
    const key = `${interval.meter} ${rateId}`;
    sums.set(key, (sums.get(key) ?? 0n) + amount);
  }
  return sums;
}
