/**
 * Pulls an image: reference → manifest for this architecture → config and layers → root file system → catalog.
 *
 * Always: a pull ends with a whole image or with an Error whose text tells a machine's owner what to do; blobs that came
 * in stay for the next try until their image is unpacked. Nothing is taken from the registry but bytes whose digest
 * leads back to the manifest; the manifest under a tag is the registry's word, the one under a digest is verified.
 *
 * Blobs are removed once the image is there: the file system is what machines use, and keeping both would double the
 * disk for the rare case of another image with the same layers.
 */
import { readFile } from "node:fs/promises";
import type { Clock, Timer } from "@flotilla/base/clock";
import { messageOf } from "@flotilla/base/errors";
import type { Log } from "@flotilla/base/log";
import type { Reference } from "@flotilla/contract/reference";
import type { BlobStore } from "./blobs.ts";
import type { Catalog } from "./catalog.ts";
import { readCredentials } from "./credentials.ts";
import { ImageRefused, imageFaultIn } from "./image-refused.ts";
import type { UnpackedImage } from "./images.ts";
import { choosePlatform, type Descriptor, type ImageConfig, parseConfig, parseManifest } from "./manifest.ts";
import { RegistryClient, type RegistryOptions } from "./registry.ts";
import { RegistryError } from "./registry-transport.ts";
import { SharedWork } from "./share.ts";
import { asDiskFull, DiskFull, watchSpace } from "./space.ts";
import { FairTurns } from "./turns.ts";
import type { Progress, Room, Workshop } from "./workshop.ts";

export interface PullerOptions {
  readonly directory: string;
  readonly registry: RegistryOptions;
  readonly credentialsPath: string | null;
  readonly catalog: Catalog;
  readonly blobs: BlobStore;
  readonly workshop: Workshop;
  readonly makeRoom: (room: Room) => Promise<void>;
  readonly clock: Clock;
  readonly log: Log;
}

export interface PullRequest {
  readonly reference: Reference;
  readonly arch: string;
  /** null: the node's operator. */
  readonly tenantId: string | null;
  readonly signal: AbortSignal;
  readonly report: (progress: Progress) => void;
}

interface Resolved {
  readonly digest: string;
  readonly config: Descriptor;
  readonly layers: readonly Descriptor[];
}

/** Pulls of one tenant at a time; its others wait. */
const PULLS_PER_OWNER = 4;
const LAYERS_AT_A_TIME = 3;
const REPORT_PERIOD_MS = 250;

export class Puller {
  readonly #options: PullerOptions;
  /**
   * By tenant, source and digest: two references may mean the same image. Tenants do not share it: one whose registry is
   * slow would keep the others waiting.
   */
  readonly #images = new SharedWork<UnpackedImage, Progress>();
  readonly #turns = new FairTurns({ atOnce: Number.POSITIVE_INFINITY, atOncePerOwner: PULLS_PER_OWNER });

  constructor(options: PullerOptions) {
    this.#options = options;
  }

  /** Pulls and points the reference to what came. Throws an Error for people. */
  async pull(request: PullRequest): Promise<UnpackedImage> {
    const { reference, arch, signal } = request;
    const { catalog, clock, log } = this.#options;
    const startedAt = clock.monotonic();
    try {
      const credentials = await readCredentials(this.#options.credentialsPath, log);
      using client = new RegistryClient(this.#options.registry, credentials);
      request.report({ kind: "progress", message: "asking the registry", doneBytes: 0, totalBytes: 0 });
      const resolved = await this.#resolve(client, request);
      if (!this.#isAtHand(resolved.digest, request)) await this.#share(client, resolved, request);
      await catalog.point({ name: reference.name, arch, owner: request.tenantId }, resolved.digest);
      await catalog.touch(resolved.digest);
    } catch (error) {
      signal.throwIfAborted();
      log.warn({ reference: reference.name, arch, reason: reasonOf(error) }, "an image could not be pulled");
      throw explained(error, reference);
    }
    const image = catalog.find(reference.name, arch, request.tenantId);
    if (image === undefined) throw new Error(`image ${reference.name} was removed while it was pulled`);
    const durationMs = Math.round(clock.monotonic() - startedAt);
    log.info({ reference: reference.name, arch, digest: image.digest, durationMs }, "pulled an image");
    return image;
  }

  /**
   * Whether the image need not be fetched. The registry has just given the tenant the manifest; that is enough for an
   * image of the same repository. From another one the tenant has to show that it has the layers too: the manifest of
   * somebody's private image is no secret that gives its content away.
   */
  #isAtHand(digest: string, { reference, tenantId }: PullRequest): boolean {
    const { catalog } = this.#options;
    const present = catalog.findByDigest(digest);
    if (present === undefined) return false;
    return tenantId === null || present.source === sourceOf(reference) || catalog.hasReference(tenantId, digest);
  }

  #share(client: RegistryClient, resolved: Resolved, request: PullRequest): Promise<UnpackedImage> {
    this.#options.workshop.checkFailed(resolved.digest);
    const owner = ownerOf(request);
    const key = `${owner} ${sourceOf(request.reference)} ${resolved.digest}`;
    return this.#images.run(key, { signal: request.signal, onProgress: request.report }, (signal, report) =>
      this.#turns.run(owner, signal, () => this.#fetchAndBuild(client, resolved, { ...request, signal, report })),
    );
  }

