/**
 * From nothing to a first answer: create, start and the first exec of a machine, each through the public API, against a bare
 * cold boot of QEMU with the same kernel, initramfs, agent and size.
 *
 * The two are taken in turn, so that a host that grows slower while it runs does not favour one of them. The image is on
 * the node before the first sample.
 */
import { bareBootMs, vmFacts } from "./support/bare-vm.ts";
import { timed } from "./support/clock.ts";
import { BenchFlotilla } from "./support/flotilla.ts";
import type { Finding } from "./support/report.ts";
import { compare } from "./support/statistics.ts";

const SIZE = { cpus: 1, memoryMb: 256 };
const IMAGE = "local/busybox";

/** Takes n samples of each. */
export async function createToExec(n: number): Promise<Finding> {
  const facts = await vmFacts();
  const accelerator = facts.accelerator === "kvm" ? "kvm" : "tcg";
  const flotilla = await BenchFlotilla.create();
  const ours: number[] = [];
  const bare: number[] = [];
  try {
    await flotilla.start();
    // The first of everything is slower, on both sides: neither counts.
    for (let sample = -1; sample < n; sample++) {
      const oursMs = await timed(() => createAndExec(flotilla));
      const bareMs = await bareBootMs(SIZE, accelerator);
      if (sample < 0) continue;
      ours.push(oursMs);
      bare.push(bareMs);
    }
  } finally {
    await flotilla.remove();
  }
  return {
    name: "create-to-exec",
    ours: "create, start, first exec answered",
    bare: "QEMU spawned to the agent's hello",
    comparison: compare(ours, bare),
    setting: { image: IMAGE, ...SIZE },
  };
}

/** Deletes the machine of the sample before, outside the next sample's time. */
async function createAndExec(flotilla: BenchFlotilla): Promise<void> {
  const { client } = flotilla;
  const machine = await client.createMachine({
    source: { type: "image", reference: IMAGE },
    resources: { ...SIZE, diskGb: 1 },
  });
  await client.startMachine(machine.id);
  const { exitCode } = await client.exec(machine.id, { command: ["true"] });
  if (exitCode !== 0) throw new Error(`the first exec ended with ${exitCode}`);
}
