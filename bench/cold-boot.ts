/**
 * What templates and prepared VMs save: our start of a new machine against QEMU booting the same kernel, initramfs,
 * agent and size, alternately in the same run.
 *
 * A cold boot under emulation takes seconds, in which the node can prepare the next VM.
 */
import { MEMORY_MB_DEFAULT, CPUS_DEFAULT } from "@flotilla/contract/limits";
import { bareBootMs, vmFacts } from "./support/bare-vm.ts";
import { timed } from "./support/clock.ts";
import { BenchFlotilla, IMAGE } from "./support/flotilla.ts";
import type { Finding } from "./support/report.ts";
import { atLeast, summarize } from "./support/statistics.ts";

const SIZE = { cpus: CPUS_DEFAULT, memoryMb: MEMORY_MB_DEFAULT };

export async function coldBoot(n: number): Promise<Finding> {
  const accelerator = (await vmFacts()).accelerator === "kvm" ? "kvm" : "tcg";
  await using flotilla = await BenchFlotilla.start({ driver: "qemu" });
  await flotilla.warmUp(n);
  const ours: number[] = [];
  const bare: number[] = [];
  for (let sample = -1; sample < n; sample++) {
    const { id } = await flotilla.create();
    const oursMs = await timed(() => flotilla.client.startMachine(id));
    await flotilla.client.deleteMachine(id);
    const bareMs = await bareBootMs(SIZE, accelerator);
    if (sample < 0) continue;
    ours.push(oursMs);
    bare.push(bareMs);
  }
  const [start, cold] = [summarize(ours), summarize(bare)];
  return {
    name: "cold-boot",
    series: [
      { what: "our start of a new machine", summary: start },
      { what: "cold QEMU boot to the agent's hello", summary: cold, isBaseline: true },
    ],
    reaches: [atLeast("cold boot ÷ our start, p50", cold.p50Ms / start.p50Ms, 20)],
    setting: { image: IMAGE, ...SIZE },
    notes: [],
  };
}
