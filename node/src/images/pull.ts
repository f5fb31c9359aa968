/**
 * Pulls an image: reference → manifest for this architecture → config and layers → root file system →
 * catalog.
 *
 * Always:
 * - a pull ends with a complete image or with an Error that tells the machine's owner what to do;
 * - downloaded blobs stay for the next attempt until their image is unpacked;
 * - every byte used has a digest that leads back to the manifest. The registry alone decides which manifest a
 *   tag means; a manifest requested by digest is verified.
 *
 * Blobs are removed once the image exists: machines use the file system, and keeping both would double the
 * disk usage for the rare case of another image with the same layers.
 */
import { readFile } from "node:fs/promises";
import type { Clock, Timer } from "@flotilla/base/clock";
import { mapAtMost } from "@flotilla/base/concurrency";
import { messageOf } from "@flotilla/base/errors";
import type { Log } from "@flotilla/base/log";
import type { Reference } from "@flotilla/contract/reference";
import type { BlobStore } from "./blobs.ts";
import type { Catalog } from "./catalog.ts";
import { readCredentials } from "./credentials.ts";
import { ImageRefused, imageFaultIn } from "./image-refused.ts";
import type { UnpackedImage } from "./images.ts";
import { checkKind, shownName } from "./kind.ts";
import { choosePlatform, type Descriptor, type ImageConfig, parseConfig, parseManifest } from "./manifest.ts";
import type { PackagedDisk } from "./package-manifest.ts";
import { RegistryClient, type RegistryOptions } from "./registry.ts";
import { RegistryError } from "./registry-transport.ts";
import { SharedWork } from "./share.ts";
import { asDiskFull, DiskFull, watchSpace } from "./space.ts";
import { FairQueue } from "./fair-queue.ts";
import type { Progress, SpaceNeeded, ImageBuilder } from "./image-builder.ts";

export interface PullerOptions {
  readonly directory: string;
  readonly registry: RegistryOptions;
  readonly credentialsPath: string | null;
  readonly catalog: Catalog;
  readonly blobs: BlobStore;
  readonly builder: ImageBuilder;
  readonly makeRoom: (space: SpaceNeeded) => Promise<void>;
  readonly clock: Clock;
  readonly log: Log;
}

export interface PullRequest {
  readonly reference: Reference;
  readonly arch: string;
  /** null for the node's operator. */
  readonly tenantId: string | null;
  /** Whether it is to be a package. */
  readonly isPackage: boolean;
  readonly signal: AbortSignal;
  readonly report: (progress: Progress) => void;
}

interface Resolved {
  readonly digest: string;
  readonly config: Descriptor;
  readonly layers: readonly Descriptor[];
  readonly disk: PackagedDisk | null;
}

/** Concurrent pulls of one tenant; its other pulls wait. */
const PULLS_PER_OWNER = 4;
/**
 * Manifests of one tenant that are read at the same time, because each may take MANIFEST_BYTES_MAX of memory.
 */
const MANIFESTS_PER_OWNER = 8;
const CONCURRENT_LAYERS = 3;
const REPORT_PERIOD_MS = 250;

export class Puller {
  readonly #options: PullerOptions;
  /**
   * Keyed by tenant, architecture, source and digest, because two references may mean the same image. Tenants
   * do not share pulls: one with a slow registry would make the others wait.
   */
  readonly #images = new SharedWork<UnpackedImage, Progress>();
  readonly #queue = queueOf(PULLS_PER_OWNER);
  readonly #manifests = queueOf(MANIFESTS_PER_OWNER);

  constructor(options: PullerOptions) {
    this.#options = options;
  }

  /** Pulls the image and updates the reference. Throws an Error with a user-facing message. */
  async pull(request: PullRequest): Promise<UnpackedImage> {
    const { reference, arch, signal } = request;
    const { catalog, clock, log } = this.#options;
    const startedAt = clock.monotonic();
    try {
      const credentials = await readCredentials(this.#options.credentialsPath, log);
      using client = new RegistryClient(this.#options.registry, credentials);
      request.report({ kind: "progress", message: "asking the registry", doneBytes: 0, totalBytes: 0 });
      const resolved = await this.#manifests.run(ownerOf(request), signal, () => this.#resolve(client, request));
      if (!this.#needsNoDownload(resolved.digest, request)) await this.#buildShared(client, resolved, request);
      await catalog.setReference({ name: reference.name, arch, owner: request.tenantId }, resolved.digest);
      await catalog.touch(resolved.digest);
    } catch (error) {
      signal.throwIfAborted();
      log.warn({ reference: reference.name, arch, reason: logReason(error) }, "an image could not be pulled");
      throw withImageName(error, reference);
    }
    const image = catalog.find(reference.name, arch, request.tenantId);
    if (image === undefined) throw new Error(`image ${reference.name} was removed while it was pulled`);
    const durationMs = Math.round(clock.monotonic() - startedAt);
    log.info({ reference: reference.name, arch, digest: image.digest, durationMs }, "pulled an image");
    return image;
  }

  /**
   * Whether the image on this node can be used without a download. The registry has just served the tenant
   * the manifest, which is enough for an image of the same repository. For an image from another repository
   * the tenant must also have access to the layers: knowing the manifest of a private image does not grant
   * access to its content.
   */
  #needsNoDownload(digest: string, { reference, tenantId, arch, isPackage }: PullRequest): boolean {
    const { catalog } = this.#options;
    const present = catalog.findByDigest(digest);
    if (present === undefined) return false;
    checkPlatform(present, arch);
    checkKind(present.isPackage === true, isPackage);
    return tenantId === null || present.source === sourceOf(reference) || catalog.hasReference(tenantId, digest);
  }

  #buildShared(client: RegistryClient, resolved: Resolved, request: PullRequest): Promise<UnpackedImage> {
    this.#options.builder.checkFailed(resolved.digest);
    const owner = ownerOf(request);
    const key = `${owner} ${request.arch} ${sourceOf(request.reference)} ${resolved.digest}`;
    return this.#images.run(key, { signal: request.signal, onProgress: request.report }, (signal, report) =>
      this.#queue.run(owner, signal, () => this.#fetchAndBuild(client, resolved, { ...request, signal, report })),
    );
  }

