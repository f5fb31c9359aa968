/**
 * The images of a node, assembled from the parts in this folder.
 *
 * Owns the images directory: `unpacked` and `references` (catalog.ts), `blobs` (blobs.ts), `work`
 * (image-builder.ts).
 *
 * Always:
 * - `ensure` of an image that the node has contacts no registry (container engines call this "if not
 *   present"), so machines start while the registry is down and a tag means the same from one start to the
 *   next; only `isRefresh` resolves a tag again;
 * - "has" is per tenant: an image that only other tenants pulled is requested from the registry again, and
 *   used without a second download if the registry serves its manifest to this tenant;
 * - local images are available to every tenant;
 * - images that a machine's disk depends on are never removed, nor are local ones: no registry has them;
 * - what pulls that failed have left counts as images do, and is removed with them.
 *
 * Opening removes what a crash left. One process per directory.
 */
import { mkdir, readdir, stat } from "node:fs/promises";
import { dirname, join } from "node:path";
import type { Clock } from "@flotilla/base/clock";
import { ownMessageOf } from "@flotilla/base/errors";
import type { Log } from "@flotilla/base/log";
import type { NodeImage } from "@flotilla/contract/link/link";
import type { MovedImage, MovedRoot } from "@flotilla/contract/link/moves";
import { parseReference, type Reference } from "@flotilla/contract/reference";
import { RegistryList } from "@flotilla/contract/registries";
import { openArchive, PLAIN_CONFIGURATION } from "./archive.ts";
import { BlobStore } from "./blobs.ts";
import { Catalog } from "./catalog.ts";
import { type Resolve, systemResolve } from "@flotilla/base/checked-request";
import { nameResolver } from "@flotilla/base/name-resolver";
import { type Candidate, planCollection } from "./collect.ts";
import { ImageRefused } from "./image-refused.ts";
import type { EnsureOptions, HeldRoot, Images, RootFile, UnpackedImage } from "./images.ts";
import { checkKind, diskTooSmall } from "./kind.ts";
import { makeBusyboxTar } from "./local.ts";
import { type AddedRoot, MovedRoots } from "./moved-roots.ts";
import type { CallServer } from "./own-registry.ts";
import { Puller } from "./pull.ts";
import type { RegistryOptions } from "./registry.ts";
import { SharedWork } from "./share.ts";
import { ensureSmallerRoot } from "./smaller-root.ts";
import { asDiskFull, DiskFull, readFreeBytes, watchSpace } from "./space.ts";
import { type Progress, type SpaceNeeded, ImageBuilder } from "./image-builder.ts";

export interface ImagesOptions {
  /** Owned by this module; created with mode 0700 if missing. */
  readonly directory: string;
  /** The program of node/native/jail.c, which confines what reads images. */
  readonly launcher: string;
  /** Written by set-up: its `images/busybox` becomes `local/busybox`. */
  readonly cacheDirectory: string;
  /** The node's own: `amd64` or `arm64`. */
  readonly arch: string;
  /** The setting allowed-registries; null for the well-known ones. */
  readonly allowedRegistries: readonly string[] | null;
  readonly mirrors: ReadonlyMap<string, string>;
  readonly insecureRegistries: readonly string[];
  readonly credentialsPath: string | null;
  /** Bytes that unpacked images may use before unused ones are removed. */
  readonly cacheBytesMax: number;
  /** Digests that a machine's disk depends on now. */
  readonly digestsInUse: () => Promise<ReadonlySet<string>>;
  readonly clock: Clock;
  readonly log: Log;
  /** A registry connection that is silent for this long is closed; default 30 s. */
  readonly stallTimeoutMs?: number;
  /** Delay before the first retry, doubling with each; default 500 ms. */
  readonly retryDelayMs?: number;
  /** Reaches the fleet's own registry. Default: it cannot be reached. */
  readonly callServer?: CallServer;
  /** Resolves the names of registries; default the system's resolver. */
  readonly resolve?: Resolve;
}

export interface Collected {
  readonly removed: number;
  readonly freedBytes: number;
}

/** What set-up's busybox becomes. */
const BUSYBOX = "local/busybox:latest";
/** Machines whose disk is full are paused until this has made room. */
const COLLECT_MS = 5_000;

/** An image, or what a pull left. */
type Leaving = Candidate & ({ readonly digest: string } | { readonly digest: null; readonly path: string });

/** What the node agent uses besides `Images`. */
export interface NodeImages extends Images, AsyncDisposable {
  /** Builds `local/busybox` from the busybox in the cache directory; undefined when set-up put none there. */
  ensureLocalBusybox(): Promise<UnpackedImage | undefined>;
  /** Collects every few seconds from now on, until this is disposed. */
  keepCollecting(): void;
  /**
   * Removes leftovers of pulls that are old. Then, least recently used first, these and images that may go,
   * while they use more than their limit or of the disk's reserve.
   */
  collect(): Promise<Collected>;
}

