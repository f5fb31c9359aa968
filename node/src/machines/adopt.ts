/**
 * Recovers the state that an earlier node agent left: journals, running VMs, interrupted actions, leftover
 * files.
 *
 * Runs once, before the link answers and before anything new begins. In this order:
 * 1. Read every journal, and remove files that none accounts for: temporary files, directories of boots that
 *    ended.
 * 2. Recover machines whose journal is lost (lost-journal.ts). A directory without a journal and without a
 *    disk is left over from a removal: it is removed.
 * 3. End the runs of boots that no machine has.
 * 4. Resume every supervisor: one with a boot looks for its VM first (the plan's action is `adopt`).
 * 5. End every VM that belongs to no machine.
 *
 * Always: no disk is deleted here, and no VM that may belong to a machine is ended. Files of one machine that
 * cannot be used or removed affect no other. If the process dies in the middle, the next run does the same.
 */
import { mkdir, readdir, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import { messageOf } from "@flotilla/base/errors";
import type { Log } from "@flotilla/base/log";
import type { Fleet } from "./fleet.ts";
import { type Journal, readJournal, vmmIdOf } from "./journal.ts";
import { accountForDisk, type LostMachine, recoverLost } from "./lost-journal.ts";
import {
  BOOTS_NAME,
  bootDirectoryName,
  bootsPathOf,
  DISK_NAME,
  diskPathOf,
  isMachineDirectory,
  JOURNAL_NAME,
  LOGS_NAME,
  MEMORY_NAMES,
} from "./paths.ts";
import type { MachineDeps } from "./machine-deps.ts";

/**
 * How long the start of the agent waits for running VMs to be adopted; slower ones are adopted while it
 * serves.
 */
const ADOPTION_WAIT_MS = 10_000;

export interface Adoption {
  /** Machines on this node. */
  readonly machines: number;
  /** How many run. */
  readonly running: number;
  /** VMs that no journal knew. */
  readonly swept: number;
  /** Files and directories that were left over. */
  readonly removed: number;
}

/**
 * Logs what it finds; throws only when the machines directory cannot be read or the driver cannot find VMs
 * and sweep.
 */
export async function adoptMachines(fleet: Fleet, deps: MachineDeps): Promise<Adoption> {
  const { log, driver, liveBoots, machinesDirectory, runs } = deps;
  await mkdir(machinesDirectory, { recursive: true, mode: 0o700 });
  await deps.points.open();
  let removed = 0;
  const lost: LostMachine[] = [];
  const boots = new Set<string>();
  for (const machineId of await readdir(machinesDirectory)) {
    if (!isMachineDirectory(machineId)) {
      log.warn({ name: machineId }, "an unknown entry in the machines directory is left as it is");
      continue;
    }
    const read = await readJournal(join(machinesDirectory, machineId), machineId);
    if (read.kind !== "sound") {
      lost.push({ machineId, kind: read.kind, reason: read.reason });
      continue;
    }
    const { uid, boot } = read.journal;
    if (boot !== null) boots.add(boot.bootId);
    try {
      removed += await restore(fleet, deps, read.journal);
    } catch (error) {
      const bootIds = [boot?.vmmId, boot?.bootId].filter((id) => typeof id === "string");
      const reason = `its files cannot be used: ${messageOf(error)}`;
      lost.push({ machineId, kind: "unusable", reason, known: { uid, bootIds } });
    }
  }
  for (const machine of lost) if (await recoverLost(fleet, deps, machine)) removed += 1;
  fleet.finishRestoring();
  // A boot's VMM may have another id. One that was recovered without a journal has the boot's.
  runs.closeAllBut(new Set([...boots, ...liveBoots]), { endedAt: deps.lastAliveAt ?? 0, cause: "unseen" });
  fleet.resume();
  const swept = await driver.sweep(liveBoots);
  await fleet.collectPoints();
  const observed = await fleet.adopted(ADOPTION_WAIT_MS);
  const running = observed.filter(({ state }) => state === "running").length;
  return { machines: observed.length, running, swept, removed };
}

/**
 * Adds a machine whose journal could be read. Resolves with how much of its directory was removed. Rejects
 * when its files cannot be used.
 */
async function restore(fleet: Fleet, deps: MachineDeps, read: Journal): Promise<number> {
  const removed = await removeUnaccounted(join(deps.machinesDirectory, read.machineId), read, deps.log);
  const journal = await accountForDisk(fleet, deps, await accountForLayers(deps, read));
  if (journal === undefined) return removed;
  fleet.restore(journal);
  recordRuns(deps, journal);
  return removed;
}

/**
 * An agent that was killed while it made a point may have named the layer before the disk was on top of it:
 * the disk is the layer then.
 */
async function accountForLayers({ points, machinesDirectory }: MachineDeps, journal: Journal): Promise<Journal> {
  const [nearest, ...others] = journal.layers ?? [];
  if (nearest === undefined || !journal.hasDisk) return journal;
  const inodeOf = async (path: string): Promise<bigint> => (await stat(path, { bigint: true })).ino;
  const layer = await inodeOf(points.layerPathOf(nearest));
  const disk = await inodeOf(diskPathOf(join(machinesDirectory, journal.machineId)));
  return layer === disk ? { ...journal, layers: others } : journal;
}

/** Opens the run of a machine that the machine's journal knows and the journal of runs may not. */
function recordRuns({ runs }: MachineDeps, { machineId, boot }: Journal): void {
  if (boot === null || boot.runningSince === null) return;
  runs.open({ bootId: boot.bootId, machineId, startedAt: boot.runningSince });
}

/**
 * Removes everything but the disk from a machine's directory that its journal does not account for, if that
 * is possible.
 */
async function removeUnaccounted(directory: string, journal: Journal, log: Log): Promise<number> {
  const [memory, base] = MEMORY_NAMES;
  // The base of a machine that was suspended once is needed to suspend it again.
  const kept = journal.memory ? [memory, base] : journal.boot === null ? [] : [base];
  const known = new Set<string>([JOURNAL_NAME, BOOTS_NAME, LOGS_NAME, DISK_NAME, ...kept]);
  const files = (await readdir(directory)).filter((name) => !known.has(name)).map((name) => join(directory, name));
  const current = journal.boot === null ? null : bootDirectoryName(vmmIdOf(journal.boot));
  const boots = (await readdir(bootsPathOf(directory)).catch(() => []))
    .filter((name) => name !== current)
    .map((name) => join(bootsPathOf(directory), name));
  let removed = 0;
  for (const path of [...files, ...boots]) {
    try {
      await rm(path, { recursive: true, force: true });
      removed += 1;
    } catch (error) {
      log.warn({ machine: journal.machineId, path, reason: messageOf(error) }, "what an agent left cannot be removed");
    }
  }
  return removed;
}

/** One sentence for the log and for tests. */
export function describeAdoption(adoption: Adoption): string {
  const { machines, running, swept, removed } = adoption;
  return `${machines} machines found, ${running} running, ${swept} unknown VMs ended, ${removed} leftovers removed`;
}
