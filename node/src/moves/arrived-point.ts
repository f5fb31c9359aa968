/**
 * Makes a point of this node from files that have arrived from another one.
 *
 * Always: the point's disk is on top of its image alone. It exists when its files have their names and are
 * synced (points/points.ts); a crash before leaves them where they arrived, or a directory that is collected,
 * and then they are sent again.
 */
import { chmod, rename, stat } from "node:fs/promises";
import type { IncomingMachine } from "@flotilla/contract/link/moves";
import type { PointFacts } from "@flotilla/contract/link/points";
import { syncToDisk } from "../host/sync-to-disk.ts";
import type { HeldRoot } from "../images/images.ts";
import type { MachineDeps } from "../machines/machine-deps.ts";
import { diskPathOf, memoryBasePathOf, memoryPathOf } from "../machines/paths.ts";

export interface ArrivedPoint {
  readonly pointId: string;
  readonly facts: PointFacts;
  readonly request: IncomingMachine;
  /** Has the files. */
  readonly staging: string;
  readonly root: HeldRoot;
  readonly rootPath: string;
}

export async function addArrivedPoint(
  { disks, points }: Pick<MachineDeps, "disks" | "points">,
  { pointId, facts, request: { memory }, staging, root, rootPath }: ArrivedPoint,
): Promise<void> {
  const { size, ...known } = facts;
  const directory = await points.begin(pointId);
  try {
    const diskPath = diskPathOf(staging);
    await disks.rebase({ diskPath, directory, rootPath });
    await rename(diskPath, points.layerPathOf(pointId));
    if (memory !== null) await rename(memoryPathOf(staging), memoryPathOf(directory));
    if (memory !== null && memory.base !== null) {
      // VMMs of other users map it.
      await chmod(memoryBasePathOf(staging), 0o444);
      await rename(memoryBasePathOf(staging), memoryBasePathOf(directory));
    }
    await syncToDisk(directory);
    const memoryBytes = memory === null ? 0 : await allocated(memoryPathOf(directory));
    await points.add({
      ...known,
      ...{ pointId, imageDigest: root.digest, rootName: root.name, layers: [], memoryBytes },
      memory: memory === null || size === null ? null : { ...size, ...kept(memory) },
      bytes: (await allocated(points.layerPathOf(pointId))) + memoryBytes,
    });
  } finally {
    points.abandon(pointId);
  }
}

type Memory = NonNullable<IncomingMachine["memory"]>;

const kept = ({ memoryId, format, guestBootId, workload }: Memory) => ({ memoryId, format, guestBootId, workload });

const allocated = async (path: string): Promise<number> => (await stat(path)).blocks * 512;
