/**
 * The images of a node: what is asked of them from outside, put together from the parts in this folder.
 *
 * Owns the whole images directory: `unpacked` and `references` (catalog.ts), `blobs` (blobs.ts), `work` (workshop.ts).
 *
 * Always: `ensure` of an image that the node has asks nobody (container engines call it "if not present"), so machines
 * start when the registry is down and a tag means the same from one start to the next; only `isRefresh` asks what a tag
 * means now. "Has" is of the tenant that asks: what only others have fetched is asked for like what nobody has, and used
 * without a second download when the registry agrees. Local images are everybody's. Images that a machine's disk depends on are never removed.
 *
 * Opening sweeps what a crash left. One process per directory.
 */
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import type { Clock } from "@flotilla/base/clock";
import { ownMessageOf } from "@flotilla/base/errors";
import type { Log } from "@flotilla/base/log";
import type { NodeImage } from "@flotilla/contract/link";
import { parseReference, type Reference } from "@flotilla/contract/reference";
import { RegistryList } from "@flotilla/contract/registries";
import { openArchive, PLAIN_CONFIGURATION } from "./archive.ts";
import { BlobStore } from "./blobs.ts";
import { Catalog } from "./catalog.ts";
import { type Resolve, systemResolve } from "./checked-request.ts";
import { planCollection } from "./collect.ts";
import { ImageRefused } from "./image-refused.ts";
import type { EnsureOptions, Images, RootFile, UnpackedImage } from "./images.ts";
import { makeBusyboxTar } from "./local.ts";
import { Puller } from "./pull.ts";
import type { RegistryOptions } from "./registry.ts";
import { SharedWork } from "./share.ts";
import { ensureSmallerRoot } from "./smaller-root.ts";
import { asDiskFull, DiskFull, readFreeBytes, watchSpace } from "./space.ts";
import { type Progress, type Room, Workshop } from "./workshop.ts";

export interface ImagesOptions {
  /** Owned by this module alone; made if missing, 0700. */
  readonly directory: string;
  /** What set-up made: `images/busybox` in it becomes `local/busybox`. */
  readonly cacheDirectory: string;
  /** The node's own: `amd64` or `arm64`. */
  readonly arch: string;
  /** As the setting allowed-registries has it; null: the well-known ones. */
  readonly allowedRegistries: readonly string[] | null;
  readonly mirrors: ReadonlyMap<string, string>;
  readonly insecureRegistries: readonly string[];
  readonly credentialsPath: string | null;
  /** What unpacked images may take before unused ones are removed. */
  readonly cacheBytesMax: number;
  /** Digests that some machine's disk depends on, now. */
  readonly digestsInUse: () => Promise<ReadonlySet<string>>;
  readonly clock: Clock;
  readonly log: Log;
  /** Silence after which a registry's connection is given up; 30 s. */
  readonly stallTimeoutMs?: number;
  /** Before the first retry, doubling with each; 500 ms. */
  readonly retryDelayMs?: number;
  /** How registries' names are resolved; as the system does. */
  readonly resolve?: Resolve;
}

/** What the agent itself calls besides `Images`. */
export interface NodeImages extends Images, AsyncDisposable {
  /** Makes `local/busybox` from the busybox of the cache directory; undefined when set-up put none there. */
  ensureLocalBusybox(): Promise<UnpackedImage | undefined>;
}

/** Opens the image directory and sweeps what a crash left in it. */
export async function openImages(options: ImagesOptions): Promise<NodeImages> {
  await mkdir(options.directory, { recursive: true, mode: 0o700 });
  const images = new ImageStore(options);
  await images.open();
  return images;
}

function registryOptions(options: ImagesOptions, retryDelayMs: number): RegistryOptions {
  const { allowedRegistries: allowed, mirrors, insecureRegistries: insecure, clock } = options;
  const rules = { allowed, mirrors, insecure };
  const resolve = options.resolve ?? systemResolve;
  const stallTimeoutMs = options.stallTimeoutMs ?? 30_000;
  return { rules, registries: new RegistryList(rules), resolve, clock, stallTimeoutMs, retryDelayMs };
}

