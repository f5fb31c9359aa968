/**
 * Exports machines: reads the disk of one at rest, and pushes it as a package to the fleet's registry.
 *
 * Owns a directory below the agent's temporary files for each export, which the next agent empties.
 *
 * Always:
 * - A start is not held up: nothing is locked. An export whose machine has changed meanwhile pushes no
 *   manifest, so there is no package of half a change.
 * - One export of a machine is under way at a time; the others wait.
 * - The manifest is pushed after everything it names. An interrupted export leaves blobs without a manifest,
 *   which a repetition uses, and the registry removes.
 */
import { createHash, randomBytes } from "node:crypto";
import { mkdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { Clock } from "@flotilla/base/clock";
import { mapAtMost } from "@flotilla/base/concurrency";
import { messageOf } from "@flotilla/base/errors";
import type { Log } from "@flotilla/base/log";
import type { ExportFault, ExportLine, ExportRequest } from "@flotilla/contract/link/packages";
import { diskBytes } from "../disks/disks.ts";
import { UnpackBudget } from "../images/blobs.ts";
import { ConfinedFailure } from "../images/confine.ts";
import { cellsPerPack, DISK_BLOCK_BYTES, packsOf } from "../images/disk-records.ts";
import { FairQueue } from "../images/fair-queue.ts";
import type { ImageConfiguration } from "../images/images.ts";
import type { CallServer } from "../images/own-registry.ts";
import { type PackageLayer, renderPackageConfig, renderPackageManifest } from "../images/package-manifest.ts";
import { asDiskFull, DiskFull, watchSpace } from "../images/space.ts";
import { identityOf } from "../machines/disk-changes.ts";
import type { Fleet } from "../machines/fleet.ts";
import type { Machine } from "../machines/machine.ts";
import type { MachineDeps } from "../machines/machine-deps.ts";
import type { SupervisedMachine } from "../machines/node-machine.ts";
import { diskPathOf } from "../machines/paths.ts";
import { DiskReader, UnreadableDisk } from "./disk-reader.ts";
import { makeLayer } from "./make-layer.ts";
import { Pusher, type PushOptions } from "./push.ts";
import { PushRefused, UnknownBlobs } from "./registry-answer.ts";
import { type ExportRefusal, refusalOf } from "./rest.ts";

export type ExportProgress = Extract<ExportLine, { kind: "progress" }>;
export type Exported = Extract<ExportLine, { kind: "done" }>;

/** The machine was not exported. The message is for its owner. */
export class ExportFailed extends Error {
  /** null: a repetition may succeed. */
  readonly code: ExportFault | null;

  constructor(code: ExportFault | null, message: string) {
    super(message);
    this.code = code;
  }
}

export interface ExportsOptions {
  readonly fleet: Pick<Fleet, "find">;
  readonly deps: Pick<MachineDeps, "disks" | "points">;
  /** null: the node has no server. */
  readonly callServer: CallServer | null;
  readonly temporaryDirectory: string;
  readonly arch: "amd64" | "arm64";
  readonly clock: Clock;
  readonly log: Log;
  /** How many cells of a disk are copied at a time; absent: as there is room for. */
  readonly windowCells?: number;
  readonly push?: Pick<PushOptions, "retryDelayMs" | "silenceMs">;
}

export interface ExportOptions {
  readonly onProgress: (progress: ExportProgress) => void;
  readonly signal: AbortSignal;
}

/** Compressing and hashing take a processor each. */
const QUEUE = { concurrencyMax: 2, concurrencyPerOwnerMax: 1 } as const;
/** While one layer is made, the ones before it are on their way. */
const LAYERS_AT_ONCE = 8;
const REPORT_PERIOD_MS = 250;
const MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json";
const REPETITIONS_MAX = 2;

export class Exports {
  readonly #options: ExportsOptions;
  readonly #queue = new FairQueue(QUEUE);

  constructor(options: ExportsOptions) {
    this.#options = options;
  }

  /** Rejects with ExportFailed, or the signal's reason. */
  async export(machineId: string, request: ExportRequest, { onProgress, signal }: ExportOptions): Promise<Exported> {
    await restOf(this.#find(machineId));
    onProgress({ kind: "progress", message: "waiting for other exports", doneBytes: 0, totalBytes: 0 });
    return await this.#queue.run(machineId, signal, () => this.#export(machineId, request, { onProgress, signal }));
  }

  #find(machineId: string): SupervisedMachine {
    const found = this.#options.fleet.find(machineId);
    if (found === undefined || found.known === null)
      throw new ExportFailed("not_found", `machine ${machineId} is not on this node`);
    return found;
  }

  async #export(machineId: string, request: ExportRequest, { onProgress, signal }: ExportOptions): Promise<Exported> {
    const { temporaryDirectory, clock, log } = this.#options;
    const found = this.#find(machineId);
    const rest = await restOf(found);
    const directory = join(temporaryDirectory, `export-${randomBytes(8).toString("hex")}`);
    await mkdir(directory, { mode: 0o700 });
    using watch = watchSpace(directory, clock, signal);
    const startedAt = clock.monotonic();
    try {
      const work = new Export({ ...this.#options, found, rest, request, directory, onProgress, signal: watch.signal });
      const exported = await work.run();
      const durationMs = Math.round(clock.monotonic() - startedAt);
      log.info({ machineId, repository: request.repository, ...exported, durationMs }, "exported a machine");
      return exported;
    } catch (error) {
      signal.throwIfAborted();
      log.warn({ machineId, repository: request.repository, reason: messageOf(error) }, "a machine was not exported");
      throw asFailure(watch.signal.aborted ? watch.signal.reason : error);
    } finally {
      await rm(directory, { recursive: true, force: true });
    }
  }
}

/** A machine at rest, and its state then. */
interface Rest {
  readonly machine: Machine;
  readonly generation: number;
  readonly identity: string;
}

async function restOf(found: SupervisedMachine): Promise<Rest> {
  const { journal, leaving, directory } = found.known;
  const machine = found.atRest();
  const identity = await identityOf(diskPathOf(directory));
  const refusal = refusalOf({
    isAtRest: machine !== null,
    isSuspended: (journal.memory ?? null) !== null,
    isLeaving: leaving.isUnderWay || leaving.watched !== null,
    hasDisk: identity !== null && journal.imageDigest !== null,
  });
  if (refusal !== null || machine === null || identity === null) throw failed(refusal ?? NOT_AT_REST);
  return { machine, generation: journal.generation, identity };
}

const NOT_AT_REST: ExportRefusal = { code: "not_stopped", reason: "the machine is not stopped: stop it first" };
const failed = ({ code, reason }: ExportRefusal): ExportFailed => new ExportFailed(code, reason);

function asFailure(error: unknown): unknown {
  if (error instanceof ExportFailed) return error;
  const known = asDiskFull(error);
  if (known instanceof DiskFull) return new ExportFailed("no_space", known.message);
  if (error instanceof PushRefused) return new ExportFailed("refused", error.message);
  if (error instanceof ConfinedFailure)
    return new ExportFailed("unreadable", `the machine's disk cannot be read: ${error.detail}`);
  if (error instanceof UnreadableDisk)
    return new ExportFailed("unreadable", `the machine's disk cannot be read: ${error.message}`);
  return new ExportFailed(null, messageOf(error));
}

interface ExportParts extends ExportsOptions, ExportOptions {
  readonly found: SupervisedMachine;
  readonly rest: Rest;
  readonly request: ExportRequest;
  readonly directory: string;
}

interface Sent extends PackageLayer {
  readonly isSent: boolean;
  readonly plainBytes: number;
  readonly dataBytes: number;
}

/** One export while it is under way. */
class Export {
  readonly #parts: ExportParts;
  readonly #pusher: Pusher;
  #making: Promise<unknown> = Promise.resolve();
  #doneBytes = 0;
  #reportedAt = Number.NEGATIVE_INFINITY;

  constructor(parts: ExportParts) {
    this.#parts = parts;
    const { callServer, request, clock, signal } = parts;
    if (callServer === null) throw new ExportFailed(null, "the node has no server");
    this.#pusher = new Pusher({ ...parts.push, callServer, repository: request.repository, clock, signal });
  }

  async run(): Promise<Exported> {
    const { rest, request, arch, deps, directory, signal } = this.#parts;
    const { journal } = rest.machine;
    const { machine } = rest;
    const root = await machine.disk.root(journal.spec, journal);
    const bytes = diskBytes(machine.requiredSpec().diskGb, root.rootBytes);
    const size = Math.ceil(bytes / DISK_BLOCK_BYTES) * DISK_BLOCK_BYTES;
    const layerPaths = (journal.layers ?? []).map((layer) => deps.points.layerPathOf(layer));
    const chain = { diskPath: diskPathOf(machine.directory), layerPaths, root };
    this.#report("reading the disk", 0);
    const reading = { ...chain, disks: deps.disks, diskBytes: bytes, directory: join(directory, "disk"), signal };
    const reader = await DiskReader.open(reading, this.#parts.windowCells);
    const cells = await reader.usedCells();
    const perPack = cellsPerPack(cells);
    const packs = packsOf(cells, perPack);
    const totalBytes = cells.length * 2 ** 20;
    const layers = await mapAtMost(LAYERS_AT_ONCE, packs, async (pack) => {
      const sent = await this.#layer(reader, pack, perPack);
      this.#doneBytes += sent.dataBytes;
      this.#report("sending the disk", totalBytes);
      return sent;
    });
    await checkProportion(layers);
    const image = await machine.disk.image(journal.imageDigest);
    const { configuration } = image;
    const facts = {
      ...{ diskBytes: size, usedBytes: layers.reduce((sum, layer) => sum + layer.dataBytes, 0) },
      ...{ architecture: request.architecture ?? arch, machineId: journal.machineId },
      image: request.image && { ...request.image, digest: request.image.digest ?? image.arrivedAs ?? image.digest },
    };
    const { ports, labels } = request;
    const settings = { configuration: changed(configuration, request.configuration), ports, labels };
    const config = renderPackageConfig(facts, settings, layers);
    const described = { digest: digestOf(config), size: config.byteLength };
    const manifest = renderPackageManifest(facts, described, layers);
    const remake = (digest: string): Promise<void> => this.#again(digest, { reader, packs, perPack, layers, config });
    await this.#put(manifest, { digests: [described.digest, ...layers.map(({ digest }) => digest)], remake });
    const sentLayers = layers.filter(({ isSent }) => isSent);
    return {
      ...{ kind: "done", digest: digestOf(manifest), sizeBytes: sizeOf(layers), sentBytes: sizeOf(sentLayers) },
      ...{ layers: layers.length, sentLayers: sentLayers.length, platforms: [`linux/${facts.architecture}`] },
    };
  }

  /** Makes the layers one after the other, each while earlier ones are sent. */
  async #layer(reader: DiskReader, pack: number, perPack: number, isSent = false): Promise<Sent> {
    const { directory, signal } = this.#parts;
    const path = join(directory, `layer-${pack}-${randomBytes(4).toString("hex")}`);
    try {
      const made = await this.#inTurn(async () => {
        await this.#requireRest();
        return await makeLayer(reader.records(pack * perPack, (pack + 1) * perPack), path, signal);
      });
      return { ...made, isSent: await this.#pusher.blob({ ...made, path }, { isSent }) };
    } finally {
      await rm(path, { force: true });
    }
  }

  async #inTurn<T>(work: () => Promise<T>): Promise<T> {
    const done = this.#making.then(work);
    this.#making = done.catch(() => undefined);
    return await done;
  }

  /** Sends a blob once more that the registry has lost since. */
  async #again(
    digest: string,
    all: {
      readonly reader: DiskReader;
      readonly packs: readonly number[];
      readonly perPack: number;
      readonly layers: readonly Sent[];
      readonly config: Buffer;
    },
  ): Promise<void> {
    if (digest === digestOf(all.config)) return await this.#config(all.config);
    const at = all.layers.findIndex((layer) => layer.digest === digest);
    const made = await this.#layer(all.reader, all.packs[at] ?? 0, all.perPack, true);
    if (made.digest !== digest) throw new ExportFailed("started", CHANGED);
  }

  async #config(config: Buffer): Promise<void> {
    const path = join(this.#parts.directory, "config");
    await writeFile(path, config, { mode: 0o600 });
    await this.#pusher.blob({ digest: digestOf(config), size: config.byteLength, path });
  }

  async #put(
    manifest: Buffer,
    { digests, remake }: { readonly digests: readonly string[]; readonly remake: (digest: string) => Promise<void> },
  ): Promise<void> {
    const target = this.#parts.request.tag ?? digestOf(manifest);
    const [config = ""] = digests;
    await remake(config);
    for (let repetitions = 0; ; repetitions += 1) {
      await this.#requireRest();
      try {
        return await this.#pusher.manifest(manifest, MANIFEST_TYPE, target);
      } catch (error) {
        if (!(error instanceof UnknownBlobs) || repetitions === REPETITIONS_MAX) throw error;
        const named = error.digests.filter((digest) => digests.includes(digest));
        for (const digest of new Set(named.length > 0 ? named : digests)) await remake(digest);
      }
    }
  }

  /** Rejects when the machine is not as it was when its disk was first read. */
  async #requireRest(): Promise<void> {
    const { found, rest } = this.#parts;
    const { journal, directory } = found.known;
    const isSame = found.atRest() !== null && journal.generation === rest.generation;
    if (isSame && (await identityOf(diskPathOf(directory))) === rest.identity) return;
    throw new ExportFailed(isSame ? null : "started", CHANGED);
  }

  #report(message: string, totalBytes: number): void {
    const now = this.#parts.clock.monotonic();
    if (now - this.#reportedAt < REPORT_PERIOD_MS) return;
    this.#reportedAt = now;
    this.#parts.onProgress({ kind: "progress", message, doneBytes: this.#doneBytes, totalBytes });
  }
}

