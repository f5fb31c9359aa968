/**
 * Takes up again what an earlier node agent left: journals, running VMs, half-done actions, leftovers.
 *
 * Runs once, before the link answers and before anything new begins. In this order:
 * 1. Read every journal. A directory without one is what a removal left: it goes, unless there is a disk in it, which
 *    no crash of ours leaves behind without a journal; that is logged and left alone.
 * 2. Remove files that no journal accounts for: temporary files, directories of boots that ended, half-made disks.
 * 3. Let every supervisor go on: those with a boot look for its VM first (`adopt` is what the plan says then).
 * 4. End every VM that no journal knows.
 *
 * Always: a VM that a journal knows is not ended here. If the process dies in the middle, the next run does the same.
 */
import { mkdir, readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import type { Fleet } from "./fleet.ts";
import { JOURNAL_NAME, type Journal, readJournal } from "./journal.ts";
import { BOOTS_NAME, bootDirectoryName, bootsPathOf, DISK_NAME, LOGS_NAME } from "./paths.ts";

/** How long the start of the agent waits for running VMs to be adopted; slower ones are adopted while it serves. */
const ADOPTION_WAIT_MS = 10_000;

export interface Adoption {
  /** Machines of which a journal told. */
  readonly machines: number;
  /** Those that run. */
  readonly running: number;
  /** VMs that no journal knew. */
  readonly swept: number;
  /** Files and directories that were left over. */
  readonly removed: number;
}

/** Logs what it finds; throws only when the machines directory can not be read or the driver can not sweep. */
export async function adoptMachines(fleet: Fleet): Promise<Adoption> {
  const { log, driver, liveBoots } = fleet.surroundings;
  await mkdir(fleet.machinesDirectory, { recursive: true, mode: 0o700 });
  let removed = 0;
  for (const name of await readdir(fleet.machinesDirectory)) {
    const directory = join(fleet.machinesDirectory, name);
    const journal = await readJournal(directory, name).catch((error: NodeJS.ErrnoException) => {
      if (error.code === "ENOENT" || error.code === "ENOTDIR") return null;
      log.error({ machine: name, error }, "a journal can not be read; its directory is left alone");
      return "unreadable" as const;
    });
    if (journal === "unreadable") continue;
    if (journal === null) removed += await removeLeftover(fleet, directory);
    else {
      removed += await removeUnaccounted(directory, journal);
      fleet.restore(journal);
    }
  }
  fleet.finishRestoring();
  const machines = fleet.list();
  for (const machine of machines) machine.resume();
  const swept = await driver.sweep(liveBoots);
  const observed = await Promise.all(machines.map((machine) => machine.adopted(ADOPTION_WAIT_MS)));
  const running = observed.filter(({ state }) => state === "running").length;
  return { machines: machines.length, running, swept, removed };
}

async function removeLeftover(fleet: Fleet, directory: string): Promise<number> {
  const { log } = fleet.surroundings;
  const names: readonly string[] = await readdir(directory).catch(() => []);
  if (names.includes(DISK_NAME)) {
    log.error(
      { directory },
      "a machine's disk has no journal; it is left alone, remove it by hand if it is not wanted",
    );
    return 0;
  }
  log.warn({ directory }, "removed what a machine's removal or creation left");
  await rm(directory, { recursive: true, force: true });
  return 1;
}

/** Removes everything from a machine's directory that its journal does not account for. */
async function removeUnaccounted(directory: string, journal: Journal): Promise<number> {
  const known = new Set([JOURNAL_NAME, BOOTS_NAME, LOGS_NAME, ...(journal.hasDisk ? [DISK_NAME] : [])]);
  const files = (await readdir(directory)).filter((name) => !known.has(name)).map((name) => join(directory, name));
  const current = journal.boot === null ? null : bootDirectoryName(journal.boot.bootId);
  const boots = (await readdir(bootsPathOf(directory)).catch(() => []))
    .filter((name) => name !== current)
    .map((name) => join(bootsPathOf(directory), name));
  for (const path of [...files, ...boots]) await rm(path, { recursive: true, force: true });
  return files.length + boots.length;
}

/** One sentence for the log and for tests. */
export function describeAdoption(adoption: Adoption): string {
  const { machines, running, swept, removed } = adoption;
  return `${machines} machines found, ${running} running, ${swept} unknown VMs ended, ${removed} leftovers removed`;
}
