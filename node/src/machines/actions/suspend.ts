/**
 * Suspends a machine, continues a suspended one, and discards memory.
 *
 * Always:
 * - The journal names the memory from before its VM is killed until before another VM continues with it.
 *   Until then no VM of the machine runs (plan.ts), so the disk does not change.
 * - A machine that cannot be suspended runs on. Memory that cannot be loaded is discarded with an event, and
 *   the machine boots.
 * - The run of a resumed guest begins right before its first instruction, whether or not its agent answers.
 *
 * A crash before the journal names the memory leaves a paused VM, which the next agent resumes and suspends
 * again. A crash after it leaves a VM that the next agent kills.
 */
import { randomBytes } from "node:crypto";
import { mkdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { deadlineSignal, orAborted } from "@flotilla/base/abort";
import type { Timer } from "@flotilla/base/clock";
import { messageOf } from "@flotilla/base/errors";
import type { SuspendRefusalCode } from "@flotilla/contract/link/link";
import { type GuestAddressing, type KeptMemory, SuspendRefused } from "../../driver/driver.ts";
import { makeBootId } from "../boot-vm.ts";
import type { Guest } from "../../guest/guest.ts";
import { applyFence, hasFence } from "../fence.ts";
import { atMoment, hookMs } from "../hook.ts";
import { type JournaledBoot, type JournaledMemory, vmmIdOf } from "../journal.ts";
import type { Machine } from "../machine.ts";
import { MEMORY_NAMES } from "../paths.ts";
import { BOOT_DEADLINE_MS, begin, diskRoot, ensureMayBegin, requestOf, takeSlot } from "./boot.ts";
import { configurationOf } from "./configure.ts";
import { endsWithHost, kill } from "./end.ts";

/** How long the agent of a resumed guest may take to answer, also on a host with much load. */
const ANSWER_DEADLINE_MS = 60_000;
/** How long the guest may write its files to the disk. */
const SYNC_DEADLINE_MS = 60_000;
/** How long the guest of a clone may take to become it. */
const BECOME_DEADLINE_MS = 30_000;
/** Time from the beginning to the saved memory. The server abandons a stop later. */
const SUSPEND_DEADLINE_MS = 4 * 60_000;

/** The machine has no boot or VM any more when its VM ended meanwhile; the plan sees that. */
export async function suspend(machine: Machine, signal: AbortSignal): Promise<void> {
  const { held, deps, directory, workload } = machine;
  const { boot, generation, keepsCommands = false } = machine.journal;
  const wasPaused = held.state === "paused";
  const vm = held.vm ?? held.paused;
  if (vm === null || boot === null) return;
  const memory = held.vm === null ? held.paused : held.vm.memory;
  const refuse = (code: SuspendRefusalCode, reason: string): void => {
    machine.log.warn({ generation, reason }, "the machine could not be suspended; it runs on");
    void machine.update({ suspendRefusal: { generation, code, reason } });
  };
  if (memory === null) return refuse("conflict", "this node cannot keep the memory of machines");
  const deadline = deadlineSignal(deps.clock, SUSPEND_DEADLINE_MS, signal);
  let release = (): void => undefined;
  try {
    // A machine that moves is not suspended for its programs. Others are saved while the hook runs.
    if (held.vm !== null && !wasPaused && !keepsCommands)
      await atMoment(machine, "suspend", { guest: held.vm.guest, signal: deadline.signal });
    if (machine.isReleased) return;
    const inTime = AbortSignal.any([deadline.signal, deps.hostStop.tooLate]);
    release = await deps.suspendSlots.take(machine.requiredSpec().tenantId, inTime);
    // A guest that is paused for a move must not run.
    if (!wasPaused) {
      if (boot.isPaused === true) void machine.update({ boot: { ...boot, isPaused: false } });
      await syncGuest(machine, deadline.signal);
    }
    const memoryId = randomBytes(16).toString("hex");
    const root = await diskRoot(machine).catch(() => null);
    const request = { boot: requestOf(machine, vmmIdOf(boot), root), directory, memoryId };
    const savedAt = await memory.suspend(request, deadline.signal);
    const suspendedAt = wasPaused ? (held.lastSeenAt ?? savedAt) : savedAt;
    // The next agent resumes the VM, and suspends it again.
    if (machine.isReleased) return;
    const guestBootId = boot.guestBootId ?? boot.bootId;
    const saved = machine.update({
      memory: { memoryId, suspendedAt, guestBootId, workload: boot.workload ?? null, keepsCommands },
      suspendRefusal: null,
    });
    // From here on the VM must not run. If the journal cannot be written, a crash of this agent stops the
    // machine without its memory.
    held.isEnding = true;
    held.lastSeenAt = suspendedAt;
    const known = machine.leaving.changes.finish(held.vm, request.boot.diskPath);
    await Promise.all([saved.catch(() => undefined), known]);
    if (endsWithHost(machine)) machine.event({ type: "machine.hostSuspended", data: {} });
    // The guest sends again what is not in the log.
    await workload.release();
    await kill(machine);
  } catch (error) {
    signal.throwIfAborted();
    if ((held.vm ?? held.paused) !== vm || machine.isReleased) return;
    if (error instanceof SuspendRefused) refuse(error.code, error.message);
    else refuse("conflict", `the machine's memory could not be saved: ${messageOf(error)}`);
  } finally {
    release();
    deadline.dispose();
  }
}

/** What commands have written is on the disk when the memory cannot be loaded later. */
async function syncGuest(machine: Machine, signal: AbortSignal): Promise<void> {
  const { held, deps } = machine;
  const deadline = deadlineSignal(deps.clock, SYNC_DEADLINE_MS, signal);
  try {
    await orAborted(held.vm?.guest.sync() ?? Promise.resolve(), deadline.signal);
  } catch (error) {
    throw new SuspendRefused(
      "conflict",
      `the machine's guest did not write its files to the disk: ${messageOf(error)}`,
    );
  } finally {
    deadline.dispose();
  }
}

/**
 * Resumes the machine. Until its memory is loaded, the journal has both boot and memory: the plan kills its
 * VM in between.
 */
export async function resume(machine: Machine, signal: AbortSignal): Promise<void> {
  const { driver, clock, liveBoots, runs } = machine.deps;
  const { directory, journal } = machine;
  const memory = journal.memory ?? null;
  if (memory === null) return;
  if (driver.memory === null) return await loseMemory(machine, "this node cannot load the memory of machines");
  const root = await diskRoot(machine);
  machine.releaseSlot = await takeSlot(machine, "boot", signal);
  const startedAt = clock.monotonic();
  const { memoryId, guestBootId, workload, suspendedAt, keepsCommands = false, moved = null, pointId } = memory;
  const bootId = makeBootId();
  const begun: JournaledBoot = {
    ...begin(machine),
    bootId,
    record: null,
    runningSince: null,
    timings: null,
    guestBootId,
    workload,
    ...(isSuspended(memory) && hookMs(machine, "resume") > 0 && { isHookDue: true }),
  };
  machine.held.state = "ended";
  liveBoots.add(bootId);
  const deadline = deadlineSignal(clock, BOOT_DEADLINE_MS + hookMs(machine, "fork"), signal);
  const answer = new AbortController();
  let silence: Timer | null = null;
  const onRunning = (at: number): void => {
    runs.open({ bootId, machineId: journal.machineId, startedAt: at });
    silence = clock.timer(ANSWER_DEADLINE_MS, () => answer.abort(new Error("its guest agent did not answer")));
  };
  try {
    await machine.update({ boot: begun });
    const mayBegin = (): void => ensureMayBegin(machine, deadline.signal);
    const request = { ...requestOf(machine, bootId, root), mayBegin };
    await mkdir(request.bootDirectory, { recursive: true, mode: 0o700 });
    deadline.signal.throwIfAborted();
    const ofPoint = pointId === undefined ? {} : { isUnconfirmed: true };
    const used = (): Promise<void> => machine.update({ memory: null, boot: { ...begun, ...ofPoint } });
    const becomes: KeptMemory["becomes"] = async (guest, network) => {
      silence?.cancel();
      await becomeMachine(machine, guest, network);
      await atMoment(machine, "fork", { guest, signal: deadline.signal });
    };
    const vm = await driver.memory.resume(
      request,
      { directory, memoryId, keepsCommands, moved, used, onRunning, ...(pointId !== undefined && { becomes }) },
      AbortSignal.any([deadline.signal, answer.signal]),
    );
    if (machine.isReleased) return vm.release();
    // A clone has confirmed that it is this machine.
    void machine.update({ boot: { ...begun, record: vm.record, isFenced: hasFence(vm) } });
    machine.timings.note({ bootMs: clock.monotonic() - startedAt });
    machine.held.hold(vm);
    void applyFence(machine);
    if (pointId === undefined)
      machine.event({ type: "machine.resumed", data: { suspendedAt: new Date(suspendedAt).toISOString() } });
    await removeMemory(machine);
  } catch (error) {
    signal.throwIfAborted();
    // It is loaded when a server answers.
    if (machine.isCutOff) throw error;
    if (runs.isOpen(bootId)) machine.held.endCause ??= "unresponsive";
    // A clone is not started with less than its point has, and its programs may have run.
    if (pointId === undefined) await loseMemory(machine, messageOf(error));
    else machine.failFinally(`it could not be started from its point: ${messageOf(error)}`);
  } finally {
    (silence as Timer | null)?.cancel();
    deadline.dispose();
  }
}

/** Whether a start continues what its owner has suspended: neither another machine, nor one that moves. */
const isSuspended = ({ pointId, keepsCommands = false }: JournaledMemory): boolean =>
  pointId === undefined && !keepsCommands;

/** The guest continues as this machine; a guest that does not say so must not be served. */
async function becomeMachine(machine: Machine, guest: Guest, network: GuestAddressing | null): Promise<void> {
  const limit = deadlineSignal(machine.deps.clock, BECOME_DEADLINE_MS);
  try {
    const configuration = await configurationOf(machine, network);
    await orAborted(guest.configure({ ...configuration, isClone: true }), limit.signal);
  } finally {
    limit.dispose();
  }
}

/** The machine boots next: its disk is as after a power cut, and what its guest had synced is there. */
async function loseMemory(machine: Machine, reason: string): Promise<void> {
  machine.event({ type: "machine.memoryLost", data: { cause: "resumeFailed", detail: reason } });
  await machine.update({ memory: null });
  await removeMemory(machine);
}

/** Discards saved memory, after a stop that does not keep it. */
export async function discardMemory(machine: Machine): Promise<void> {
  await machine.update({ memory: null });
  await removeMemory(machine);
  await rm(join(machine.directory, MEMORY_NAMES[1]), { force: true });
  machine.event({ type: "machine.memoryDiscarded", data: {} });
}

/** A crash before it leaves a file that no journal names; the next agent removes it. */
async function removeMemory({ directory, log }: Machine): Promise<void> {
  await rm(join(directory, MEMORY_NAMES[0]), { force: true }).catch((error: unknown) =>
    log.warn({ error }, "the file of used memory could not be removed"),
  );
}