  async #resolve(client: RegistryClient, { reference, arch, signal }: PullRequest): Promise<Resolved> {
    let answer = await client.manifest(reference, reference.target, signal);
    let manifest = parseManifest(answer.bytes, answer.mediaType);
    // Lists of lists exist in the specification; two levels are more than anybody serves.
    for (let depth = 0; manifest.kind === "list"; depth += 1) {
      if (depth === 2) throw new Error("its manifest lists are nested too deeply");
      const entry = choosePlatform(manifest.entries, arch);
      answer = await client.manifest(reference, entry.digest, signal);
      manifest = parseManifest(answer.bytes, answer.mediaType);
    }
    return { digest: answer.digest, config: manifest.config, layers: manifest.layers };
  }

  async #fetchAndBuild(client: RegistryClient, resolved: Resolved, request: PullRequest): Promise<UnpackedImage> {
    const layerBytes = resolved.layers.reduce((sum, layer) => sum + layer.size, 0);
    // At least: the blobs, the plain layers and the tree, if nothing were compressed.
    await this.#options.makeRoom({ peakBytes: 3 * layerBytes, keptBytes: layerBytes });
    using watch = watchSpace(this.#options.directory, this.#options.clock, request.signal);
    const watched = { ...request, signal: watch.signal };
    try {
      const config = await this.#fetchConfig(client, resolved, watched);
      await using held = await this.#fetchLayers(client, resolved.layers, watched);
      const image = await this.#options.workshop.build({
        digest: resolved.digest,
        owner: ownerOf(request),
        source: sourceOf(request.reference),
        config,
        layerPaths: resolved.layers.map((layer) => held.paths.get(layer.digest) ?? ""),
        layerBytes,
        signal: watch.signal,
        report: request.report,
      });
      held.isNeeded = false;
      return image;
    } catch (thrown) {
      const error: unknown = watch.signal.aborted ? watch.signal.reason : asDiskFull(thrown);
      const digests = resolved.layers.map((layer) => layer.digest);
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
    if (config.architecture !== arch)
      throw new ImageRefused(
        "image_wrong_platform",
        `it has nothing for linux/${arch}; it has ${config.os}/${config.architecture}`,
      );
    return config;
  }

  /** Three layers at a time; equal ones once. */
  async #fetchLayers(
    client: RegistryClient,
    layers: readonly Descriptor[],
    { reference, signal, report }: PullRequest,
  ): Promise<HeldLayers> {
    using meter = new Meter(layers, report, this.#options.clock);
    const giveUp = new AbortController();
    const both = AbortSignal.any([signal, giveUp.signal]);
    const held = new HeldLayers(this.#options.blobs);
    const waiting = [...new Map(layers.map((layer) => [layer.digest, layer])).values()];
    const work = async (): Promise<void> => {
      for (let layer = waiting.shift(); layer !== undefined; layer = waiting.shift()) {
        const { digest } = layer;
        const onBytes = (bytes: number): void => meter.advance(digest, bytes);
        const blob = { reference, descriptor: layer, source: client, signal: both, onBytes };
        held.paths.set(digest, await this.#options.blobs.fetch(blob));
      }
    };
    const workers = Array.from({ length: LAYERS_AT_A_TIME }, () =>
      work().catch((error: unknown) => {
        if (!giveUp.signal.aborted) giveUp.abort(error);
      }),
    );
    // All of them have let go of their files before anything else happens.
    await Promise.all(workers);
    if (!both.aborted) return held;
    await held[Symbol.asyncDispose]();
    // The signal itself was first, or the first layer that failed.
    throw signal.aborted ? signal.reason : giveUp.signal.reason;
  }
}

/** Layers on the disk that this pull uses; released when disposed. */
class HeldLayers implements AsyncDisposable {
  readonly paths = new Map<string, string>();
  /** Whether another try would want them. */
  isNeeded = true;
  readonly #blobs: BlobStore;

  constructor(blobs: BlobStore) {
    this.#blobs = blobs;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const path of this.paths.values()) await this.#blobs.release(path, { isNeeded: this.isNeeded });
  }
}

/** Adds up what the layers have and says so, not more often than people can read; the last word is never swallowed. */
class Meter implements Disposable {
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
    if (this.#pause === undefined) this.#say();
  }

  [Symbol.dispose](): void {
    this.#pause?.cancel();
    if (this.#isStale) this.#report(this.#progress());
  }

  #say(): void {
    this.#isStale = false;
    this.#report(this.#progress());
    this.#pause = this.#clock.timer(REPORT_PERIOD_MS, () => {
      this.#pause = undefined;
      if (this.#isStale) this.#say();
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

const ownerOf = ({ tenantId }: PullRequest): string => tenantId ?? "";

const sourceOf = ({ registry, repository }: Reference): string => `${registry}/${repository}`;

/** With what tenants are not told. */
function reasonOf(error: unknown): string {
  return error instanceof RegistryError ? error.detail : messageOf(error);
}

/** Puts the image's name in front of whatever went wrong. */
function explained(error: unknown, reference: Reference): Error {
  const isMissing = error instanceof RegistryError && error.kind === "missing";
  const what = isMissing ? "does not exist" : "cannot be pulled";
  const text = `image ${reference.name} ${what}: ${messageOf(error)}`;
  const fault = error instanceof RegistryError ? error.fault : imageFaultIn(error);
  return fault === null ? new Error(text) : new ImageRefused(fault, text);
}
