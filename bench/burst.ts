/**
 * Many machines at the same time: all are created at once, and each is started and given a command as soon as
 * it exists. Reports how long the slowest took and that all succeeded.
 *
 * Before, as many have been made and removed, so that the node has seen such a demand and prepared for it.
 */
import { monotonic } from "./support/clock.ts";
import { BenchFlotilla, IMAGE, type Made } from "./support/flotilla.ts";
import { memoryMb } from "./support/host.ts";
import type { Finding } from "./support/report.ts";
import { atLeast, atMost, summarize } from "./support/statistics.ts";

/** The limit for the slowest, by the number of machines. */
const SLOWEST_MS: ReadonlyMap<number, number> = new Map([
  [20, 1_500],
  [100, 8_000],
]);
/** The most memory that one machine uses, measured before. */
const MACHINE_MB = 100;
/** Memory that stays free for everything else. */
const SPARE_MB = 2_048;
const FIRST_ERRORS_MAX = 3;

export async function burst(count: number): Promise<Finding> {
  const { available } = await memoryMb();
  if (available < count * MACHINE_MB + SPARE_MB)
    throw new Error(
      `${count} machines at once need ${count * MACHINE_MB + SPARE_MB} MB free; there are ${Math.floor(available)}`,
    );
  await using flotilla = await BenchFlotilla.start({ driver: "qemu" });
  await flotilla.liftLimits();
  const waiting = await flotilla.warmUp(count);
  const startedAt = monotonic();
  const results = await Promise.allSettled(Array.from({ length: count }, () => flotilla.make()));
  const wallMs = monotonic() - startedAt;
  const made = results.flatMap((result) => (result.status === "fulfilled" ? [result.value] : []));
  const errors = results.flatMap((result) => (result.status === "rejected" ? [String(result.reason)] : []));
  return findingOf(count, made, [
    `${waiting ?? "an unknown number of"} prepared VMs; the last answer came after ${(wallMs / 1000).toFixed(2)} s`,
    ...errors.slice(0, FIRST_ERRORS_MAX),
  ]);
}

function findingOf(count: number, made: readonly Made[], notes: readonly string[]): Finding {
  const started = summarize(made.map(({ startedMs }) => startedMs));
  const nodeMs = made.flatMap(({ machine }) => machine.startTimings?.totalMs ?? []);
  const prepared = made.filter(({ machine }) => machine.startTimings?.vm === "prepared").length;
  const limitMs = SLOWEST_MS.get(count);
  return {
    name: `burst-${count}`,
    series: [
      { what: "create and start, each", summary: started },
      { what: "create, start and first exec, each", summary: summarize(made.map(({ answeredMs }) => answeredMs)) },
      { what: "of it: create", summary: summarize(made.map(({ createdMs }) => createdMs)) },
      ...(nodeMs.length === 0 ? [] : [{ what: "of it: start, on the node alone", summary: summarize(nodeMs) }]),
    ],
    reaches: [
      atLeast("succeeded", made.length, count),
      ...(limitMs === undefined ? [] : [atMost("slowest", started.maxMs, limitMs)]),
    ],
    setting: { image: IMAGE, size: "default", count },
    notes: [...notes, `${prepared} of ${made.length} used a prepared VM`],
  };
}
