/**
 * Start of a stopped machine until it is ready: the wait of a user who returns to a machine with its own
 * disk.
 *
 * One machine is stopped and started repeatedly; the VM that it takes waits without a disk, and the node has
 * time to prepare the next one before each sample.
 */
import { monotonic, sleep } from "./support/clock.ts";
import { BenchFlotilla, IMAGE } from "./support/flotilla.ts";
import type { Finding } from "./support/report.ts";
import { atMost, summarize } from "./support/statistics.ts";

/** Longer than preparing one takes here, so that a sample does not share the processor with it. */
const PAUSE_MS = 4_000;
const READY_DEADLINE_MS = 60_000;

export async function startStopped(n: number): Promise<Finding> {
  await using flotilla = await BenchFlotilla.start({ driver: "qemu" });
  await flotilla.untilPrepared(1);
  const { machine } = await flotilla.make();
  const samples: number[] = [];
  const onNode: number[] = [];
  for (let sample = -1; sample < n; sample++) {
    await flotilla.client.stopMachine(machine.id);
    await sleep(PAUSE_MS);
    const tookMs = await startUntilReady(flotilla, machine.id);
    if (sample < 0) continue;
    samples.push(tookMs);
    onNode.push((await flotilla.client.getMachine(machine.id)).startTimings?.totalMs ?? Number.NaN);
  }
  const ours = summarize(samples);
  return {
    name: "start-stopped",
    series: [
      { what: "start of a stopped machine until ready", summary: ours },
      { what: "of it: on the node alone", summary: summarize(onNode) },
    ],
    reaches: [atMost("p50", ours.p50Ms, 150)],
    setting: { image: IMAGE, size: "default" },
    notes: [],
  };
}

async function startUntilReady(flotilla: BenchFlotilla, id: string): Promise<number> {
  const startedAt = monotonic();
  let machine = await flotilla.client.startMachine(id);
  while (!machine.ready) {
    if (monotonic() - startedAt > READY_DEADLINE_MS) throw new Error(`machine ${id} did not become ready`);
    machine = await flotilla.client.getMachine(id);
  }
  return monotonic() - startedAt;
}
