/**
 * One machine's image, and its disk, which is based on the image.
 *
 * Owns the file `disk` in the machine's directory, and holds the image while it is needed, so that the image
 * is not collected before the journal names it.
 *
 * Always:
 * - A disk has its final name only when it is complete. Half a disk, left by a crash, has another name and is
 *   made again.
 * - An existing disk is never replaced: only the machine's removal deletes it, or the end of its move.
 */
import { link, rename, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import type { MachineSpec } from "@flotilla/contract/link/link";
import { type Disks, GIB } from "../disks/disks.ts";
import type { RootFile, UnpackedImage } from "../images/images.ts";
import { type EnsureImageOptions, ensureImage } from "./ensure-image.ts";
import type { Point } from "../points/points.ts";
import type { Journal, JournaledMemory } from "./journal.ts";
import { diskPathOf, MEMORY_NAMES } from "./paths.ts";
import type { WaitingVm } from "./prepared/kinds.ts";
import type { MachineDeps } from "./machine-deps.ts";

/** What the journal says of the file that a disk is based on. */
type DiskBase = Pick<Journal, "imageDigest" | "rootName">;

export class MachineDisk {
  readonly #deps: MachineDeps;
  readonly #directory: string;
  #image: UnpackedImage | null = null;
  #isNew = false;

  constructor(deps: MachineDeps, directory: string) {
    this.#deps = deps;
    this.#directory = directory;
  }

  /** Digest of the image that is held; null when there is none. */
  get heldDigest(): string | null {
    return this.#image?.digest ?? null;
  }

  /** The image of the point from which the disk is made. Resolves with what the journal is to name. */
  async ensureImageOf({ imageDigest, rootName }: Point): Promise<Pick<Journal, "imageDigest" | "rootName">> {
    await this.image(imageDigest);
    return { imageDigest, rootName };
  }

  /**
   * Makes the disk on top of the point's, and with `hasMemory` takes its memory. The journal names the
   * layers.
   */
  async makeFrom(point: Point, hasMemory: boolean, { spec, uid }: NewDisk): Promise<JournaledMemory | null> {
    const { disks, driver, points } = this.#deps;
    const { pointId, memory, madeAt } = point;
    const diskPath = diskPathOf(this.#directory);
    await refuseSecondDisk(diskPath);
    if (spec.diskGb !== point.diskGb) throw new Error(`its disk has ${point.diskGb} GB, as that of its point has`);
    if (hasMemory && memory === null) throw new Error("its point has no memory");
    const root = await this.root(spec, point);
    const place = { diskPath, directory: this.#directory, root, layerPath: points.layerPathOf(pointId) };
    if (!hasMemory || memory === null || driver.memory === null) {
      await makeOnTop(disks, place, { spec, uid });
      return null;
    }
    for (const name of MEMORY_NAMES)
      await linkIfAny(join(points.directoryOf(pointId), name), join(this.#directory, name));
    await makeOnTop(disks, place, { spec, uid });
    const { memoryId, guestBootId, workload } = memory;
    const moved = await driver.memory.files({ directory: this.#directory, diskPath });
    return { memoryId, guestBootId, workload, suspendedAt: madeAt, moved, pointId };
  }

  /** What the layers below the disk take. */
  async layerBytes({ layers = [] }: Journal): Promise<number> {
    const sizes = layers.map(async (layer) => (await stat(this.#deps.points.layerPathOf(layer))).blocks * 512);
    return (await Promise.all(sizes)).reduce((sum, bytes) => sum + bytes, 0);
  }

  /** Finds or pulls the image. Resolves with its digest. */
  async ensureImage(spec: MachineSpec, report: EnsureImageOptions["report"], signal: AbortSignal): Promise<string> {
    const { images, clock } = this.#deps;
    this.#image = await ensureImage(spec, { images, clock, report, signal });
    return this.#image.digest;
  }

  /**
   * Makes the disk, or takes one together with a prepared VM, which is returned. Rejects when the signal is
   * aborted before.
   */
  async make(spec: MachineSpec, uid: number, signal: AbortSignal): Promise<WaitingVm | undefined> {
    const image = this.#image;
    if (image === null) throw new Error("the machine's image has not been found yet");
    const { disks, images, prepared } = this.#deps;
    const diskPath = diskPathOf(this.#directory);
    await refuseSecondDisk(diskPath);
    signal.throwIfAborted();
    const waiting = prepared.takeWithDisk(spec, image);
    if (waiting?.diskPath) {
      await rename(waiting.diskPath, diskPath);
    } else {
      const root = await images.rootFor(image, spec.diskGb * GIB);
      signal.throwIfAborted();
      await disks.make({ diskPath, root, diskGb: spec.diskGb, uid });
      this.#isNew = true;
    }
    return waiting;
  }

  /** Whether the disk was made by this agent and no VM has had it. False from the next call on. */
  takeIsNew(): boolean {
    const isNew = this.#isNew;
    this.#isNew = false;
    return isNew;
  }

  /** The disk's image, as the journal names it. */
  async image(imageDigest: string | null): Promise<UnpackedImage> {
    this.#image ??= (imageDigest === null ? undefined : await this.#deps.images.findByDigest(imageDigest)) ?? null;
    if (this.#image === null) {
      throw new Error(`image ${imageDigest}, which the machine's disk is based on, is not on this node any more`);
    }
    return this.#image;
  }

  /** The file that the disk is based on. */
  async root(spec: MachineSpec | null, { imageDigest, rootName = null }: DiskBase): Promise<RootFile> {
    const image = await this.image(imageDigest);
    if (rootName !== null) return await this.#deps.images.rootNamed(image, rootName);
    if (spec === null) throw new Error("the size of the machine's disk is not known yet");
    return await this.#deps.images.rootFor(image, spec.diskGb * GIB);
  }
}

interface NewDisk {
  readonly spec: MachineSpec;
  readonly uid: number;
}

interface OnTop {
  readonly diskPath: string;
  /** Where the disk will be. */
  readonly directory: string;
  readonly root: RootFile;
  readonly layerPath: string;
}

/**
 * Makes an empty disk on top of a layer. Its header names that, so that it is not taken for one on top of the
 * image.
 */
export async function makeOnTop(
  disks: Disks,
  { diskPath, directory, root, layerPath }: OnTop,
  { spec, uid }: NewDisk,
): Promise<void> {
  await disks.make({ diskPath, root, diskGb: spec.diskGb, uid });
  await disks.rebase({ diskPath, directory, rootPath: layerPath });
}

/** Gives a file a second name. One that an earlier attempt made is replaced. */
async function linkIfAny(from: string, to: string): Promise<void> {
  await rm(to, { force: true });
  await link(from, to).catch((error: unknown) => {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
  });
}

/** Throws when there is a disk that the journal does not know: its content is worth more than this start. */
async function refuseSecondDisk(diskPath: string): Promise<void> {
  const found = await stat(diskPath).catch(() => undefined);
  if (found === undefined) return;
  throw new Error(
    "the machine has a disk on the node that its journal does not know; the disk is kept as it is: " +
      "restart the node agent, which recovers it, then start the machine again",
  );
}
