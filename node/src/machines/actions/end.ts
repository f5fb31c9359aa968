/**
 * Ends a machine's VM, cleans up after it, and removes the machine.
 *
 * Always:
 * - A boot stays in the machine's journal until its VMM is gone, its directory removed and the end of its run
 *   on the disk.
 * - The journal is the last file of a machine to be removed.
 *
 * After a crash the next agent continues where this one was.
 */
import { rm } from "node:fs/promises";
import { join } from "node:path";
import { deadlineSignal, orAborted } from "@flotilla/base/abort";
import { messageOf } from "@flotilla/base/errors";
import type { EndedRun } from "@flotilla/contract/link/link";
import type { RunEndCause } from "@flotilla/contract/runs";
import { atMoment } from "../hook.ts";
import { type JournaledBoot, vmmIdOf } from "../journal.ts";
import type { Machine } from "../machine.ts";
import { bootDirectoryName, bootsPathOf, diskPathOf } from "../paths.ts";
import { removeMachineFiles } from "../remove-machine-files.ts";

/** Time from the request to shut down until the VMM is ended. */
const SHUT_DOWN_DEADLINE_MS = 10_000;
/** How much of that a `stop` hook may take; the guest's programs and the sync of its disk have the rest. */
const STOP_HOOK_MS_MAX = 5_000;

export async function shutDown(machine: Machine, signal: AbortSignal): Promise<void> {
  const { held, deps } = machine;
  const { vm } = held;
  if (vm === null) return;
  held.isEnding = true;
  held.endCause ??= causeOf(machine);
  const deadline = deadlineSignal(deps.clock, SHUT_DOWN_DEADLINE_MS, signal);
  try {
    const isReplaced = machine.journal.desired === "running" && machine.replacing?.how === "restart";
    if (!isReplaced) await atMoment(machine, "stop", { guest: vm.guest, signal, limitMs: STOP_HOOK_MS_MAX });
    await orAborted(vm.guest.shutDown(), deadline.signal);
    await orAborted(vm.exited, deadline.signal);
  } catch (error) {
    signal.throwIfAborted();
    machine.event({ type: "machine.forced", data: { reason: messageOf(error) } });
    await kill(machine);
  } finally {
    deadline.dispose();
  }
  await machine.leaving.changes.finish(vm, diskPathOf(machine.directory));
  held.forget(machine.journal.boot !== null);
  // As after a loss of power, unless its owner wants no restarts.
  if (endsWithHost(machine)) machine.crashed("its host was about to go down, and it was shut down");
}

export async function kill(machine: Machine): Promise<void> {
  const { held, deps } = machine;
  const { boot } = machine.journal;
  held.isEnding = true;
  held.endCause ??= causeOf(machine);
  if (held.vm !== null) await held.vm.kill();
  else if (held.paused !== null) await held.paused.kill();
  else if (boot !== null && held.state !== "ended") {
    // The agent is not connected to it: the driver's sweep ends it.
    deps.liveBoots.delete(vmmIdOf(boot));
    const swept = await deps.driver.sweep(deps.liveBoots);
    // It ran until now, silent as it was, unless it was paused for a move.
    if (swept > 0 && boot.isPaused !== true) held.lastSeenAt = deps.clock.now();
  }
  held.forget(machine.journal.boot !== null);
}

export async function cleanBoot(machine: Machine): Promise<void> {
  const { held, deps, workload, directory } = machine;
  const { boot } = machine.journal;
  const run = boot === null ? null : endedRun(machine, boot);
  const recorded = run === null ? null : deps.runs.close(run.bootId, run);
  await workload.finish();
  if (boot !== null) {
    await rm(join(bootsPathOf(directory), bootDirectoryName(vmmIdOf(boot))), { recursive: true, force: true });
    deps.liveBoots.delete(vmmIdOf(boot));
  }
  await recorded;
  void machine.update({ boot: null, lastRun: run ?? machine.journal.lastRun ?? null });
  held.state = null;
  held.isEnding = false;
  held.endCause = null;
  held.lastSeenAt = null;
  held.endCount();
  held.isInherited = false;
  machine.adoptAttempts = 0;
  machine.leaving.end();
  machine.finishReplacing(
    machine.replacing?.how === "restart" ? { outcome: "replaced", pauseMs: null } : { outcome: "ended" },
  );
}

/** Why the agent ends a VM. */
function causeOf(machine: Machine): RunEndCause {
  const { journal } = machine;
  if (endsWithHost(machine) || machine.replacing?.how === "restart") return "stop";
  if (journal.desired === "running") return "unresponsive";
  return journal.desired === "absent" ? "delete" : "stop";
}

/** Whether it is ended because its host is about to go down, and is to run again afterwards. */
export const endsWithHost = ({ journal, deps }: Machine): boolean =>
  journal.desired === "running" && deps.hostStop.isStopping;

/**
 * The run that has ended; null if the boot never ran. A boot of an earlier agent may have been reported as
 * running before that was on the disk: it gets a run without length, so that the server ends its own.
 */
function endedRun({ held, journal, deps }: Machine, { bootId, runningSince }: JournaledBoot): EndedRun | null {
  const { runs, clock } = deps;
  const wasWritten = runningSince !== null || runs.isOpen(bootId);
  if (!wasWritten && !held.isInherited) return null;
  const lastSeenAt = Math.floor(held.lastSeenAt ?? clock.now());
  // Recorded already, unless the agent died before the start was on the disk.
  const startedAt = runs.open({ bootId, machineId: journal.machineId, startedAt: runningSince ?? lastSeenAt });
  const endedAt = Math.max(startedAt, lastSeenAt);
  const cause = wasWritten ? (held.endCause ?? "unseen") : "unseen";
  // An earlier agent may have counted more than this one saw of a VM that is gone.
  const egressBytes = Math.max(held.countSent(), runs.sentBytes(bootId));
  return { bootId, startedAt, endedAt, cause, egressBytes };
}

/** Removes the machine's files. Absence is final, so the journal is not written any more. */
export async function removeFiles(machine: Machine): Promise<void> {
  await machine.closeJournal();
  await removeMachineFiles(machine.directory);
  machine.machineLog.close();
  machine.isRemoved = true;
  machine.deps.onRemoved(machine.journal);
}
