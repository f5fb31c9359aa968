/**
 * Lets a VMM that is being prepared have what is left of the host's processors, for a while
 * (docs/decisions/0016-preparing-in-the-background.md).
 *
 * The VMM's launcher is not in it: it may hold what others wait for, such as the kernel's lock of all interfaces.
 */
import { execFile } from "node:child_process";
import { writeFile } from "node:fs/promises";
import { promisify } from "node:util";
import type { Clock } from "@flotilla/base/clock";
import { isAlive } from "../processes.ts";
import type { Vmm } from "../vmm.ts";

/** After that it takes its share of a busy host's processors like any VM, else it might not be ready there at all. */
const BACKGROUND_MS = 5_000;

/** Without root, which could not take the first share back, nothing changes. Rejects also when the VMM has ended. */
export async function inBackground<T>(vmm: Vmm, clock: Clock, work: () => Promise<T>): Promise<T> {
  if (process.getuid?.() !== 0) return await work();
  await schedule(vmm, "background");
  // When it fails, the VMM has ended, and others say so.
  const hurry = (): void => void schedule(vmm, "normal").catch(() => {});
  const timer = clock.timer(BACKGROUND_MS, hurry);
  const result = await work().finally(() => timer.cancel());
  await schedule(vmm, "normal");
  return result;
}

/**
 * Background tasks, or batch tasks as from its start. For a scheduler that knows groups of processes an idle task is one only
 * within its group, so the group of the VMM's session gets the least weight (sched(7), "The autogroup feature").
 */
async function schedule({ record, group }: Vmm, share: "background" | "normal"): Promise<void> {
  const { pid } = record;
  if (!isAlive(record)) throw new Error("the VMM has ended");
  const [policy, nice] = share === "background" ? ["idle", "19"] : ["batch", "0"];
  await group?.share?.(pid, share);
  await writeFile(`/proc/${pid}/autogroup`, nice).catch(() => {}); // A kernel without such groups.
  await promisify(execFile)("chrt", ["--all-tasks", `--${policy}`, "--pid", "0", String(pid)]);
}
