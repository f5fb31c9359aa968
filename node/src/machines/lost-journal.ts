/**
 * Recovers machines whose journal is lost. The disk names its image and its user, processes show whether the
 * machine runs, and the server sends the desired state.
 *
 * Always:
 * - No disk is deleted, replaced or booted twice.
 * - A machine is recovered if its disk names its image and at most one VMM can belong to it. Otherwise it is
 *   kept as it is (unreadable-machine.ts) and its owner reads why.
 *
 * The new journal is written when the server sends the machine's desired state. A crash before that changes
 * nothing.
 */
import { readdir, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import { messageOf } from "@flotilla/base/errors";
import type { FoundVm } from "../driver/driver.ts";
import type { Fleet } from "./fleet.ts";
import type { Journal, JournaledBoot } from "./journal.ts";
import { bootDirectoryName, bootsPathOf, DISK_NAME, diskPathOf, isOurName } from "./paths.ts";
import type { MachineDeps } from "./machine-deps.ts";

export interface LostMachine {
  readonly machineId: string;
  /** `unusable`: it can be read, but not used. */
  readonly kind: "missing" | "damaged" | "newer" | "unusable";
  /** What is wrong with the journal, or with the machine's directory. */
  readonly reason: string;
  /** Facts of an unusable journal: the machine's user, and ids of boots that may name its VMM. */
  readonly known?: { readonly uid: number; readonly bootIds: readonly string[] };
}

const IS_NEWER =
  "start the later version of Flotilla again, or move journal.json away and restart the node agent, " +
  "which then recovers the machine from its disk";
const IS_UNUSABLE = "repair what is named here and restart the node agent, or delete the machine";
const HAS_NO_IMAGE =
  "its disk does not name its image; restore the journal from a backup and restart the node agent, " +
  "or delete the machine";

/**
 * Recovers a machine. Resolves with whether there was nothing to keep. Call it after all readable journals
 * are restored, so that no machine gets the user of another one. Rejects only when the host's processes
 * cannot be listed.
 */
export async function recoverLost(fleet: Fleet, deps: MachineDeps, lost: LostMachine): Promise<boolean> {
  const { log } = deps;
  const { machineId, kind, reason, known } = lost;
  const directory = join(deps.machinesDirectory, machineId);
  const isRecovered = kind === "missing" || kind === "damaged";
  if (isRecovered && (await isWorthless(directory))) {
    try {
      await rm(directory, { recursive: true, force: true });
      log.warn({ directory }, "removed leftover files of an interrupted removal or creation of a machine");
      return true;
    } catch (error) {
      const text = `what is left of it cannot be removed: ${messageOf(error)}`;
      return await recoverLost(fleet, deps, { machineId, kind: "unusable", reason: text });
    }
  }
  const traces: Traces = {
    machineId,
    directory,
    imageDigest: await digestOf(deps, directory),
    vms: await vmsOf(deps, machineId),
    ...(known && { known }),
  };
  const journal = isRecovered
    ? await makeJournal(deps, traces).catch(messageOf)
    : kind === "newer"
      ? IS_NEWER
      : IS_UNUSABLE;
  if (typeof journal === "string") await keepUnreadable(fleet, deps, traces, `${reason}; ${journal}`);
  else {
    fleet.restore(journal);
    log.error(
      { machine: machineId, reason, boot: journal.boot?.bootId },
      "a machine was recovered without its journal",
    );
    deps.onEvent(machineId, { type: "machine.recovered", data: { reason } });
  }
  return false;
}

/** What is left of a machine. */
interface Traces {
  readonly machineId: string;
  readonly directory: string;
  readonly imageDigest: string | null;
  /** VMs that may belong to it. */
  readonly vms: readonly FoundVm[];
  readonly known?: LostMachine["known"];
}

async function keepUnreadable(fleet: Fleet, deps: MachineDeps, traces: Traces, text: string): Promise<void> {
  const { machineId, directory, imageDigest, vms, known } = traces;
  const reason = `${text}; its files are kept in ${directory} on its node`;
  const owner = known?.uid ?? vms[0]?.uid ?? (await stat(diskPathOf(directory)).catch(() => null))?.uid;
  // No other machine gets the user, who can read its files, and whose VMM may run.
  const uid = owner !== undefined && deps.users.takeBack(owner) ? owner : null;
  const bootIds = [...new Set([...vms.map(({ record }) => record.bootId), ...(known?.bootIds ?? [])])];
  fleet.keepUnreadable({ machineId, uid, reason, imageDigest, bootIds });
  deps.log.error({ machine: machineId, reason }, "a machine cannot be run; its files are kept as they are");
}

/**
 * Corrects a journal that does not know of the disk, which may happen after a crash of the host: a start
 * would make a new disk. Undefined: the disk does not name its image.
 */
export async function accountForDisk(fleet: Fleet, deps: MachineDeps, journal: Journal): Promise<Journal | undefined> {
  const directory = join(deps.machinesDirectory, journal.machineId);
  const names: readonly string[] = await readdir(directory);
  // It was being made on top of a point, and no VM has had it: it is made again.
  if (!journal.hasDisk && (journal.layers ?? []).length > 0) {
    await rm(diskPathOf(directory), { force: true });
    return journal;
  }
  if (journal.hasDisk || journal.desired === "absent" || !names.includes(DISK_NAME)) return journal;
  const imageDigest = await digestOf(deps, directory);
  if (imageDigest !== null)
    return { ...journal, hasDisk: true, imageDigest, rootName: await rootNameOf(deps, directory) };
  const text = `its journal does not know of its disk, and ${HAS_NO_IMAGE}`;
  const vms = await vmsOf(deps, journal.machineId);
  await keepUnreadable(fleet, deps, { machineId: journal.machineId, directory, imageDigest, vms }, text);
  return undefined;
}

/** Whether only files of an interrupted removal or creation are left: no disk, and no unknown file. */
async function isWorthless(directory: string): Promise<boolean> {
  const names = await readdir(directory).catch(() => null);
  return names !== null && !names.includes(DISK_NAME) && names.every(isOurName);
}

/** VMs started for the machine, or with a directory among its boots: a prepared VM keeps its first name. */
async function vmsOf(deps: MachineDeps, machineId: string): Promise<readonly FoundVm[]> {
  const boots = await readdir(bootsPathOf(join(deps.machinesDirectory, machineId))).catch((): string[] => []);
  const isOwn = ({ startedFor, record }: FoundVm): boolean =>
    startedFor === machineId || boots.includes(bootDirectoryName(record.bootId));
  return (await deps.driver.find()).filter(isOwn);
}

function digestOf(deps: MachineDeps, directory: string): Promise<string | null> {
  const { disks, log } = deps;
  return disks.digestOf(diskPathOf(directory)).catch((error: unknown) => {
    log.warn({ directory, reason: messageOf(error) }, "a disk cannot be read");
    return null;
  });
}

/** The name in the disk's header. It is used only for a file of the image that the header names. */
const rootNameOf = ({ disks }: MachineDeps, directory: string): Promise<string | null> =>
  disks.rootNameOf(diskPathOf(directory)).catch(() => null);

/**
 * A journal of generation 0, which any request of the server replaces, or a text that says why there is none.
 */
async function makeJournal(
  deps: MachineDeps,
  { machineId, directory, imageDigest, vms }: Traces,
): Promise<Journal | string> {
  const [vm, ...others] = vms;
  if (imageDigest === null) return HAS_NO_IMAGE;
  if (others.length > 0) return "more than one VMM runs for it; end all but one and restart the node agent";
  const uid = await userOf(deps, directory, vm);
  if (uid === null)
    return `its VMM (process ${vm?.record.pid}) has another machine's user; end it and restart the agent`;
  return {
    machineId,
    uid,
    generation: 0,
    desired: vm === undefined ? "stopped" : "running",
    spec: null,
    imageDigest,
    rootName: await rootNameOf(deps, directory),
    hasDisk: true,
    boot: vm === undefined ? null : bootOf(vm, deps.clock.now()),
    ending: null,
  };
}

/** The VMM's user, else the disk's owner, else a new user, which the next boot makes the disk's owner. */
async function userOf(deps: MachineDeps, directory: string, vm: FoundVm | undefined): Promise<number | null> {
  const running = vm?.uid ?? null;
  const uid = running ?? (await stat(diskPathOf(directory))).uid;
  if (deps.users.takeBack(uid)) return uid;
  return running === null ? deps.users.take() : null;
}

/** Assumes that the guest was configured; a guest that was not says so when it is adopted. */
const bootOf = ({ record }: FoundVm, now: number): JournaledBoot => ({
  bootId: record.bootId,
  record,
  runningSince: now,
  timings: null,
});
