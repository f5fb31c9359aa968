/**
 * Builds images from layers: plain tars → tree → ext4 in a file → an image in the catalog. The layers of a
 * package are parts of such a file already (packaged-disk.ts).
 *
 * Owns `<images>/work`, one directory per piece of work. Layers are decompressed and hashed here and stored
 * as an OCI layout of plain tars. Debian's `umoci` unpacks that (whiteouts, opaque directories, links,
 * owners, capabilities), and `mkfs.ext4 -d` makes the file without a mount. Both run confined (confine.ts).
 *
 * Always:
 * - a layer is unpacked only if its digest is the one in the config;
 * - the tree is never mounted, entered or executed;
 * - a layer that is out of proportion, too long a path and too deep a directory are refused before a program
 *   sees the layer; links can hide a path, so the tree is measured before a file system is made of it;
 * - only the finished file leaves the work directory, by rename.
 *
 * A crash leaves a work directory, which `open` removes.
 *
 * Why a flat file system instead of an overlay of layers: a machine's disk is a copy-on-write file on one
 * base, which must never change or need assembling. The price: a layer shared by two images is on the disk
 * twice.
 */
import { createHash, randomUUID } from "node:crypto";
import { chmod, lstat, mkdir, open, readdir, rename, rm, stat, truncate, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { Clock } from "@flotilla/base/clock";
import { messageOf } from "@flotilla/base/errors";
import { DISK_GB_DEFAULT } from "@flotilla/contract/limits";
import type { ImageProgress } from "@flotilla/contract/link/link";
import { runTool } from "../host/out-of-memory.ts";
import { decompress, UnpackBudget } from "./blobs.ts";
import type { Catalog } from "./catalog.ts";
import { type Capability, ConfinedFailure, type ConfinedRun, requireLeft, runConfined } from "./confine.ts";
import { CorruptData } from "./corrupt-data.ts";
import { FailedBuilds } from "./failed-builds.ts";
import type { UnpackedImage } from "./images.ts";
import { type ImageConfig, MANIFEST_TYPES, renderConfig, renderManifest } from "./manifest.ts";
import type { PackagedDisk } from "./package-manifest.ts";
import { writePackagedDisk } from "./packaged-disk.ts";
import { SharedWork } from "./share.ts";
import { asDiskFull, DiskFull, watchSpace } from "./space.ts";
import { ENTRY_LIMITS, nestedTooDeeply, pathTooLong, TarEntries } from "./tar-entries.ts";
import { FairQueue } from "./fair-queue.ts";

export type Progress = Extract<ImageProgress, { kind: "progress" }>;

export interface BuildRequest {
  readonly digest: string;
  /** The owner for fair queuing: a tenant, or `""` for the node's operator. */
  readonly owner: string;
  /** Registry and repository. */
  readonly source: string;
  readonly config: ImageConfig;
  /** Files that hold the layers, in order, compressed or not. */
  readonly layerPaths: readonly string[];
  /** The layers are parts of this disk; null: they are files. */
  readonly disk: PackagedDisk | null;
  /** Size of the layers as downloaded, for the progress. */
  readonly layerBytes: number;
  readonly signal: AbortSignal;
  readonly report: (progress: Progress) => void;
}

export interface SpaceNeeded {
  /** During the work. */
  readonly peakBytes: number;
  /** Afterwards. */
  readonly keptBytes: number;
}

export interface ImageBuilderOptions {
  /** `<images>/work`. */
  readonly directory: string;
  readonly catalog: Catalog;
  readonly clock: Clock;
  /** The program of node/native/jail.c. */
  readonly launcher: string;
  /** Size limit of an unpacked image. */
  readonly imageBytesMax: number;
  /** Frees disk space by removing unused images; throws DiskFull when it cannot. */
  readonly makeRoom: (space: SpaceNeeded) => Promise<void>;
}

/**
 * Disk and processor are the bottleneck: more concurrent builds would slow each down and raise the peak disk
 * usage.
 */
const BUILDS = { concurrencyMax: 2, concurrencyPerOwnerMax: 1 } as const;
/** Below the 15 minutes of silence after which the server considers a node's pull failed. */
const PROGRAM_TIMEOUT_MS = 10 * 60 * 1000;
/**
 * Processor seconds that each program may use: a base for any image, plus more for its bytes and its entries.
 */
const CPU_SECONDS = 120;
const BYTES_PER_CPU_SECOND = 50e6;
const ENTRIES_PER_CPU_SECOND = 2_500;
const UNPACK_CAPABILITIES: readonly Capability[] = ["chown", "dac_override", "fowner", "fsetid", "setfcap", "mknod"];
const UNPACK_ARGV = ["umoci", "raw", "unpack", "--image", "/files/layout:image", "/files/tree"];
/**
 * The first is of the unpacking tool. To the kernel a file without room for its attributes is a full disk.
 */
const NO_ROOM_FOR_ATTRIBUTES =
  /restore xattr metadata: .*: (?:no space left on device|argument list too long)$|Insufficient space to store extended attr/;
/** Files of every owner are read. */
const READ_CAPABILITIES: readonly Capability[] = ["dac_override"];
/** What the guest mounts or writes to. */
const GUEST_DIRECTORIES = [
  ["proc", 0o555],
  ["sys", 0o555],
  ["dev", 0o755],
  ["tmp", 0o1777],
  ["run", 0o755],
  ["etc", 0o755],
  ["workspace", 0o1777],
] as const;
/** One inode per this many bytes; a machine's disk keeps the density as it grows. */
const BYTES_PER_INODE = 16_384;
const BLOCK_BYTES = 4096;
/**
 * Given explicitly, so that the host's mke2fs.conf has no influence. `64bit` lets a machine's disk grow to 16
 * TiB and beyond. Linux 5.x and later support all of these.
 */
const EXT4_FEATURES =
  "none,has_journal,ext_attr,resize_inode,dir_index,filetype,extent,64bit,flex_bg,sparse_super,large_file,huge_file,dir_nlink,extra_isize,metadata_csum";
/** Enough for a disk of many GiB. In a sparse file an unused journal takes no space. */
const JOURNAL_MB = 64;
/**
 * Block groups per flex group, which keep their metadata together; the guest's disk grows by this many at a
 * time (guest/grow.c).
 */
const GROUPS_TOGETHER = 256;
const MKFS_COMMAND = `mkfs.ext4 -q -F -m 0 -b ${BLOCK_BYTES} -G ${GROUPS_TOGETHER} -I 256 -i ${BYTES_PER_INODE} -O ${EXT4_FEATURES} -J size=${JOURNAL_MB}`;
/**
 * Prezeroed: the file is new and sparse, so guests need not spend their first minutes zeroing inode tables.
 */
const MKFS_EXTENDED = "root_owner=0:0,lazy_itable_init=1,lazy_journal_init=1,assume_storage_prezeroed=1";
const TREE = "/files/tree";
/**
 * Prints the bytes of the content, then the number of files and directories, then `deep` and `long` if a
 * path is. $1 is one level more than are allowed, $2 a pattern of paths that are too long.
 */
const MEASURE_SCRIPT = `
set -e
du -s --apparent-size --block-size=1 ${TREE}
du -s --inodes ${TREE}
find ${TREE} -mindepth "$1" -printf 'deep\\n' -quit
find ${TREE} -path "$2" -printf 'long\\n' -quit
`;
const TOO_LONG = `${"?".repeat(TREE.length + "/".length + ENTRY_LIMITS.pathBytes)}?*`;

export class ImageBuilder {
  readonly #options: ImageBuilderOptions;
  readonly #queue = new FairQueue(BUILDS);
  /** By digest: an image may be pulled and imported at the same time. */
  readonly #builds = new SharedWork<UnpackedImage, Progress>();
  readonly #failed: FailedBuilds;

  constructor(options: ImageBuilderOptions) {
    this.#options = options;
    this.#failed = new FailedBuilds(options.clock);
  }

  /** Throws an Error with a user-facing message if the image failed to build a short time ago. */
  checkFailed(digest: string): void {
    this.#failed.check(digest);
  }

  /** Creates the directory and removes what a crash left in it. */
  async open(): Promise<void> {
    await mkdir(this.#options.directory, { recursive: true, mode: 0o700 });
    for (const name of await readdir(this.#options.directory)) await removeTree(join(this.#options.directory, name));
  }

  /** A directory for a piece of work; removed with its content when disposed. */
  async begin(): Promise<{ readonly path: string } & AsyncDisposable> {
    const path = join(this.#options.directory, randomUUID());
    await mkdir(path, { mode: 0o700 });
    return { path, [Symbol.asyncDispose]: () => removeTree(path) };
  }

  /** An unused name, for something to be removed. */
  trashPath(): string {
    return join(this.#options.directory, randomUUID());
  }

  /** Removes a directory below the builder's. */
  async discard(path: string): Promise<void> {
    await removeTree(path);
  }

  /**
   * Unpacks the layers, makes the file system and adds it to the catalog. Throws an Error with a user-facing
   * message.
   *
   * Each caller waits for its own turn and shares the work after that: a tenant that queues a well-known
   * image behind its other images does not delay other tenants that need it.
   */
  build(request: BuildRequest): Promise<UnpackedImage> {
    const { digest, owner, signal, report: onProgress } = request;
    return this.#queue.run(owner, signal, () =>
      this.#builds.run(digest, { signal, onProgress }, (shared, report) =>
        this.#buildOnce({ ...request, signal: shared, report }),
      ),
    );
  }

  async #buildOnce(request: BuildRequest): Promise<UnpackedImage> {
    request.signal.throwIfAborted();
    await using work = await this.begin();
    using watch = watchSpace(work.path, this.#options.clock, request.signal);
    try {
      return await this.#build({ ...request, signal: watch.signal }, work.path);
    } catch (error) {
      watch.signal.throwIfAborted();
      const known = asDiskFull(error);
      if (!(known instanceof DiskFull)) this.#failed.record(request.digest, messageOf(error));
      throw known;
    }
  }

  async #build(request: BuildRequest, work: string): Promise<UnpackedImage> {
    const { config, digest } = request;
    const present = this.#options.catalog.findByDigest(digest);
    if (present !== undefined) return present;
    const finished = join(work, "finished");
    await mkdir(finished);
    const root = join(finished, "root.ext4");
    const rootBytes =
      request.disk === null
        ? await this.#makeFromFiles(request, work, root)
        : await this.#makeFromDisk(request, request.disk, root);
    await this.#options.catalog.add(finished, {
      digest,
      source: request.source,
      architecture: config.architecture,
      os: config.os,
      layerCount: request.layerPaths.length,
      exposedPort: config.exposedPort,
      configuration: config.configuration,
      ...(request.disk !== null && { isPackage: true }),
      rootBytes,
      sizeBytes: (await stat(root)).blocks * 512,
    });
    const image = this.#options.catalog.findByDigest(digest);
    if (image === undefined) throw new Error("the image was removed while it was added to the catalog; try again");
    return image;
  }

  /** Writes the disk of a package to `root`. Returns its size. */
  async #makeFromDisk(request: BuildRequest, disk: PackagedDisk, root: string): Promise<number> {
    const { config, layerPaths, signal } = request;
    const { imageBytesMax, makeRoom } = this.#options;
    if (disk.usedBytes !== null && disk.usedBytes > imageBytesMax) throw this.#tooLarge();
    const usedBytes = disk.usedBytes ?? request.layerBytes;
    await makeRoom({ peakBytes: usedBytes, keptBytes: usedBytes });
    const report = (message: string): void => this.#report(request, message);
    const { diffIds } = config;
    await writePackagedDisk({ disk, diffIds, layerPaths, path: root, bytesMax: imageBytesMax, signal, report });
    return disk.diskBytes;
  }

  /** Unpacks layers of files, and makes a file system of them at `root`. Returns its size. */
  async #makeFromFiles(request: BuildRequest, work: string, root: string): Promise<number> {
    const { digest, signal } = request;
    const { layers, entries } = await this.#writeLayout(request, work);
    this.#report(request, "unpacking the layers");
    const plainBytes = layers.reduce((sum, layer) => sum + layer.size, 0);
    const treeBytes = plainBytes + entries.sparseBytes;
    if (treeBytes > this.#options.imageBytesMax) throw this.#tooLarge();
    // The tree, and the file made from it after the layers have been removed.
    await this.#options.makeRoom({ peakBytes: treeBytes + plainBytes, keptBytes: plainBytes });
    const files = join(work, "files");
    const cpuSeconds = cpuSecondsFor(treeBytes, entries.count);
    await this.#run({ directory: work, capabilities: UNPACK_CAPABILITIES, cpuSeconds, signal }, ...UNPACK_ARGV);
    await rm(join(files, "layout"), { recursive: true });
    await prepareTree(join(files, "tree"));
    this.#report(request, "making the root file system");
    const rootBytes = await this.#makeRoot(work, digest, { cpuSeconds, signal });
    await rename(join(files, "root.ext4"), root);
    return rootBytes;
  }

  /** Writes the layers as an OCI layout of plain tars. Each must match its digest in the config. */
  async #writeLayout(request: BuildRequest, work: string) {
    const { config, layerPaths, signal } = request;
    if (config.diffIds.length !== layerPaths.length)
      throw new Error(`it has ${layerPaths.length} layers, but its config lists ${config.diffIds.length}`);
    const layout = join(work, "files", "layout");
    const blobs = join(layout, "blobs", "sha256");
    await mkdir(blobs, { recursive: true });
    const layers: { digest: string; size: number }[] = [];
    const entries = new TarEntries();
    const inspect = (chunk: Buffer): void => entries.add(chunk);
    const budget = new UnpackBudget();
    for (const [index, source] of layerPaths.entries()) {
      const ordinal = `layer ${index + 1} of ${layerPaths.length}`;
      this.#report(request, `decompressing ${ordinal}`);
      const expected = config.diffIds[index] ?? "";
      const target = join(blobs, expected.slice("sha256:".length));
      const used = layers.reduce((sum, layer) => sum + layer.size, 0);
      const bytesMax = this.#options.imageBytesMax - used;
      const sparseBytes = entries.sparseBytes;
      entries.begin();
      const { digest, bytes } = await decompress({ source, target, bytesMax, signal, inspect, budget }).catch(
        (error: Error) => {
          throw error instanceof CorruptData ? new Error(`${ordinal} is corrupt: ${error.message}`) : error;
        },
      );
      if (digest !== expected)
        throw new Error(`${ordinal} is corrupt: its content does not match the digest in the config`);
      budget.add(entries.sparseBytes - sparseBytes);
      layers.push({ digest, size: bytes });
    }
    // A config that contains only the digests, so that the tool does not parse the untrusted original.
    const plain = { env: [], workdir: "/", user: "", entrypoint: [], command: [] };
    const configBlob = await writeBlob(blobs, renderConfig({ ...config, configuration: plain }));
    const manifest = await writeBlob(blobs, renderManifest(configBlob, layers));
    const entry = {
      mediaType: MANIFEST_TYPES.ociManifest,
      ...manifest,
      annotations: { "org.opencontainers.image.ref.name": "image" },
    };
    await writeFile(join(layout, "index.json"), JSON.stringify({ schemaVersion: 2, manifests: [entry] }));
    await writeFile(join(layout, "oci-layout"), JSON.stringify({ imageLayoutVersion: "1.0.0" }));
    return { layers, entries };
  }

  /**
   * Makes `files/root.ext4` from `files/tree` and removes the tree. Returns the size of the file system in
   * bytes.
   */
  async #makeRoot(
    work: string,
    digest: string,
    limits: { readonly cpuSeconds: number; readonly signal: AbortSignal },
  ): Promise<number> {
    const reading = { ...limits, directory: work, capabilities: READ_CAPABILITIES };
    const levels = String(ENTRY_LIMITS.levels + 1);
    const measured = (await this.#run(reading, "sh", "-c", MEASURE_SCRIPT, "sh", levels, TOO_LONG)).split("\n");
    const [content = 0, entries = 0] = measured.map((line) => Number.parseInt(line, 10));
    if (measured.includes("deep")) throw nestedTooDeeply(ENTRY_LIMITS);
    if (measured.includes("long")) throw pathTooLong(ENTRY_LIMITS);
    if (content > this.#options.imageBytesMax) throw this.#tooLarge();
    const root = join(work, "files", "root.ext4");
    const rootBytes = rootSize(content, entries);
    // Not what is there already: the unpacking tool could have left a link.
    await writeFile(root, "", { mode: 0o600, flag: "wx" });
    await truncate(root, rootBytes);
    const uuid = uuidOf(digest);
    await this.#run(
      reading,
      ...MKFS_COMMAND.split(" "),
      "-U",
      uuid,
      "-E",
      `hash_seed=${uuid},${MKFS_EXTENDED}`,
      "-d",
      TREE,
      "/files/root.ext4",
    );
    await requireLeft("file", root);
    await removeTree(join(work, "files", "tree"));
    return rootBytes;
  }

  #run(
    how: Pick<ConfinedRun, "directory" | "capabilities" | "signal"> & { readonly cpuSeconds: number },
    ...argv: readonly string[]
  ): Promise<string> {
    const { clock, launcher } = this.#options;
    const run = { ...how, argv, timeoutMs: PROGRAM_TIMEOUT_MS, clock, launcher };
    return runConfined(run).catch((error: unknown) => {
      throw error instanceof ConfinedFailure && NO_ROOM_FOR_ATTRIBUTES.test(error.detail)
        ? new Error("it has a file with more extended attributes than a file system can hold, which is about 4 KB")
        : error;
    });
  }

  #tooLarge(): Error {
    return new Error(`it unpacks to more than ${this.#options.imageBytesMax} bytes`);
  }

  #report(request: BuildRequest, message: string): void {
    request.report({ kind: "progress", message, doneBytes: request.layerBytes, totalBytes: request.layerBytes });
  }
}

