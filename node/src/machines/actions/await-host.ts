/**
 * Waits while the host is about to go down; the plan continues if it does not, or after the next start of the
 * agent.
 */
import type { Machine } from "../machine.ts";

export async function awaitHost(machine: Machine, signal: AbortSignal): Promise<void> {
  machine.progress = "its host is about to go down";
  await machine.deps.hostStop.ended(signal);
}
