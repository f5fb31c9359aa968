/**
 * Refuses to boot a VM when the host's memory is short, so that no machine that runs is ended for it.
 *
 * Memory is promised more often than it is there: a guest costs what it touches. So a start is refused by what is left,
 * not by what was promised. VMs that wait prepared are given up first. A start by one of them is not refused: it
 * takes little more memory than it has already. The server refuses by the same measure, and knows less: a node tells it what
 * is left every few seconds.
 *
 * Always: what is kept free is enough for the VMs that boot at the same moment, which are few (boot-slots.ts).
 */
import { memoryKeptMb } from "@flotilla/contract/limits";
import type { NodeResources } from "@flotilla/contract/link";

type Memory = Pick<NodeResources, "totalMemoryMb" | "availableMemoryMb">;

/** Why no VM may be booted now, and what to do; null when one may. Pure. */
export function memoryRefusal({ totalMemoryMb, availableMemoryMb }: Memory): string | null {
  const keptMb = memoryKeptMb(totalMemoryMb);
  if (availableMemoryMb >= keptMb) return null;
  return (
    `the node has ${availableMemoryMb} MB of memory left and keeps ${keptMb} MB free; ` +
    "stop machines that are not needed, or add a node"
  );
}

export interface MemoryRoomOptions {
  readonly observe: () => Promise<Memory>;
  /** Ends the VMs that wait prepared. */
  readonly discardPrepared: () => Promise<void>;
}

/** Throws an Error for the machine's owner when there is no room for another VM. */
export async function ensureMemoryRoom({ observe, discardPrepared }: MemoryRoomOptions): Promise<void> {
  if (memoryRefusal(await observe()) === null) return;
  await discardPrepared();
  const refusal = memoryRefusal(await observe());
  if (refusal !== null) throw new Error(refusal);
}
