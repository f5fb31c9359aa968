/**
 * Boots a machine: takes a prepared VM, or has the driver start one.
 *
 * Always:
 * - The boot is live and in the journal before its VMM belongs to the machine, so that `adopt` finds it after
 *   a crash at any point.
 * - A prepared VM that was taken is the machine's or has ended. The machine has its user from then on, and
 *   the one before is free.
 * - What is desired, and whether a server answers, is looked at again right before the VM begins.
 */
import { chown } from "node:fs/promises";
import { deadlineSignal } from "@flotilla/base/abort";
import { messageOf } from "@flotilla/base/errors";
import { diskBytes } from "../../disks/disks.ts";
import type { BootRequest, PreparedVm } from "../../driver/driver.ts";
import type { RootFile } from "../../images/images.ts";
import { bootRequest, bootVm, makeBootId } from "../boot-vm.ts";
import { applyFence, hasFence, isFenced, requestedFence } from "../fence.ts";
import type { JournaledBoot } from "../journal.ts";
import type { Machine } from "../machine.ts";
import type { WaitingVm } from "../prepared/kinds.ts";

export const BOOT_DEADLINE_MS = 120_000;
/**
 * The limit of all attempts together: a driver boots a guest again that hangs or is of no use, and each
 * attempt has its own limit.
 */
const BOOTS_DEADLINE_MS = 10 * 60_000;

/** `withDisk`: the VM that the machine's new disk came with. */
export async function boot(machine: Machine, signal: AbortSignal, withDisk?: WaitingVm): Promise<void> {
  const { driver, clock, liveBoots, prepared, users } = machine.deps;
  prepared.starting();
  try {
    const orDiscard = (vm: PreparedVm | undefined) => async (error: unknown) => {
      await prepared.discard(vm);
      throw error;
    };
    const root = await diskRoot(machine).catch(orDiscard(withDisk?.vm));
    const { isDue: mustBoot } = machine.templateRetry;
    const waiting = (withDisk ?? (mustBoot ? undefined : prepared.take(machine.requiredSpec())))?.vm;
    const kind = waiting === undefined ? "boot" : "wake";
    machine.releaseSlot = await takeSlot(machine, kind, signal).catch(orDiscard(waiting));
    const startedAt = clock.monotonic();
    const bootId = waiting?.bootId ?? makeBootId();
    const begun: JournaledBoot = { ...begin(machine), bootId, record: null, runningSince: null, timings: null };
    const formerUid = machine.journal.uid;
    machine.held.state = "ended";
    liveBoots.add(bootId);
    const saved = machine.update({ boot: begun, uid: waiting?.uid ?? formerUid });
    const deadline = deadlineSignal(clock, BOOTS_DEADLINE_MS, signal);
    const options = { driver, log: machine.log, prepared: waiting, saved, signal: deadline.signal };
    const hasNewDisk = machine.disk.takeIsNew();
    const request = { ...requestOf(machine, bootId, root), mustBoot, hasNewDisk };
    const mayBegin = (): void => ensureMayBegin(machine, deadline.signal);
    const vm = await bootVm({ ...request, mayBegin }, options)
      .catch(async (error: unknown) => {
        if (waiting !== undefined) await leaveUser(machine, formerUid, { saved, diskPath: request.diskPath });
        throw error;
      })
      .finally(() => deadline.dispose());
    // The disk belongs to the new user now.
    if (waiting !== undefined) users.free(formerUid);
    if (machine.isReleased) return vm.release();
    void machine.update({ boot: { ...begun, record: vm.record, isFenced: hasFence(vm) } });
    machine.timings.note({
      ...(vm.origin === null ? {} : { vm: vm.origin }),
      bootMs: clock.monotonic() - startedAt,
    });
    machine.held.hold(vm);
    // What is desired of it may have changed.
    void applyFence(machine);
  } finally {
    prepared.started(machine.journal.machineId);
  }
}

/**
 * The machine has the user of a prepared VM that did not start: its former user is for another machine, which
 * must not own the disk. If the journal or the disk may name that user still, it is kept until the agent
 * ends.
 */
async function leaveUser(
  { journal, deps, log }: Machine,
  formerUid: number,
  { saved, diskPath }: { readonly saved: Promise<void>; readonly diskPath: string },
): Promise<void> {
  try {
    await saved;
    if (process.getuid?.() === 0) await chown(diskPath, journal.uid, journal.uid);
    deps.users.free(formerUid);
  } catch (error) {
    log.warn({ reason: messageOf(error), user: formerUid }, "the former user of a machine cannot be used again yet");
  }
}

/** What a boot has from before its VMM starts. */
export const begin = (machine: Machine): Pick<JournaledBoot, "isFenced"> => ({ isFenced: isFenced(machine) });

/**
 * Throws when no VM of it may begin any more: something else is desired since its start was planned, or no
 * server has acknowledged a heartbeat for too long. An agent that was stopped sees both late.
 */
export function ensureMayBegin(machine: Machine, signal: AbortSignal): void {
  signal.throwIfAborted();
  if (machine.isCutOff) throw new Error("no server answers its node, and it may have been replaced");
}

/** The file that the machine's disk is based on. Rejects when its image is not on the node any more. */
export function diskRoot(machine: Machine): Promise<RootFile> {
  return machine.disk.root(machine.requiredSpec(), machine.journal);
}

/** The size of the machine's disk as its guest sees it. */
export async function rootBytes(machine: Machine): Promise<number> {
  return diskBytes(machine.requiredSpec().diskGb, (await diskRoot(machine)).rootBytes);
}

/** The request to the driver. `root` is null when the image is missing. */
export function requestOf(machine: Machine, bootId: string, root: RootFile | null): BootRequest {
  const { directory, journal } = machine;
  const fence = requestedFence(journal, bootId);
  const layerPaths = (journal.layers ?? []).map((layer) => machine.deps.points.layerPathOf(layer));
  return {
    ...bootRequest({ spec: machine.requiredSpec(), directory, bootId, root, layerPaths, uid: journal.uid }),
    ...(fence === undefined ? {} : { fence }),
  };
}

/** Waits for a slot, and checks the host's memory for a boot. The function returned releases the slot. */
export async function takeSlot(machine: Machine, kind: "boot" | "wake", signal: AbortSignal): Promise<() => void> {
  const { bootSlots, wakeSlots, ensureMemoryRoom } = machine.deps;
  const slots = kind === "boot" ? bootSlots : wakeSlots;
  let release = slots.tryTake();
  if (release === undefined) {
    machine.isQueued = true;
    machine.changed();
    release = await slots.take(machine.requiredSpec().tenantId, signal);
    machine.isQueued = false;
    machine.changed();
  }
  try {
    if (kind === "boot") await ensureMemoryRoom();
    return release;
  } catch (error) {
    release();
    throw error;
  }
}