const CHANGED = "the machine was started or changed while its disk was read: stop it, and export it again";

/** What no node would accept is not pushed: the limits of images are those of packages. */
async function checkProportion(layers: readonly Sent[]): Promise<void> {
  const budget = new UnpackBudget();
  for (const { digest, size } of layers) budget.begin(digest, size);
  try {
    for (const { plainBytes } of layers) budget.add(plainBytes);
  } catch (error) {
    throw new ExportFailed("unreadable", `the disk cannot be a package: ${messageOf(error)}`);
  }
}

/** The configuration of the image, with what replaces it. Pure. */
function changed(image: ImageConfiguration, by: ExportRequest["configuration"]): ImageConfiguration {
  const names = new Set(Object.keys(by.env ?? {}));
  const kept = image.env.filter((line) => !names.has(line.slice(0, line.indexOf("="))));
  const added = Object.entries(by.env ?? {})
    .toSorted(([a], [b]) => (a < b ? -1 : 1))
    .map(([name, value]) => `${name}=${value}`);
  return {
    env: [...kept, ...added],
    workdir: by.workdir ?? image.workdir,
    user: by.user ?? image.user,
    entrypoint: by.entrypoint ?? image.entrypoint,
    command: by.command ?? image.command,
  };
}

const sizeOf = (layers: readonly PackageLayer[]): number => layers.reduce((sum, { size }) => sum + size, 0);

const digestOf = (bytes: Buffer): string => `sha256:${createHash("sha256").update(bytes).digest("hex")}`;
