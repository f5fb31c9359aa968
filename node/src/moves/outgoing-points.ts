/**
 * Points of this node as they leave for another one, on which clones start: what they are, and the blocks of
 * their files.
 *
 * Owns the directory `flat` in the directory of a point, with its disk in one file without the layers below.
 *
 * Always: files of a point do not change, so any of them may be read at any time, from any byte on. A crash
 * leaves the directory `flat`, which is made again or goes with the point.
 */
import { join } from "node:path";
import type { OutgoingPoint } from "@flotilla/contract/link/points";
import { GIB } from "../disks/disks.ts";
import { readBlocks } from "../images/blocks.ts";
import type { RootFile, UnpackedImage } from "../images/images.ts";
import { flatten } from "../machines/flat-disk.ts";
import type { MachineDeps } from "../machines/machine-deps.ts";
import { memoryBasePathOf, memoryPathOf } from "../machines/paths.ts";
import type { Point } from "../points/points.ts";
import { allocated, movedImage } from "./outgoing.ts";

/** What copies of points need of a node. */
export type PointDeps = Pick<MachineDeps, "disks" | "images" | "memoryBases" | "points">;

/** The point is not on this node. */
export class UnknownBranchPoint extends Error {}

export class OutgoingPoints {
  readonly #deps: PointDeps;
  readonly #flat = new WeakMap<Point, Promise<string>>();

  constructor(deps: PointDeps) {
    this.#deps = deps;
  }

  /** With the hashes of the files that its disk and its memory are based on. */
  async describe(pointId: string, signal: AbortSignal): Promise<OutgoingPoint> {
    const point = this.#find(pointId);
    const { images } = this.#deps;
    const { machineId, madeAt, pausedMs, diskGb, memory } = point;
    const { image, root } = await this.#base(point);
    const size = memory === null ? null : { cpus: memory.cpus, memoryMb: memory.memoryMb };
    return {
      facts: { machineId, madeAt, pausedMs, diskGb, size },
      image: movedImage(image),
      root: await images.describeRoot(root, signal),
      files: [{ name: "disk", bytes: await allocated(await this.#diskPath(point)) }],
      memory: await this.#memory(point, signal),
    };
  }

  /** The blocks of a file from a byte on. */
  async blocks(pointId: string, name: string, from: number): Promise<AsyncIterable<Buffer>> {
    const point = this.#find(pointId);
    const directory = this.#deps.points.directoryOf(pointId);
    switch (name) {
      case "disk":
        return readBlocks(await this.#diskPath(point), from);
      case "root":
        return readBlocks((await this.#base(point)).root.rootPath, from);
      case "memory":
        return readBlocks(memoryPathOf(directory), from);
      case "memory-base":
        return readBlocks(memoryBasePathOf(directory), from);
      default:
        throw new UnknownBranchPoint(`${pointId} has no file ${name}`);
    }
  }

  #find(pointId: string): Point {
    const point = this.#deps.points.find(pointId);
    if (point === undefined) throw new UnknownBranchPoint(`${pointId} is not on this node`);
    return point;
  }

  async #base({ imageDigest, rootName, diskGb }: Point): Promise<{ image: UnpackedImage; root: RootFile }> {
    const { images } = this.#deps;
    const image = await images.findByDigest(imageDigest);
    if (image === undefined) throw new Error(`image ${imageDigest} is not on this node any more`);
    const root = rootName === null ? images.rootFor(image, diskGb * GIB) : images.rootNamed(image, rootName);
    return { image, root: await root };
  }

  async #memory({ pointId, madeAt, memory }: Point, signal: AbortSignal): Promise<OutgoingPoint["memory"]> {
    if (memory === null) return null;
    const { memoryId, format, guestBootId, workload } = memory;
    const directory = this.#deps.points.directoryOf(pointId);
    const bytes = await allocated(memoryPathOf(directory));
    const basePath = memoryBasePathOf(directory);
    const hasBase = (await allocated(basePath)) > 0;
    const base = hasBase ? await this.#deps.memoryBases.describe(basePath, { hasContent: true, signal }) : null;
    return { memoryId, format, suspendedAt: madeAt, guestBootId, workload: workload && [...workload], bytes, base };
  }

  /** The disk in one file. One on top of layers is made once. */
  #diskPath(point: Point): Promise<string> {
    const { points } = this.#deps;
    const { pointId, layers } = point;
    if (layers.length === 0) return Promise.resolve(points.layerPathOf(pointId));
    const making = this.#flat.get(point) ?? this.#makeFlat(point);
    this.#flat.set(point, making);
    making.catch(() => this.#flat.delete(point));
    return making;
  }

  async #makeFlat(point: Point): Promise<string> {
    const { disks, points } = this.#deps;
    const { pointId, layers } = point;
    const { root } = await this.#base(point);
    const directory = join(points.directoryOf(pointId), "flat");
    const layerPaths = layers.map((layer) => points.layerPathOf(layer));
    return await flatten(disks, { diskPath: points.layerPathOf(pointId), layerPaths, root, directory });
  }
}
