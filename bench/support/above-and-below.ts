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
  readonly usedMs: UsedMs;
}

/** Processor time of each program so far, in milliseconds. */
export type Used = Readonly<Record<string, number>>;
export type UsedMs = () => Promise<Used>;

export async function aboveAndBelow<T>(
  above: (machine: Above) => Promise<T>,
  below: (guest: Guest, usedMs: UsedMs) => Promise<T>,
): Promise<{ readonly ours: T; readonly bare: T }> {
  await using flotilla = await BenchFlotilla.start({ driver: "qemu" });
  flotilla.requireOwn();
  await flotilla.untilPrepared(1);
  const { machine } = await flotilla.make();
  // Preparing a VM meanwhile would be measured too.
  await flotilla.untilPrepared(1);
  const [vmm] = await flotilla.machineVmms();
  if (vmm === undefined) throw new Error("the machine has no VMM");
  const programs = { server: await flotilla.pidOf("server"), "node agent": await flotilla.pidOf("node") };
  const ends = { VMM: vmm.pid, "this program": process.pid };
  const ours = await above({ flotilla, id: machine.id, usedMs: () => usedBy({ ...programs, ...ends }) });
  await flotilla.stop();
  const guest = await channelBelow(flotilla.dataDirectory, vmm.bootId);
  try {
    return { ours, bare: await below(guest, () => usedBy(ends)) };
  } finally {
    guest.close();
  }
}

async function usedBy(pids: Readonly<Record<string, number>>): Promise<Used> {
  const used = Object.entries(pids).map(async ([name, pid]) => [name, await processorMs(pid)] as const);
  return Object.fromEntries(await Promise.all(used));
}

/** Processor time per unit of work. */
export function usedNote(before: Used, after: Used, units: number, unit: string): string {
  const parts = Object.entries(after).map(
    ([name, ms]) => `${name} ${((ms - (before[name] ?? 0)) / units).toFixed(2)} ms`,
  );
  return `processor time for each ${unit}: ${parts.join(", ")}`;
}
