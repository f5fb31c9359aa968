/**
 * A machine that is paused for a move: it waits for the end of the move, and continues here or on the other
 * node.
 *
 * Always: it continues only when the server says that it is to run on this node. The journal says that it is
 * paused from before the pause until it runs again, so no agent lets it run by itself.
 */
import { once } from "node:events";
import { deadlineSignal } from "@flotilla/base/abort";
import { applyFence } from "../fence.ts";
import { type JournaledBoot, vmmIdOf } from "../journal.ts";
import type { Machine } from "../machine.ts";
import { BOOT_DEADLINE_MS, requestOf } from "./boot.ts";
import { markRunning } from "./configure.ts";

const RETRY_MS = 10_000;

/** Any request of the server ends it. A machine whose memory could not be saved tries that again. */
export async function awaitMove(machine: Machine, signal: AbortSignal): Promise<void> {
  if (signal.aborted) return;
  if (machine.leaving.isUnderWay) return void (await once(signal, "abort"));
  await machine.deps.clock.sleep(RETRY_MS, signal);
  if (!signal.aborted) await machine.update({ suspendRefusal: null });
}

/**
 * Cancels a pause that was about to come: what ended for it is as before. Does nothing for a paused machine.
 */
export function cancelPause(machine: Machine): void {
  const { held, journal, leaving } = machine;
  leaving.isUnderWay = false;
  const { boot, desired } = journal;
  if (held.vm === null || held.state !== "configured" || boot?.isPaused !== true) return;
  markRunning(machine, held.vm, { ...boot, isPaused: false });
  // Otherwise what has changed on its disk is sent after it has stopped.
  if (desired !== "running") return;
  void leaving.forget();
}

/**
 * Lets the paused machine run. On the node where it was, its guest is connected and configured; on the node
 * where it arrived, that happens next.
 */
export async function unpause(machine: Machine, signal: AbortSignal): Promise<void> {
  const { held, deps } = machine;
  const { boot } = machine.journal;
  if (boot === null) return;
  if (held.vm !== null) {
    await held.vm.live?.unpause();
    held.notePaused(null);
    machine.leaving.end();
    await machine.leaving.changes.forget();
    return markRunning(machine, held.vm, { ...boot, isPaused: false });
  }
  if (held.paused === null) return;
  const deadline = deadlineSignal(deps.clock, BOOT_DEADLINE_MS, signal);
  try {
    const request = requestOf(machine, vmmIdOf(boot), null);
    const isFenced = request.fence === "on" || boot.isFenced === true;
    let continued: JournaledBoot = { ...boot, record: held.paused.record, isPaused: false, isFenced };
    const onRunning = (at: number): void => {
      const runningSince = continued.runningSince ?? at;
      deps.runs.open({ bootId: boot.bootId, machineId: machine.journal.machineId, startedAt: runningSince });
      continued = { ...continued, runningSince };
      void machine.update({ boot: continued });
    };
    const vm = await held.paused.resume(request, onRunning, deadline.signal);
    if (machine.isReleased) return vm.release();
    held.hold(vm);
    void applyFence(machine);
  } finally {
    deadline.dispose();
  }
}