/** Opens the image directory and removes what a crash left in it. */
export async function openImages(options: ImagesOptions): Promise<NodeImages> {
  await mkdir(options.directory, { recursive: true, mode: 0o700 });
  const images = new ImageStore(options);
  await images.open();
  return images;
}

/** Names without a dot are of the operator's network, with the search domains of its host. */
function registryResolver(): Resolve {
  const resolve = nameResolver();
  return (hostname) => (hostname.includes(".") ? resolve(hostname) : systemResolve(hostname));
}

function registryOptions(options: ImagesOptions, retryDelayMs: number): RegistryOptions {
  const { allowedRegistries: allowed, mirrors, insecureRegistries: insecure, clock } = options;
  const rules = { allowed, mirrors, insecure };
  const resolve = options.resolve ?? registryResolver();
  const stallTimeoutMs = options.stallTimeoutMs ?? 30_000;
  const callServer = options.callServer ?? null;
  return { rules, registries: new RegistryList(rules), resolve, callServer, clock, stallTimeoutMs, retryDelayMs };
}

class ImageStore implements NodeImages {
  readonly #options: ImagesOptions;
  readonly #catalog: Catalog;
  readonly #blobs: BlobStore;
  readonly #builder: ImageBuilder;
  readonly #puller: Puller;
  readonly #pulls = new SharedWork<UnpackedImage, Progress>();
  readonly #moved: MovedRoots;
  readonly #shrinking = new SharedWork<RootFile, Progress>();
  readonly #closing = new AbortController();
  #lastCollection: Promise<unknown> = Promise.resolve();

