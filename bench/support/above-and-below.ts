/**
 * The same work in two machines of the same kind: in one through the API, in the other on its guest channel
 * alone.
 *
 * The node agent holds a machine's channel while it runs, so the second machine belongs to a second Flotilla,
 * which is stopped: that leaves the machine running. So both sides can take turns, on hosts whose speed
 * changes within seconds. At the end the second one is started again and deletes its machine.
 */
import type { Guest } from "../../node/src/guest/guest.ts";
import { channelBelow } from "./vm.ts";
import { timed } from "./clock.ts";
import { BenchFlotilla } from "./flotilla.ts";
import { processorMs } from "./host.ts";

/** A machine that is called through the API. */
export interface Above {
  readonly flotilla: BenchFlotilla;
  readonly id: string;
  /** Programs that the work uses, by name. */
  readonly pids: Pids;
}

/** A machine whose channel is ours. */
export interface Below {
  readonly guest: Guest;
  readonly pids: Pids;
}

type Pids = Readonly<Record<string, number>>;
/** Processor time of each program, in milliseconds. */
type Used = Readonly<Record<string, number>>;

/** Makes both machines, and removes them when `measure` has ended. */
export async function aboveAndBelow<T>(measure: (above: Above, below: Below) => Promise<T>): Promise<T> {
  await using lower = await BenchFlotilla.start({ driver: "qemu" });
  lower.requireOwn();
  const { vmm } = await oneMachine(lower);
  await lower.stop();
  const guest = await channelBelow(lower.dataDirectory, vmm.bootId);
  try {
    await using flotilla = await BenchFlotilla.start({ driver: "qemu" });
    await flotilla.liftLimits();
    const upper = await oneMachine(flotilla);
    const programs = { server: await flotilla.pidOf("server"), "node agent": await flotilla.pidOf("node") };
    const client = { "this program": process.pid };
    return await measure(
      { flotilla, id: upper.id, pids: { ...programs, VMM: upper.vmm.pid, ...client } },
      { guest, pids: { VMM: vmm.pid, ...client } },
    );
  } finally {
    guest.close();
  }
}

async function oneMachine(flotilla: BenchFlotilla) {
  await flotilla.untilPrepared(1);
  const { machine } = await flotilla.make();
  // Preparing a VM meanwhile would be measured too.
  await flotilla.untilPrepared(1);
  const [vmm] = await flotilla.machineVmms();
  if (vmm === undefined) throw new Error("the machine has no VMM");
  return { id: machine.id, vmm };
}

/** Work of which the duration is measured, and the programs that it uses. */
export interface Side {
  readonly work: () => Promise<unknown>;
  readonly pids: Pids;
}

export interface Measured {
  /** Times of the work that warms up, in its order. */
  readonly beforeMs: number[];
  readonly tookMs: number[];
  readonly used: Used;
}

export interface Turns {
  /** How often each side does its work, after it has warmed up. */
  readonly count: number;
  readonly warmUps: number;
  /**
   * How often in each turn: short work has long turns, because reading processor times takes longer than it.
   */
  readonly together: number;
}

/** The sides do their work in turns, from the first to the last and again. */
export async function takeTurns(sides: readonly Side[], { count, warmUps, together }: Turns): Promise<Measured[]> {
  const before = await round(sides, warmUps, together);
  const measured = await round(sides, count, together);
  return measured.map((each, at) => ({ ...each, beforeMs: before[at]?.tookMs ?? [] }));
}

async function round(sides: readonly Side[], count: number, together: number) {
  const found = sides.map((side) => ({ ...side, tookMs: [] as number[], used: {} as Used }));
  for (let done = 0; done < count; done += together)
    for (const side of found) {
      const usedBefore = await usedBy(side.pids);
      for (let at = done; at < Math.min(done + together, count); at++) side.tookMs.push(await timed(side.work));
      side.used = sumOf(side.used, usedBefore, await usedBy(side.pids));
    }
  return found;
}

async function usedBy(pids: Pids): Promise<Used> {
  const used = Object.entries(pids).map(async ([name, pid]) => [name, await processorMs(pid)] as const);
  return Object.fromEntries(await Promise.all(used));
}

function sumOf(sum: Used, before: Used, after: Used): Used {
  const added: Record<string, number> = {};
  for (const [name, ms] of Object.entries(after)) added[name] = (sum[name] ?? 0) + ms - (before[name] ?? ms);
  return added;
}

/** Processor time for each unit of work. */
export function usedNote({ used }: Measured, units: number, unit: string): string {
  const parts = Object.entries(used).map(([name, ms]) => `${name} ${(ms / units).toFixed(2)} ms`);
  return `processor time for each ${unit}: ${parts.join(", ")}`;
}
