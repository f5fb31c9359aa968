/**
 * Runs a VMM that is being prepared at idle priority for a while
 * (docs/decisions/0015-emulated-processors.md).
 *
 * Not applied to the VMM's launcher: it may hold locks that others need, such as the kernel's lock for
 * interfaces.
 */
import { execFile } from "node:child_process";
import { writeFile } from "node:fs/promises";
import { promisify } from "node:util";
import type { Clock } from "@flotilla/base/clock";
import { isAlive } from "../processes.ts";
import type { Vmm } from "../vmm.ts";

/** After this time it gets its normal share, because on a busy host it might otherwise never be ready. */
const BACKGROUND_MS = 5_000;

/** Has no effect without root, which could not restore the priority. Rejects also when the VMM has ended. */
export async function inBackground<T>(vmm: Vmm, clock: Clock, work: () => Promise<T>): Promise<T> {
  if (process.getuid?.() !== 0) return await work();
  await schedule(vmm, "background");
  // Fails only when the VMM has ended, which is reported elsewhere.
  const restorePriority = (): void => void schedule(vmm, "normal").catch(() => {});
  const timer = clock.timer(BACKGROUND_MS, restorePriority);
  const result = await work().finally(() => timer.cancel());
  await schedule(vmm, "normal");
  return result;
}

/**
 * Sets a VMM's CPU priority: idle class, or the batch class it starts with. If the kernel schedules groups of
 * processes, the idle class applies only within a group, so the group of the VMM's session also gets the
 * least weight (sched(7), "The autogroup feature").
 */
async function schedule({ record, group }: Vmm, share: "background" | "normal"): Promise<void> {
  const { pid } = record;
  if (!isAlive(record)) throw new Error("the VMM has ended");
  const [policy, nice] = share === "background" ? ["idle", "19"] : ["batch", "0"];
  await group?.share?.(pid, share);
  await writeFile(`/proc/${pid}/autogroup`, nice).catch(() => {}); // The kernel may lack autogroups.
  await promisify(execFile)("chrt", ["--all-tasks", `--${policy}`, "--pid", "0", String(pid)]);
}
