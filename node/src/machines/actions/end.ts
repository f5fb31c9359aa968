/**
 * Ends a machine's VM, cleans up after it, and removes the machine.
 *
 * Always: a boot stays in the journal until its VMM is gone and its directory removed; the journal is the last file of a
 * machine to be removed. After a crash the next agent goes on where this one was.
 */
import { rm } from "node:fs/promises";
import { join } from "node:path";
import { deadlineSignal, orAborted } from "@flotilla/base/abort";
import { messageOf } from "@flotilla/base/errors";
import type { EndedRun } from "@flotilla/contract/link";
import type { JournaledBoot } from "../journal.ts";
import type { Machine } from "../machine.ts";
import { bootDirectoryName, bootsPathOf } from "../paths.ts";
import { removeMachineFiles } from "../remove-machine-files.ts";

/** From asking the guest to shut down until the VMM is ended. */
const SHUT_DOWN_DEADLINE_MS = 10_000;

export async function shutDown(machine: Machine, signal: AbortSignal): Promise<void> {
  const { held, around } = machine;
  const { vm } = held;
  if (vm === null) return;
  held.isEnding = true;
  const deadline = deadlineSignal(around.clock, SHUT_DOWN_DEADLINE_MS, signal);
  try {
    await orAborted(vm.guest.shutDown(), deadline.signal);
    await orAborted(vm.exited, deadline.signal);
  } catch (error) {
    signal.throwIfAborted();
    machine.event("warn", `the machine did not shut down cleanly and was ended: ${messageOf(error)}`);
    await kill(machine);
  } finally {
    deadline.dispose();
  }
  held.forget(machine.journal.boot !== null);
}

export async function kill(machine: Machine): Promise<void> {
  const { held, around } = machine;
  const { boot } = machine.journal;
  held.isEnding = true;
  if (held.vm !== null) await held.vm.kill();
  else if (boot !== null && held.state !== "ended") {
    // The agent does not hold it: the driver ends what is not among the live boots.
    around.liveBoots.delete(boot.bootId);
    await around.driver.sweep(around.liveBoots);
  }
  held.forget(machine.journal.boot !== null);
}

export async function cleanBoot(machine: Machine): Promise<void> {
  const { held, around, workload, directory } = machine;
  const { boot } = machine.journal;
  await workload.finish();
  if (boot !== null) {
    await rm(join(bootsPathOf(directory), bootDirectoryName(boot.bootId)), { recursive: true, force: true });
    around.liveBoots.delete(boot.bootId);
  }
  const { lastRun } = machine.journal;
  void machine.update({
    boot: null,
    lastRun: endedRun(boot, held.lastSeenAt ?? around.clock.now()) ?? lastRun ?? null,
  });
  held.state = null;
  held.isEnding = false;
  held.lastSeenAt = null;
  machine.adoptAttempts = 0;
}

/** Null for a boot that never ran. */
function endedRun(boot: JournaledBoot | null, endedAt: number): EndedRun | null {
  if (boot === null || boot.runningSince === null) return null;
  const { bootId, runningSince: startedAt } = boot;
  return { bootId, startedAt, endedAt: Math.max(startedAt, endedAt) };
}

export async function removeFiles(machine: Machine): Promise<void> {
  await machine.idle();
  await removeMachineFiles(machine.directory);
  machine.machineLog.close();
  machine.isRemoved = true;
  machine.around.onRemoved(machine.journal);
}
