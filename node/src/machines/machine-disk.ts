/**
 * One machine's image and the disk that stands on it.
 *
 * Owns the file `disk` in the machine's directory, and holds the image while it is needed, so that the image is not
 * collected before the journal names it.
 *
 * Always: a disk has its name only when it is whole; half of one, left by a crash, is made again under another name. A
 * disk that is there is never replaced: only the machine's removal deletes it.
 */
import { rename, stat } from "node:fs/promises";
import type { MachineSpec } from "@flotilla/contract/link";
import { GIB } from "../disks/disks.ts";
import type { RootFile, UnpackedImage } from "../images/images.ts";
import { type EnsureImageOptions, ensureImage } from "./ensure-image.ts";
import { diskPathOf } from "./paths.ts";
import type { WaitingVm } from "./prepared-kinds.ts";
import type { MachineDeps } from "./machine-deps.ts";

export class MachineDisk {
  readonly #deps: MachineDeps;
  readonly #directory: string;
  #image: UnpackedImage | null = null;

  constructor(deps: MachineDeps, directory: string) {
    this.#deps = deps;
    this.#directory = directory;
  }

  /** Of the image at hand; null while none is. */
  get heldDigest(): string | null {
    return this.#image?.digest ?? null;
  }

  /** Finds or pulls the image. Resolves with its digest. */
  async ensureImage(spec: MachineSpec, report: EnsureImageOptions["report"], signal: AbortSignal): Promise<string> {
    const { images, clock } = this.#deps;
    this.#image = await ensureImage(spec, { images, clock, report, signal });
    return this.#image.digest;
  }

  /** Makes the disk. A VM that waits with such a disk brings it along, and then the machine has both. */
  async make(spec: MachineSpec, uid: number): Promise<WaitingVm | undefined> {
    const image = this.#image;
    if (image === null) throw new Error("the machine's image is not at hand");
    const { disks, images, prepared } = this.#deps;
    const diskPath = diskPathOf(this.#directory);
    await refuseSecondDisk(diskPath);
    const waiting = prepared.takeWithDisk(spec, image);
    if (waiting?.diskPath) {
      await rename(waiting.diskPath, diskPath);
    } else {
      const root = await images.rootFor(image, spec.diskGb * GIB);
      await disks.make({ diskPath, root, diskGb: spec.diskGb, uid });
    }
    return waiting;
  }

  /** The image below the disk, as the journal names it. */
  async image(imageDigest: string | null): Promise<UnpackedImage> {
    this.#image ??= (imageDigest === null ? undefined : await this.#deps.images.findByDigest(imageDigest)) ?? null;
    if (this.#image === null) {
      throw new Error(`image ${imageDigest} that the machine's disk was made from is not on this node any more`);
    }
    return this.#image;
  }

  /** The file that the disk stands on. */
  async root(spec: MachineSpec, imageDigest: string | null): Promise<RootFile> {
    return this.#deps.images.rootFor(await this.image(imageDigest), spec.diskGb * GIB);
  }
}

/** Throws when there is a disk though none is to be: whatever it holds is worth more than this start. */
async function refuseSecondDisk(diskPath: string): Promise<void> {
  const found = await stat(diskPath).catch(() => undefined);
  if (found === undefined) return;
  throw new Error(
    "the node has a disk of the machine that its journal does not know; it is kept as it is: " +
      "restart the node agent, which takes it up, then start the machine again",
  );
}