class ImageStore implements NodeImages {
  readonly #options: ImagesOptions;
  readonly #catalog: Catalog;
  readonly #blobs: BlobStore;
  readonly #workshop: Workshop;
  readonly #puller: Puller;
  readonly #pulls = new SharedWork<UnpackedImage, Progress>();
  readonly #shrinking = new SharedWork<RootFile, Progress>();
  readonly #closed = new AbortController();

  constructor(options: ImagesOptions) {
    const { directory, clock, log } = options;
    const retryDelayMs = options.retryDelayMs ?? 500;
    const makeRoom = (room: Room): Promise<void> => this.#makeRoom(room);
    this.#options = options;
    this.#catalog = new Catalog({ directory, clock, log });
    this.#blobs = new BlobStore({ directory: join(directory, "blobs"), clock, retryDelayMs });
    this.#workshop = new Workshop({
      directory: join(directory, "work"),
      catalog: this.#catalog,
      clock,
      imageBytesMax: options.cacheBytesMax,
      makeRoom,
    });
    this.#puller = new Puller({
      directory,
      registry: registryOptions(options, retryDelayMs),
      credentialsPath: options.credentialsPath,
      catalog: this.#catalog,
      blobs: this.#blobs,
      workshop: this.#workshop,
      makeRoom,
      clock,
      log,
    });
  }

  async open(): Promise<void> {
    await this.#workshop.open();
    await this.#blobs.open();
    await this.#catalog.open();
  }

  async ensure(text: string, options: EnsureOptions): Promise<UnpackedImage> {
    const reference = parseReference(text);
    const arch = options.arch ?? this.#options.arch;
    const tenantId = reference.isLocal ? null : options.tenantId;
    const present = this.#catalog.find(reference.name, arch, tenantId);
    if (present !== undefined && (reference.isLocal || options.isRefresh !== true)) {
      await this.#catalog.touch(present.digest);
      return present;
    }
    if (reference.isLocal) throw this.#missingLocal(reference, arch);
    return this.#pulls.run(`${tenantId ?? ""} ${arch} ${reference.name}`, options, (signal, report) =>
      this.#puller.pull({ reference, arch, tenantId, signal, report }),
    );
  }

  async find(text: string, arch: string | null, tenantId: string | null = null): Promise<UnpackedImage | undefined> {
    const { name, isLocal } = parseReference(text);
    return this.#catalog.find(name, arch ?? this.#options.arch, isLocal ? null : tenantId);
  }

  async findByDigest(digest: string): Promise<UnpackedImage | undefined> {
    return this.#catalog.findByDigest(digest);
  }

  rootFor(image: UnpackedImage, diskBytes: number): Promise<RootFile> {
    if (diskBytes >= image.rootBytes) return Promise.resolve(image);
    return this.#shrinking.run(`${image.digest} ${diskBytes}`, {}, (signal) =>
      ensureSmallerRoot({ image, bytes: diskBytes, workshop: this.#workshop, clock: this.#options.clock, signal }),
    );
  }

  async list(tenantId: string | null = null): Promise<readonly NodeImage[]> {
    const isShown = (image: UnpackedImage): boolean =>
      tenantId === null || image.tenantId === tenantId || image.reference.startsWith("local/");
    return this.#catalog
      .list()
      .filter(isShown)
      .map(({ rootPath: _path, rootBytes: _bytes, configuration: _how, source: _source, ...image }) => image);
  }

  async importArchive(path: string, text: string): Promise<UnpackedImage> {
    const reference = parseReference(text);
    if (!reference.isLocal) throw new Error(`an imported image is named local/<name>[:tag], not ${reference.name}`);
    const signal = this.#closed.signal;
    await using work = await this.#workshop.begin();
    using watch = watchSpace(work.path, this.#options.clock, signal);
    try {
      const archive = await openArchive({
        path,
        work: work.path,
        arch: this.#options.arch,
        bytesMax: this.#options.cacheBytesMax,
        signal: watch.signal,
        clock: this.#options.clock,
        configuration: PLAIN_CONFIGURATION,
      });
      if (this.#catalog.findByDigest(archive.digest) === undefined)
        await this.#workshop.build({
          ...archive,
          owner: "",
          source: `local/${reference.repository}`,
          layerBytes: 0,
          signal: watch.signal,
          report: () => undefined,
        });
      const arch = archive.config.architecture;
      await this.#catalog.point({ name: reference.name, arch, owner: null }, archive.digest);
      await this.#catalog.touch(archive.digest);
      this.#options.log.info({ reference: reference.name, arch, digest: archive.digest }, "imported an image");
      return this.#catalog.findByDigest(archive.digest, reference.name) ?? this.#throwMissing(reference);
    } catch (thrown) {
      const error: unknown = watch.signal.aborted ? watch.signal.reason : asDiskFull(thrown);
      const reason = ownMessageOf(error);
      throw new Error(`image ${reference.name} cannot be imported: ${reason}`);
    }
  }

  async ensureLocalBusybox(): Promise<UnpackedImage | undefined> {
    await using work = await this.#workshop.begin();
    const tar = await makeBusyboxTar(join(this.#options.cacheDirectory, "images", "busybox"), work.path);
    return tar === undefined ? undefined : await this.importArchive(tar, "local/busybox");
  }

  async remove(text: string): Promise<"removed" | "missing" | "in use"> {
    const { name } = parseReference(text);
    const digests = this.#catalog.digestsOf(name);
    if (digests.length === 0) return "missing";
    const leaving = digests.filter((digest) => !this.#catalog.isNamedOtherwise(digest, name));
    const inUse = await this.#options.digestsInUse();
    if (leaving.some((digest) => inUse.has(digest))) return "in use";
    await this.#catalog.forget(name);
    for (const digest of leaving) await this.#discard(digest);
    return "removed";
  }

  async collectGarbage(inUse: ReadonlySet<string>): Promise<{ readonly removed: number; readonly freedBytes: number }> {
    return this.#collect(inUse, await this.#shortBytes({ peakBytes: 0, keptBytes: 0 }));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#closed.abort(new Error("the node agent shuts down"));
    await this.#pulls.stop();
  }

  async #makeRoom(room: Room): Promise<void> {
    const shortBytes = await this.#shortBytes(room);
    if (shortBytes <= 0) return;
    await this.#collect(await this.#options.digestsInUse(), shortBytes);
    const stillShort = await this.#shortBytes(room);
    if (stillShort <= 0) return;
    const megabytes = Math.ceil(stillShort / 1024 ** 2);
    throw new DiskFull(`${megabytes} MB are missing, of the disk itself or of what images may take of it`);
  }

  /** How many bytes must go before this much more can come; zero or less when nothing must. */
  async #shortBytes({ peakBytes, keptBytes }: Room): Promise<number> {
    const cached = this.#catalog.images().reduce((sum, image) => sum + image.sizeBytes, 0);
    const overLimit = cached + keptBytes - this.#options.cacheBytesMax;
    return Math.max(overLimit, peakBytes - (await readFreeBytes(this.#options.directory)));
  }

  async #collect(
    inUse: ReadonlySet<string>,
    bytesToFree: number,
  ): Promise<{ readonly removed: number; readonly freedBytes: number }> {
    const now = this.#options.clock.now();
    const leaving = planCollection(this.#catalog.images(), { inUse, bytesToFree, now });
    for (const image of leaving) await this.#discard(image.digest);
    const freedBytes = leaving.reduce((sum, image) => sum + image.sizeBytes, 0);
    if (leaving.length > 0) this.#options.log.info({ removed: leaving.length, freedBytes }, "removed unused images");
    return { removed: leaving.length, freedBytes };
  }

  async #discard(digest: string): Promise<void> {
    const trash = this.#workshop.trashPath();
    await this.#catalog.withdraw(digest, trash);
    await this.#workshop.discard(trash);
  }

  #missingLocal(reference: Reference, arch: string): Error {
    const others = this.#catalog.architecturesOf(reference.name);
    if (others.length > 0)
      return new ImageRefused(
        "image_wrong_platform",
        `image ${reference.name} is on this node for ${others.join(", ")}, not for ${arch}`,
      );
    const how = "import it with `flotilla image import` or make it with `flotilla image make-local`";
    const text = `image ${reference.name} is not on this node, and local images are never pulled; ${how}`;
    return new ImageRefused("image_not_found", text);
  }

  #throwMissing(reference: Reference): never {
    throw new Error(`${reference.name} was removed while it was imported`);
  }
}
