/**
 * Looks for the VM of a journaled boot to which this agent is not connected: an earlier agent started it, or
 * its channel broke.
 *
 * Always: a machine has at most one VMM, because no boot starts before this one has been found or is known to
 * be gone.
 */
import { deadlineSignal } from "@flotilla/base/abort";
import { messageOf } from "@flotilla/base/errors";
import { GuestPaused } from "../../driver/driver.ts";
import { applyFence } from "../fence.ts";
import { afterResume } from "../hook.ts";
import { type JournaledBoot, vmmIdOf } from "../journal.ts";
import type { Machine } from "../machine.ts";
import { workloadCommand } from "../workload/workload.ts";
import { BOOT_DEADLINE_MS, diskRoot, requestOf } from "./boot.ts";
import { markRunning } from "./configure.ts";

const ADOPT_DEADLINE_MS = 15_000;
const ADOPT_ATTEMPTS_MAX = 3;
const FENCED_UNSEEN = "its node's agent was down, and no server let it run on";

export async function adopt(machine: Machine, signal: AbortSignal): Promise<void> {
  const { held, deps } = machine;
  const { boot, desired } = machine.journal;
  if (boot === null) return;
  const hasRun = boot.runningSince !== null;
  if (boot.isUnconfirmed === true) {
    // Its programs may still be those of another machine, and a hello would let them run.
    held.state = "unreachable";
    return machine.failFinally("its node's agent ended while it was started from its point");
  }
  if (boot.isPaused === true) return await adoptPaused(machine, boot, signal);
  if (!hasRun && desired === "stopped") {
    // A clean shutdown would save nothing, and the guest agent may take long to answer.
    held.state = "unreachable";
    return;
  }
  const root = await diskRoot(machine).catch(() => null);
  const deadline = deadlineSignal(deps.clock, hasRun ? ADOPT_DEADLINE_MS : BOOT_DEADLINE_MS, signal);
  try {
    const vm = await deps.driver.adopt(requestOf(machine, vmmIdOf(boot), root), boot.record, deadline.signal);
    if (vm === "gone") return await recordGone(machine, boot);
    machine.adoptAttempts = 0;
    held.hold(vm);
    // A prepared guest was configured before it became this machine; it is configured again.
    const isRunning = vm.guest.hello.isConfigured && hasRun;
    if (isRunning) markRunning(machine, vm, await withWorkload(machine, boot));
    machine.log.info({ boot: boot.bootId, state: held.state }, "a running VM was adopted");
    void applyFence(machine);
    if (isRunning) await afterResume(machine, vm, signal);
  } catch (error) {
    signal.throwIfAborted();
    if (error instanceof GuestPaused) {
      held.diskPause.note(true);
      // The VM continues when the disk has space. A stop does not wait: the guest cannot write.
      if (hasRun && desired === "running") throw error;
    }
    // Its process is there.
    held.lastSeenAt = deps.clock.now();
    machine.adoptAttempts += 1;
    if (machine.adoptAttempts < ADOPT_ATTEMPTS_MAX) throw error;
    held.state = "unreachable";
    const reason = `the machine's agent does not answer: ${messageOf(error)}`;
    if (hasRun) machine.crashed(reason);
    else machine.fail(machine.journal.generation, reason);
  } finally {
    deadline.dispose();
  }
}

/**
 * Adopts a VM that was paused for a move, or was about to be. It stays paused: only the server knows whether
 * the machine runs on another node. A VM that does not answer is ended once the server says that the machine
 * is to run here, or to stop.
 */
async function adoptPaused(machine: Machine, boot: JournaledBoot, signal: AbortSignal): Promise<void> {
  const { held, deps } = machine;
  const deadline = deadlineSignal(deps.clock, ADOPT_DEADLINE_MS, signal);
  try {
    const request = requestOf(machine, vmmIdOf(boot), null);
    const paused = (await deps.driver.live?.adopt(request, boot.record, deadline.signal)) ?? "gone";
    if (paused !== "gone") {
      machine.adoptAttempts = 0;
      held.holdPaused(paused);
      machine.log.info({ boot: boot.bootId }, "a VM that is paused for a move was adopted");
      return;
    }
    machine.event({ type: "machine.memoryLost", data: { cause: "vmEnded", detail: "" } });
    await recordGone(machine, boot);
  } catch (error) {
    signal.throwIfAborted();
    const { desired, keepsMemory = false } = machine.journal;
    machine.adoptAttempts += 1;
    // One whose memory its move waits for may be needed.
    if (machine.adoptAttempts < ADOPT_ATTEMPTS_MAX || (desired === "stopped" && keepsMemory)) throw error;
    held.state = "unreachable";
    const detail = messageOf(error);
    machine.event({ type: "machine.memoryLost", data: { cause: "vmSilent", detail } });
    machine.crashed(`its VM was paused for a move and does not answer: ${detail}`);
  } finally {
    deadline.dispose();
  }
}

/** Adds the workload to a boot that was found without its journal; the guest knows whether it has started. */
async function withWorkload(machine: Machine, boot: JournaledBoot): Promise<JournaledBoot> {
  if (boot.workload !== undefined) return boot;
  const image = await machine.disk.image(machine.journal.imageDigest).catch(() => null);
  return image === null ? boot : { ...boot, workload: workloadCommand(machine.requiredSpec(), image.configuration) };
}

/**
 * Records that the VM is gone: a machine that ran has crashed, one that was only starting is started again.
 */
async function recordGone(machine: Machine, boot: JournaledBoot): Promise<void> {
  const { driver, liveBoots } = machine.deps;
  const { runningSince, isFenced } = boot;
  // A VMM without a record, because the agent died before writing it, is found by the sweep.
  liveBoots.delete(vmmIdOf(boot));
  await driver.sweep(liveBoots);
  machine.held.state = "ended";
  machine.held.endCause ??= "unseen";
  if (runningSince === null || machine.journal.desired !== "running") return;
  if (isFenced === true && machine.isCutOff) machine.fenced(FENCED_UNSEEN);
  else machine.crashed("the machine ended while its node was down");
}
