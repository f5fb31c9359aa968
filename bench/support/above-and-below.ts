/**
 * The same work done twice in one machine: through the API, and on the guest channel alone.
 *
 * The node agent holds the channel while it runs, so the second half comes after `flotilla up` has stopped, which leaves the
 * machine running; then it is started again and deletes the machine.
 */
import type { Guest } from "../../node/src/guest/guest.ts";
import { channelBelow } from "./bare-vm.ts";
import { BenchFlotilla } from "./flotilla.ts";
import { processorMs } from "./host.ts";

/** A machine that is called through the API. */
export interface Above {
  readonly flotilla: BenchFlotilla;
  readonly id: string;
  /** Processor time so far, in milliseconds: server, node agent, VMM. */
  readonly usedMs: () => Promise<Used>;
}

export interface Used {
  readonly server: number;
  readonly node: number;
  readonly vmm: number;
}

export async function aboveAndBelow<T>(
  above: (machine: Above) => Promise<T>,
  below: (guest: Guest) => Promise<T>,
): Promise<{ readonly ours: T; readonly bare: T }> {
  await using flotilla = await BenchFlotilla.start({ driver: "qemu" });
  flotilla.requireOwn();
  await flotilla.untilPrepared(1);
  const { machine } = await flotilla.make();
  // Preparing a VM meanwhile would be measured too.
  await flotilla.untilPrepared(1);
  const [vmm] = await flotilla.machineVmms();
  if (vmm === undefined) throw new Error("the machine has no VMM");
  const [serverPid, nodePid] = [await flotilla.pidOf("server"), await flotilla.pidOf("node")];
  const usedMs = async (): Promise<Used> => {
    const [server = 0, node = 0, ofVmm = 0] = await Promise.all([serverPid, nodePid, vmm.pid].map(processorMs));
    return { server, node, vmm: ofVmm };
  };
  const ours = await above({ flotilla, id: machine.id, usedMs });
  await flotilla.stop();
  const guest = await channelBelow(flotilla.dataDirectory, vmm.bootId);
  try {
    return { ours, bare: await below(guest) };
  } finally {
    guest.close();
  }
}

/** Processor time per unit of work. */
export function usedNote(before: Used, after: Used, units: number, unit: string): string {
  const [server, node, vmm] = (["server", "node", "vmm"] as const).map((name) =>
    ((after[name] - before[name]) / units).toFixed(2),
  );
  return `processor time for each ${unit}: server ${server} ms, node agent ${node} ms, VMM ${vmm} ms`;
}