  constructor(options: ImagesOptions) {
    const { directory, clock, log } = options;
    const retryDelayMs = options.retryDelayMs ?? 500;
    const makeRoom = (space: SpaceNeeded): Promise<void> => this.#makeRoom(space);
    this.#options = options;
    this.#catalog = new Catalog({ directory, clock, log });
    this.#blobs = new BlobStore({ directory: join(directory, "blobs"), clock, retryDelayMs });
    this.#builder = new ImageBuilder({
      directory: join(directory, "work"),
      catalog: this.#catalog,
      clock,
      launcher: options.launcher,
      imageBytesMax: options.cacheBytesMax,
      makeRoom,
    });
    this.#moved = new MovedRoots({ catalog: this.#catalog, builder: this.#builder });
    this.#puller = new Puller({
      directory,
      registry: registryOptions(options, retryDelayMs),
      credentialsPath: options.credentialsPath,
      catalog: this.#catalog,
      blobs: this.#blobs,
      builder: this.#builder,
      makeRoom,
      clock,
      log,
    });
  }

  async open(): Promise<void> {
    await this.#builder.open();
    await this.#blobs.open();
    await this.#blobs.removeOld();
    await this.#catalog.open();
  }

  async ensure(text: string, options: EnsureOptions): Promise<UnpackedImage> {
    const reference = parseReference(text);
    const arch = options.arch ?? this.#options.arch;
    const tenantId = reference.isLocal ? null : options.tenantId;
    const present = this.#catalog.find(reference.name, arch, tenantId);
    const isPackage = options.isPackage ?? false;
    if (present !== undefined && (reference.isLocal || options.isRefresh !== true)) {
      // A local one is a package if its archive was.
      if (!reference.isLocal) checkKind(present.isPackage === true, isPackage, reference);
      await this.#catalog.touch(present.digest);
      return present;
    }
    if (reference.isLocal) throw this.#missingLocal(reference, arch);
    return this.#pulls.run(`${tenantId ?? ""} ${arch} ${isPackage} ${reference.name}`, options, (signal, report) =>
      this.#puller.pull({ reference, arch, tenantId, isPackage, signal, report }),
    );
  }

  async find(text: string, arch: string | null, tenantId: string | null = null): Promise<UnpackedImage | undefined> {
    const { name, isLocal } = parseReference(text);
    return this.#catalog.find(name, arch ?? this.#options.arch, isLocal ? null : tenantId);
  }

  async findByDigest(digest: string): Promise<UnpackedImage | undefined> {
    return this.#catalog.findByDigest(digest);
  }

  watch(onChange: () => void): void {
    this.#catalog.watch(onChange);
  }

  async rootFor(image: UnpackedImage, diskBytes: number): Promise<RootFile> {
    if (diskBytes >= image.rootBytes) return image;
    if (image.isPackage === true) throw diskTooSmall(image);
    const { clock, launcher } = this.#options;
    return this.#shrinking.run(`${image.digest} ${diskBytes}`, {}, (signal) =>
      ensureSmallerRoot({ image, bytes: diskBytes, builder: this.#builder, clock, launcher, signal }),
    );
  }

  rootNamed(image: UnpackedImage, name: string): Promise<RootFile> {
    return this.#moved.named(image, name);
  }

  describeRoot(root: RootFile, signal: AbortSignal): Promise<MovedRoot> {
    return this.#moved.describe(root, signal);
  }

  findRoot(image: MovedImage, root: MovedRoot): Promise<HeldRoot | null> {
    return this.#moved.find(image, root);
  }

  addRoot(request: AddedRoot): Promise<HeldRoot> {
    return this.#moved.add(request);
  }

  async list(tenantId: string | null = null): Promise<readonly NodeImage[]> {
    return this.#catalog
      .list(tenantId)
      .map(
        ({ rootPath: _path, rootBytes: _bytes, configuration: _how, source: _source, arrivedAs: _as, ...image }) =>
          image,
      );
  }

  async importArchive(path: string, text: string): Promise<UnpackedImage> {
    const reference = parseReference(text);
    if (!reference.isLocal) throw new Error(`an imported image is named local/<name>[:tag], not ${reference.name}`);
    const signal = this.#closing.signal;
    await using work = await this.#builder.begin();
    using watch = watchSpace(work.path, this.#options.clock, signal);
    try {
      const archive = await openArchive({
        path,
        work: work.path,
        arch: this.#options.arch,
        bytesMax: this.#options.cacheBytesMax,
        signal: watch.signal,
        clock: this.#options.clock,
        launcher: this.#options.launcher,
        configuration: PLAIN_CONFIGURATION,
      });
      if (this.#catalog.findByDigest(archive.digest) === undefined)
        await this.#builder.build({
          ...archive,
          owner: "",
          source: `local/${reference.repository}`,
          layerBytes: 0,
          signal: watch.signal,
          report: () => undefined,
        });
      const arch = archive.config.architecture;
      await this.#catalog.setReference({ name: reference.name, arch, owner: null }, archive.digest);
      await this.#catalog.touch(archive.digest);
      this.#options.log.info({ reference: reference.name, arch, digest: archive.digest }, "imported an image");
      return this.#catalog.findByDigest(archive.digest, reference.name) ?? this.#throwMissing(reference);
    } catch (thrown) {
      const error: unknown = watch.signal.aborted ? watch.signal.reason : asDiskFull(thrown);
      const reason = ownMessageOf(error);
      const text = `image ${reference.name} cannot be imported: ${reason}`;
      throw error instanceof DiskFull ? DiskFull.saying(text) : new Error(text);
    }
  }

  async removeLocal(text: string): Promise<void> {
    const { name, isLocal } = parseReference(text);
    if (!isLocal) throw new Error(`${name} is not a local image, and is removed by itself when room is needed`);
    await this.#collecting(async () => {
      const digests = await this.#catalog.removeReferences(name);
      const named = this.#catalog.namedDigests();
      const unnamed = this.#catalog.images().filter(({ digest }) => digests.has(digest) && !named.has(digest));
      return this.#remove(await this.#leaving(Number.POSITIVE_INFINITY, unnamed));
    });
  }

  async ensureLocalBusybox(): Promise<UnpackedImage | undefined> {
    await using work = await this.#builder.begin();
    const tar = await makeBusyboxTar(join(this.#options.cacheDirectory, "images", "busybox"), work.path);
    return tar === undefined ? undefined : await this.importArchive(tar, BUSYBOX);
  }

  keepCollecting(): void {
    const { clock, log } = this.#options;
    const { signal } = this.#closing;
    const keep = async (): Promise<void> => {
      while (!signal.aborted) {
        await this.collect().catch((error: unknown) => log.warn({ error }, "unused images could not be removed"));
        await clock.sleep(COLLECT_MS, signal);
      }
    };
    void keep();
  }

  async collect(): Promise<Collected> {
    return this.#collecting(async () => {
      await this.#blobs.removeOld();
      const nameless = await this.#leaving(Number.POSITIVE_INFINITY, this.#catalog.namelessLocal());
      if (nameless.length > 0) return this.#remove(nameless);
      const shortBytes = await this.#shortBytes({ peakBytes: 0, keptBytes: 0 });
      if (shortBytes <= 0) return { removed: 0, freedBytes: 0 };
      return this.#remove(await this.#leaving(shortBytes, await this.#candidates()));
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#closing.abort(new Error("the node agent shuts down"));
    await this.#pulls.stop();
  }

  async #makeRoom(space: SpaceNeeded): Promise<void> {
    if ((await this.#shortBytes(space)) <= 0) return;
    const stillShort = await this.#collecting(async () => {
      const shortBytes = await this.#shortBytes(space);
      const leaving = await this.#leaving(shortBytes, await this.#candidates());
      // No image is removed for one that does not fit anyway.
      const lackingBytes = shortBytes - (await this.#bytesOnDisk(leaving));
      if (lackingBytes > 0) return lackingBytes;
      await this.#remove(leaving);
      return await this.#shortBytes(space);
    });
    if (stillShort <= 0) return;
    const megabytes = Math.ceil(stillShort / 1024 ** 2);
    throw new DiskFull(`${megabytes} MB are missing, on the disk itself or within the limit for images`);
  }

  /** How many bytes must be freed before this much more fits; zero or less when none must. */
  async #shortBytes({ peakBytes, keptBytes }: SpaceNeeded): Promise<number> {
    const cached = (await this.#candidates()).reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
    const overLimit = cached + keptBytes - this.#options.cacheBytesMax;
    return Math.max(overLimit, peakBytes - (await readFreeBytes(this.#options.directory)));
  }

  /** One after the other: two at once would choose the same images. */
  #collecting<T>(work: () => Promise<T>): Promise<T> {
    const done = this.#lastCollection.then(work);
    this.#lastCollection = done.catch(() => undefined);
    return done;
  }

  async #candidates(): Promise<readonly Leaving[]> {
    const leftovers = await this.#blobs.leftovers();
    return [...this.#catalog.images(), ...leftovers.map((leftover) => ({ ...leftover, digest: null }))];
  }

  /** The candidates to remove, with when they were last used until now. */
  async #leaving(bytesToFree: number, candidates: readonly Leaving[]): Promise<readonly Leaving[]> {
    const inUse = new Set([...(await this.#options.digestsInUse()), ...this.#catalog.localDigests()]);
    const now = this.#options.clock.now();
    return planCollection(candidates, { inUse, bytesToFree, now }).map((candidate) => ({ ...candidate }));
  }

  /**
   * What removing them frees: also the file systems for smaller disks, and those that came from other nodes.
   */
  async #bytesOnDisk(leaving: readonly Leaving[]): Promise<number> {
    let bytes = 0;
    for (const { digest, sizeBytes } of leaving) {
      const image = digest === null ? undefined : this.#catalog.findByDigest(digest);
      if (image !== undefined) bytes += Math.max(sizeBytes, await bytesIn(dirname(image.rootPath)));
      else if (digest === null) bytes += sizeBytes;
    }
    return bytes;
  }

  async #remove(leaving: readonly Leaving[]): Promise<Collected> {
    let [removed, freedBytes] = [0, 0];
    for (const candidate of leaving) {
      if (!(await this.#removeOne(candidate))) continue;
      removed += 1;
      freedBytes += candidate.sizeBytes;
    }
    if (removed > 0)
      this.#options.log.info({ removed, freedBytes }, "removed unused images, or what pulls of images have left");
    return { removed, freedBytes };
  }

  /** false: it is used by now, because removing the ones before takes time. */
  async #removeOne(leaving: Leaving): Promise<boolean> {
    if (leaving.digest === null) return await this.#blobs.removeLeftover(leaving.path);
    const { digest, lastUsedAt } = leaving;
    if ((await this.#options.digestsInUse()).has(digest) || this.#catalog.lastUsedAt(digest) !== lastUsedAt)
      return false;
    await this.#discard(digest);
    return true;
  }

  async #discard(digest: string): Promise<void> {
    const trash = this.#builder.trashPath();
    await this.#catalog.remove(digest, trash);
    await this.#builder.discard(trash);
  }

  #missingLocal(reference: Reference, arch: string): Error {
    const others = this.#catalog.architecturesOf(reference.name);
    if (others.length > 0)
      return new ImageRefused(
        "image_wrong_platform",
        `image ${reference.name} is on this node for ${others.join(", ")}, not for ${arch}`,
      );
    const how =
      reference.name === BUSYBOX
        ? "the node makes it when its agent starts"
        : "import it with `flotilla image import` or build it with `flotilla image make-local`";
    const text = `image ${reference.name} is not on this node, and local images are never pulled; ${how}`;
    return new ImageRefused("image_not_found", text);
  }

  #throwMissing(reference: Reference): never {
    throw new Error(`${reference.name} was removed while it was imported`);
  }
}

/** What the files of a directory have on the disk; those that are removed meanwhile have nothing. */
async function bytesIn(directory: string): Promise<number> {
  let bytes = 0;
  for (const name of await readdir(directory).catch(() => []))
    bytes += ((await stat(join(directory, name)).catch(() => null))?.blocks ?? 0) * 512;
  return bytes;
}