/**
 * Bytes of the file system: the content with block rounding and metadata, the journal and a margin; more for
 * many small files, which need inodes. Generous, because the file is sparse and a machine's disk is grown
 * anyway. At least a machine's default disk size, so that most machines need not grow it.
 */
function rootSize(contentBytes: number, entries: number): number {
  const needed = contentBytes * 1.1 + entries * BLOCK_BYTES * 1.1 + (JOURNAL_MB + 192) * 1024 * 1024;
  const forInodes = (entries + 4096) * BYTES_PER_INODE * 1.1;
  const unit = 1024 * 1024;
  return Math.ceil(Math.max(needed, forInodes, DISK_GB_DEFAULT * 1024 * unit) / unit) * unit;
}

function cpuSecondsFor(bytes: number, entries: number): number {
  return CPU_SECONDS + Math.ceil(bytes / BYTES_PER_CPU_SECOND + entries / ENTRIES_PER_CPU_SECOND);
}

/** Derived from the digest, so an image has the same file system id on every node. */
function uuidOf(digest: string): string {
  const hex = digest.slice("sha256:".length);
  return [hex.slice(0, 8), hex.slice(8, 12), `8${hex.slice(13, 16)}`, `8${hex.slice(17, 20)}`, hex.slice(20, 32)].join(
    "-",
  );
}

