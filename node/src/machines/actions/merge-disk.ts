/**
 * Makes one file of a disk that has come from another node and of what the machine has written since (followed-disk.ts).
 *
 * Always: until the journal says that they are merged, both files together are the disk, and a start uses both. From then on the one
 * from the other node alone is. It gets the name of a disk, and the other file is removed.
 *
 * A crash leaves a step that is repeated.
 */
import { chown, rename, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import { syncToDisk } from "../../host/sync-to-disk.ts";
import type { Machine } from "../machine.ts";
import { diskPathOf, farMapPathOf, farPathOf, farSocketPathOf, topPathOf } from "../paths.ts";

const WORK_NAME = "merge";

export async function mergeDisk(machine: Machine, signal: AbortSignal): Promise<void> {
  const { directory, deps, journal } = machine;
  const { following = null } = journal;
  if (following === null) return;
  const { rootPath } = await machine.disk.root(journal.spec, journal);
  const [diskPath, farPath] = [diskPathOf(directory), farPathOf(directory)];
  if (!following.isMerged) {
    const work = join(directory, WORK_NAME);
    const files = { topPath: topPathOf(directory), farPath, rootPath, directory: work };
    if (following.hasTop) await deps.disks.merge({ ...files, clock: deps.clock, signal });
    await deps.disks.rebase({ diskPath: farPath, directory, rootPath });
    if (process.getuid?.() === 0) await chown(farPath, journal.uid, journal.uid);
    await syncToDisk(farPath);
    signal.throwIfAborted();
    await machine.update({ following: { ...following, isMerged: true } });
  }
  await machine.closeFollowed();
  const isNamed = await stat(farPath).then(
    () => false,
    () => true,
  );
  if (!isNamed) await rename(farPath, diskPath);
  await stat(diskPath);
  await syncToDisk(directory);
  await machine.update({ following: null });
  for (const path of [topPathOf(directory), farMapPathOf(directory), farSocketPathOf(directory)])
    await rm(path, { force: true });
}
