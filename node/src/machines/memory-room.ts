/**
 * Refuses to boot a VM when the host is short of memory, so that no running machine is ended for it.
 *
 * Memory is overcommitted, because a guest costs only what it touches. So a start is refused by the memory
 * that is left, not by the memory that was promised. Prepared VMs are discarded first. A start with a
 * prepared VM is not refused: it needs little more memory than the VM has already. The server applies the
 * same rule to older figures: a node reports its memory every few seconds.
 *
 * Always: the memory kept free is enough for the VMs that boot at the same time, which are few
 * (boot-slots.ts).
 */
import { memoryKeptMb } from "@flotilla/contract/limits";
import type { NodeResources } from "@flotilla/contract/link/link";

type Memory = Pick<NodeResources, "totalMemoryMb" | "availableMemoryMb">;

/** Why no VM can be booted now, and what to do; null when one can. Pure. */
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
  /** Ends all prepared VMs. */
  readonly discardPrepared: () => Promise<void>;
}

/** Throws an Error for the machine's owner when there is too little memory for another VM. */
export async function ensureMemoryRoom({ observe, discardPrepared }: MemoryRoomOptions): Promise<void> {
  if (memoryRefusal(await observe()) === null) return;
  await discardPrepared();
  const refusal = memoryRefusal(await observe());
  if (refusal !== null) throw new Error(refusal);
}