/** Adds the directories the guest needs. Existing entries of these names stay if the guest can use them. */
async function prepareTree(tree: string): Promise<void> {
  // Missing for an image without layers, or with an unusual mode when the first layer sets one for the root.
  await mkdir(tree, { recursive: true });
  await requireLeft("directory", tree);
  for (const [name, mode] of GUEST_DIRECTORIES) {
    const path = join(tree, name);
    try {
      // Follows no link: the parent is our tree, and an existing link of this name gives EEXIST.
      await mkdir(path);
      await chmod(path, mode);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
      const facts = await lstat(path);
      if (!facts.isDirectory() && !facts.isSymbolicLink()) throw new Error(`its /${name} is not a directory`);
    }
  }
}

async function writeBlob(blobs: string, bytes: Buffer): Promise<{ readonly digest: string; readonly size: number }> {
  const hex = createHash("sha256").update(bytes).digest("hex");
  await using file = await open(join(blobs, hex), "w", 0o600);
  await file.writeFile(bytes);
  return { digest: `sha256:${hex}`, size: bytes.length };
}

/**
 * Uses `rm` and not `fs.rm`: it walks by directory descriptors, so it can remove paths longer than the
 * kernel's limit, which an image can contain.
 */
async function removeTree(path: string): Promise<void> {
  await runTool("rm", ["-rf", "--one-file-system", "--", path]);
}
