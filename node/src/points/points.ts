/**
 * Branch points of this node: instants of machines from which clones start.
 *
 * Owns the points directory. In the directory of a point, named by its id:
 *
 *     point.json     what the point is; written last
 *     disk.qcow2     the disk as it was, which machines' disks are on top of: a layer
 *     memory, memory-base   as those of a suspended machine; absent: only the disk was kept
 *
 * Always:
 * - A point exists from when its `point.json` has its name until that is removed. Its files are not written
 *   meanwhile.
 * - A layer is removed only when no point and no machine names it: a machine's journal names its layers
 *   before its disk is on top of them.
 *
 * A crash leaves a directory without `point.json`. It is removed unless a machine's disk is on top of it.
 */
import { chmod, chown, mkdir, open, readdir, readFile, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { messageOf } from "@flotilla/base/errors";
import type { Log } from "@flotilla/base/log";
import { syncToDisk } from "../host/sync-to-disk.ts";

const DESCRIPTION_NAME = "point.json";
/** Its ending tells the driver that it is not an image's file. */
const LAYER_NAME = "disk.qcow2";
const VERSION = 1;
const POINT_ID = /^point-[0-9a-f]{32}$/;
const READ_ONLY = 0o444;

/** The memory of a point, as a machine's journal names that of a suspended machine. */
export interface PointMemory {
  readonly memoryId: string;
  readonly format: string;
  readonly cpus: number;
  readonly memoryMb: number;
  readonly guestBootId: string;
  readonly workload: readonly string[] | null;
}

export interface Point {
  readonly pointId: string;
  readonly machineId: string;
  /** Epoch milliseconds. */
  readonly madeAt: number;
  readonly imageDigest: string;
  readonly rootName: string | null;
  readonly diskGb: number;
  /** The points whose disks its own is on top of, nearest first. */
  readonly layers: readonly string[];
  /** null: only the disk was kept. */
  readonly memory: PointMemory | null;
  readonly bytes: number;
  readonly memoryBytes: number;
  readonly pausedMs: number;
}

export const isPointId = (id: string): boolean => POINT_ID.test(id);

export class Points {
  readonly #directory: string;
  readonly #log: Log;
  readonly #points = new Map<string, Point>();
  /** Being made now. */
  readonly #unfinished = new Set<string>();

  constructor(directory: string, log: Log) {
    this.#directory = directory;
    this.#log = log;
  }

  /** Reads what earlier agents have made. */
  async open(): Promise<void> {
    await mkdir(this.#directory, { recursive: true, mode: 0o700 });
    for (const pointId of await this.#names()) {
      const text = await readFile(join(this.directoryOf(pointId), DESCRIPTION_NAME), "utf8").catch(() => null);
      if (text === null) continue;
      try {
        this.#points.set(pointId, parsePoint(text, pointId));
      } catch (error) {
        // Its layer is kept as long as machines name it.
        this.#log.error({ point: pointId, reason: messageOf(error) }, "a point cannot be used");
      }
    }
  }

  find(pointId: string): Point | undefined {
    return this.#points.get(pointId);
  }

  list(): readonly Point[] {
    return [...this.#points.values()];
  }

  directoryOf(pointId: string): string {
    return join(this.#directory, pointId);
  }

  layerPathOf(pointId: string): string {
    return join(this.directoryOf(pointId), LAYER_NAME);
  }

  /** The directory of a new point, empty. It is not collected until `add` or `abandon`. */
  async begin(pointId: string): Promise<string> {
    if (this.#points.has(pointId) || this.#unfinished.has(pointId)) throw new Error(`${pointId} is being made already`);
    this.#unfinished.add(pointId);
    const directory = this.directoryOf(pointId);
    await rm(directory, { recursive: true, force: true });
    await mkdir(directory, { recursive: true, mode: 0o700 });
    return directory;
  }

  /** The point exists when this resolves. Every user whose disk is on top of its layers can read them. */
  async add(point: Point): Promise<void> {
    const { pointId, layers } = point;
    const directory = this.directoryOf(pointId);
    for (const layer of [pointId, ...layers]) {
      const path = this.layerPathOf(layer);
      if (process.getuid?.() === 0) await chown(path, 0, 0);
      await chmod(path, READ_ONLY);
    }
    await syncToDisk(this.layerPathOf(pointId));
    const unfinished = join(directory, `${DESCRIPTION_NAME}.new`);
    await using file = await open(unfinished, "w", 0o600);
    await file.writeFile(JSON.stringify({ version: VERSION, ...point }));
    await file.datasync();
    await rename(unfinished, join(directory, DESCRIPTION_NAME));
    await syncToDisk(directory);
    await syncToDisk(this.#directory);
    this.#points.set(pointId, point);
    this.#unfinished.delete(pointId);
  }

  /** The point was not made. Its directory is collected, unless a machine's disk is on top of its layer. */
  abandon(pointId: string): void {
    this.#unfinished.delete(pointId);
  }

  /** The point does not exist any more; also when it is unknown. Its files are collected. */
  async release(pointId: string): Promise<void> {
    this.#points.delete(pointId);
    await rm(join(this.directoryOf(pointId), DESCRIPTION_NAME), { force: true });
  }

  /**
   * Removes the directories that no point and no machine needs, and of one that only machines need all but
   * the layer. `layersOf`: what machines name now. Resolves with how many directories it removed.
   */
  async collect(layersOf: () => Iterable<string>): Promise<number> {
    let removed = 0;
    for (const pointId of await this.#names()) {
      const isNeeded = this.#points.has(pointId) || this.#unfinished.has(pointId);
      const named = new Set([...layersOf(), ...this.list().flatMap(({ layers }) => layers)]);
      if (isNeeded) continue;
      if (named.has(pointId)) {
        await this.#keepLayer(pointId);
        continue;
      }
      await rm(this.directoryOf(pointId), { recursive: true, force: true });
      removed += 1;
    }
    return removed;
  }

  /** What a point has left that was released, or was not finished. */
  async #keepLayer(pointId: string): Promise<void> {
    const directory = this.directoryOf(pointId);
    for (const name of await readdir(directory))
      if (name !== LAYER_NAME) await rm(join(directory, name), { recursive: true, force: true });
  }

  async #names(): Promise<readonly string[]> {
    return (await readdir(this.#directory).catch(() => [])).filter(isPointId);
  }
}

function parsePoint(text: string, pointId: string): Point {
  const { version, ...point } = JSON.parse(text) as Partial<Point> & { readonly version?: unknown };
  if (version !== VERSION) throw new Error(`its description has version ${String(version)}`);
  if (point.pointId !== pointId || !Array.isArray(point.layers)) throw new Error("its description is not its own");
  return point as Point;
}
