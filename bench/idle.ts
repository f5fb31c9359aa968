/**
 * The cost of idle machines: private memory and processor time of each VMM, and how quickly commands are
 * answered while they all run.
 *
 * Machines are started one after the other, as prepared VMs become ready, until the requested number runs or
 * memory is short; the figures say how many there were. Processor time is that of all of a VMM's threads over
 * a quiet period after all have settled.
 */
import { sleep, timed } from "./support/clock.ts";
import { BenchFlotilla, IMAGE } from "./support/flotilla.ts";
import { memoryMb, privateMemoryMb, processorMs } from "./support/host.ts";
import type { Finding } from "./support/report.ts";
import { atLeast, atMost, summarize } from "./support/statistics.ts";

const SETTLE_MS = 30_000;
const QUIET_MS = 30_000;
const EXECS = 300;
/** Share of the host's memory; below it no further machine is started. */
const FREE_SHARE_MIN = 0.15;

export async function idle(count: number): Promise<Finding> {
  await using flotilla = await BenchFlotilla.start({ driver: "qemu" });
  flotilla.requireOwn();
  // A machine started before there is a template does not share its memory.
  await flotilla.liftLimits();
  await flotilla.untilPrepared(1);
  const ids: string[] = [];
  let prepared = 0;
  while (ids.length < count) {
    const { available, total } = await memoryMb();
    if (available < total * FREE_SHARE_MIN) break;
    await flotilla.untilOneWaits();
    const { machine } = await flotilla.make();
    ids.push(machine.id);
    if (machine.startTimings?.vm === "prepared") prepared += 1;
  }
  await sleep(SETTLE_MS);
  const pids = (await flotilla.machineVmms()).map(({ pid }) => pid);
  const shares = await processorShares(pids);
  const memory = await Promise.all(pids.map(privateMemoryMb));
  const execs: number[] = [];
  for (let sample = 0; sample < EXECS; sample++) {
    const id = ids[sample % ids.length] ?? "";
    execs.push(await timed(() => flotilla.execTrue(id)));
  }
  const [megabytes, percent, exec] = [summarize(memory), summarize(shares), summarize(execs)];
  const mean = (values: readonly number[]): number => values.reduce((sum, value) => sum + value, 0) / values.length;
  return {
    name: "idle",
    series: [{ what: `exec \`true\` with ${ids.length} machines running`, summary: exec }],
    reaches: [
      atLeast("machines", ids.length, count),
      atMost("private memory each, mean", mean(memory), 52, "MB"),
      atMost("of one core each, mean", mean(shares), 1, "%"),
      atMost("exec p99", exec.p99Ms, 50),
    ],
    setting: { image: IMAGE, size: "default", count: ids.length, VMMs: pids.length },
    notes: [
      `${prepared} of ${ids.length} used a prepared VM`,
      `private memory, MB: p50 ${megabytes.p50Ms.toFixed(1)}, p99 ${megabytes.p99Ms.toFixed(1)}, most ${megabytes.maxMs.toFixed(1)}`,
      `processor, % of one core: p50 ${percent.p50Ms.toFixed(2)}, p99 ${percent.p99Ms.toFixed(2)}, most ${percent.maxMs.toFixed(2)}, all together ${shares.reduce((sum, share) => sum + share, 0).toFixed(1)}`,
    ],
  };
}

/** Percent of one core, over the quiet period. */
async function processorShares(pids: readonly number[]): Promise<readonly number[]> {
  const before = await Promise.all(pids.map(processorMs));
  const tookMs = await timed(() => sleep(QUIET_MS));
  const after = await Promise.all(pids.map(processorMs));
  return after.map((ms, at) => ((ms - (before[at] ?? ms)) / tookMs) * 100);
}