  async #resolve(client: RegistryClient, { reference, arch, isPackage, signal }: PullRequest): Promise<Resolved> {
    let answer = await client.manifest(reference, reference.target, signal);
    let manifest = parseManifest(answer.bytes, answer.mediaType);
    // The specification allows lists of lists; no known registry serves more than two levels.
    for (let depth = 0; manifest.kind === "list"; depth += 1) {
      if (depth === 2) throw new Error("its manifest lists are nested too deeply");
      const entry = choosePlatform(manifest.entries, arch);
      answer = await client.manifest(reference, entry.digest, signal);
      manifest = parseManifest(answer.bytes, answer.mediaType);
    }
    const { config, layers, disk } = manifest;
    checkKind(disk !== null, isPackage);
    return { digest: answer.digest, config, layers, disk };
  }

  async #fetchAndBuild(client: RegistryClient, resolved: Resolved, request: PullRequest): Promise<UnpackedImage> {
    const layerBytes = resolved.layers.reduce((sum, layer) => sum + layer.size, 0);
    const digests = resolved.layers.map((layer) => layer.digest);
    // What an earlier pull has left counts already.
    const presentBytes = await this.#options.blobs.bytesOf(request.reference, digests);
    await this.#options.makeRoom(spaceOf(resolved, layerBytes, presentBytes));
    using watch = watchSpace(this.#options.directory, this.#options.clock, request.signal);
    const watched = { ...request, signal: watch.signal };
    try {
      const config = await this.#fetchConfig(client, resolved, watched);
      await using fetched = await this.#fetchLayers(client, resolved.layers, watched);
      const image = await this.#options.builder.build({
        digest: resolved.digest,
        owner: ownerOf(request),
        source: sourceOf(request.reference),
        config,
        layerPaths: resolved.layers.map((layer) => fetched.paths.get(layer.digest) ?? ""),
        disk: resolved.disk,
        layerBytes,
        signal: watch.signal,
        report: request.report,
      });
      fetched.isNeeded = false;
      return image;
    } catch (thrown) {
      const error: unknown = watch.signal.aborted ? watch.signal.reason : asDiskFull(thrown);
      if (error instanceof DiskFull) await this.#options.blobs.discard(request.reference, digests);
      throw error;
    }
  }

  async #fetchConfig(client: RegistryClient, resolved: Resolved, request: PullRequest): Promise<ImageConfig> {
    const { reference, signal, arch } = request;
    const blob = { reference, descriptor: resolved.config, source: client, signal, onBytes: () => undefined };
    const path = await this.#options.blobs.fetch(blob);
    const bytes = await readFile(path);
    await this.#options.blobs.release(path, { isNeeded: false });
    const config = parseConfig(bytes);
    checkPlatform(config, arch);
    return config;
  }

  /** Fetches CONCURRENT_LAYERS layers at a time, equal ones once. */
  async #fetchLayers(
    client: RegistryClient,
    layers: readonly Descriptor[],
    { reference, signal, report }: PullRequest,
  ): Promise<FetchedLayers> {
    using meter = new ProgressMeter(layers, report, this.#options.clock);
    const failure = new AbortController();
    const both = AbortSignal.any([signal, failure.signal]);
    const fetched = new FetchedLayers(this.#options.blobs);
    const distinct = [...new Map(layers.map((layer) => [layer.digest, layer])).values()];
    const fetchOne = async (layer: Descriptor): Promise<void> => {
      const { digest } = layer;
      const onBytes = (bytes: number): void => meter.advance(digest, bytes);
      const blob = { reference, descriptor: layer, source: client, signal: both, onBytes };
      fetched.paths.set(digest, await this.#options.blobs.fetch(blob));
    };
    try {
      // The first one that fails ends the others; all have closed their files before anything else happens.
      await mapAtMost(CONCURRENT_LAYERS, distinct, (layer) =>
        fetchOne(layer).catch((error: unknown) => {
          failure.abort(error);
          throw error;
        }),
      );
      both.throwIfAborted();
      return fetched;
    } catch {
      await fetched[Symbol.asyncDispose]();
      // The caller's cancellation takes precedence over the first layer that failed.
      throw signal.aborted ? signal.reason : failure.signal.reason;
    }
  }
}

/** Layers on the disk that this pull uses; disposing releases them. */
class FetchedLayers implements AsyncDisposable {
  readonly paths = new Map<string, string>();
  /** Whether another attempt would need them. */
  isNeeded = true;
  readonly #blobs: BlobStore;

  constructor(blobs: BlobStore) {
    this.#blobs = blobs;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const path of this.paths.values()) await this.#blobs.release(path, { isNeeded: this.isNeeded });
  }
}

/** Reports the sum over all layers, at most once per REPORT_PERIOD_MS. The last value is always reported. */
class ProgressMeter implements Disposable {
  readonly #sizes: ReadonlyMap<string, number>;
  readonly #done = new Map<string, number>();
  readonly #report: (progress: Progress) => void;
  readonly #clock: Clock;
  readonly #totalBytes: number;
  #pause: Timer | undefined;
  #isStale = false;

  constructor(layers: readonly Descriptor[], report: (progress: Progress) => void, clock: Clock) {
    this.#sizes = new Map(layers.map((layer) => [layer.digest, layer.size]));
    this.#report = report;
    this.#clock = clock;
    this.#totalBytes = [...this.#sizes.values()].reduce((sum, size) => sum + size, 0);
  }

  advance(digest: string, bytes: number): void {
    this.#done.set(digest, bytes);
    this.#isStale = true;
    if (this.#pause === undefined) this.#emit();
  }

  [Symbol.dispose](): void {
    this.#pause?.cancel();
    if (this.#isStale) this.#report(this.#progress());
  }

  #emit(): void {
    this.#isStale = false;
    this.#report(this.#progress());
    this.#pause = this.#clock.timer(REPORT_PERIOD_MS, () => {
      this.#pause = undefined;
      if (this.#isStale) this.#emit();
    });
  }

  #progress(): Progress {
    const doneBytes = [...this.#done.values()].reduce((sum, size) => sum + size, 0);
    const finished = [...this.#sizes].filter(([key, size]) => this.#done.get(key) === size).length;
    const ordinal = `layer ${Math.min(finished + 1, this.#sizes.size)} of ${this.#sizes.size}`;
    const percent = this.#totalBytes === 0 ? 100 : Math.floor((doneBytes / this.#totalBytes) * 100);
    return { kind: "progress", message: `pulling ${ordinal}, ${percent} %`, doneBytes, totalBytes: this.#totalBytes };
  }
}

/** An image without a list of platforms is for the one that its config names. */
function checkPlatform({ os, architecture }: Pick<ImageConfig, "os" | "architecture">, arch: string): void {
  if (architecture !== arch)
    throw new ImageRefused("image_wrong_platform", `it has no variant for linux/${arch}; it has ${os}/${architecture}`);
}

/** A lower bound. */
function spaceOf({ disk }: Resolved, layerBytes: number, presentBytes: number): SpaceNeeded {
  const plainBytes = disk?.usedBytes ?? layerBytes;
  // The blobs and the disk; of files the blobs, the plain layers and the tree, if nothing were compressed.
  const builtBytes = disk === null ? 2 * plainBytes : plainBytes;
  return { peakBytes: layerBytes + builtBytes - presentBytes, keptBytes: plainBytes - presentBytes };
}

const queueOf = (concurrencyPerOwnerMax: number): FairQueue =>
  new FairQueue({ concurrencyMax: Number.POSITIVE_INFINITY, concurrencyPerOwnerMax });

const ownerOf = ({ tenantId }: PullRequest): string => tenantId ?? "";

const sourceOf = ({ registry, repository }: Reference): string => `${registry}/${repository}`;

/** The reason for the node's log, with details that tenants do not see. */
function logReason(error: unknown): string {
  return error instanceof RegistryError ? error.detail : messageOf(error);
}

/** Prefixes the message with the image's name. */
function withImageName(error: unknown, reference: Reference): Error {
  const isMissing = error instanceof RegistryError && error.kind === "missing";
  const what = isMissing ? "does not exist" : "cannot be pulled";
  const text = `${shownName(reference)} ${what}: ${messageOf(error)}`;
  if (error instanceof DiskFull) return DiskFull.saying(text);
  const fault = error instanceof RegistryError ? error.fault : imageFaultIn(error);
  return fault === null ? new Error(text) : new ImageRefused(fault, text);
}
