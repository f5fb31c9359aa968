/**
 * Turns layers into a root file system: plain tars → tree → ext4 in a file → an image in the catalog.
 *
 * Owns `<images>/work`, one directory per piece of work. Decompressing and hashing happen here; the layers then stand
 * as an OCI layout of plain tars, which Debian's `umoci` unpacks (whiteouts, opaque directories, links, owners,
 * capabilities), and `mkfs.ext4 -d` makes the file without a mount. Both run confined (confine.ts).
 *
 * Always: a layer is unpacked only if its digest is the one the config names; the tree is never mounted, entered or run;
 * only the finished file leaves the work directory, by rename. A crash leaves a work directory, which `open` sweeps.
 *
 * Why a file of our own layout and not an overlay of layers: a machine's disk is a copy-on-write file on one base, and
 * that base must never change or need assembling. A layer shared by two images is therefore on the disk twice.
 */
import { createHash, randomUUID } from "node:crypto";
import { chmod, lstat, mkdir, open, readdir, rename, rm, stat, truncate, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { Clock } from "@flotilla/base/clock";
import { messageOf } from "@flotilla/base/errors";
import { DISK_GB_DEFAULT } from "@flotilla/contract/limits";
import type { ImageProgress } from "@flotilla/contract/link";
import { runTool } from "../host/out-of-memory.ts";
import { decompress } from "./blobs.ts";
import type { Catalog } from "./catalog.ts";
import { type ConfinedRun, runConfined } from "./confine.ts";
import { FailedBuilds } from "./failed-builds.ts";
import type { UnpackedImage } from "./images.ts";
import { type ImageConfig, MANIFEST_TYPES, renderConfig, renderManifest } from "./manifest.ts";
import { SharedWork } from "./share.ts";
import { asDiskFull, DiskFull, watchSpace } from "./space.ts";
import { TarEntries } from "./tar-entries.ts";
import { FairTurns } from "./turns.ts";

export type Progress = Extract<ImageProgress, { kind: "progress" }>;

export interface BuildRequest {
  readonly digest: string;
  /** Whose turn it takes: a tenant, or `""` for the node's operator. */
  readonly owner: string;
  /** Registry and repository. */
  readonly source: string;
  readonly config: ImageConfig;
  /** Files that hold the layers, in order, compressed or not. */
  readonly layerPaths: readonly string[];
  /** Of the layers as they came, for the progress. */
  readonly layerBytes: number;
  readonly signal: AbortSignal;
  readonly report: (progress: Progress) => void;
}

export interface Room {
  /** What the work takes at its height. */
  readonly peakBytes: number;
  /** What stays. */
  readonly keptBytes: number;
}

export interface WorkshopOptions {
  /** `<images>/work`. */
  readonly directory: string;
  readonly catalog: Catalog;
  readonly clock: Clock;
  /** Largest image, unpacked. */
  readonly imageBytesMax: number;
  /** Makes room by removing unused images; throws DiskFull when it cannot. */
  readonly makeRoom: (room: Room) => Promise<void>;
}

/** Unpacking is bound by disk and processor: more at a time only makes each slower and the peak of the disk higher. */
const BUILDS = { atOnce: 2, atOncePerOwner: 1 } as const;
/** The server gives a node up that says nothing for 15 minutes. */
const PROGRAM_TIMEOUT_MS = 10 * 60 * 1000;
/** Processor seconds that each program has: some for any image, more for its bytes and its entries. */
const CPU_SECONDS = 120;
const BYTES_PER_CPU_SECOND = 50e6;
const ENTRIES_PER_CPU_SECOND = 2_500;
const UNPACK_CAPABILITIES = ["chown", "dac_override", "fowner", "fsetid", "setfcap", "mknod"];
const READ_CAPABILITIES = ["dac_read_search"];
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
/** One inode per so many bytes; a machine's grown disk keeps the density. */
const BYTES_PER_INODE = 16_384;
const BLOCK_BYTES = 4096;
/**
 * Spelled out so that the host's mke2fs.conf decides nothing. `64bit` lets a machine's disk grow to 16 TiB and beyond;
 * everything here is known to Linux 5.x, whatever kernel the guest has.
 */
const EXT4_FEATURES =
  "none,has_journal,ext_attr,resize_inode,dir_index,filetype,extent,64bit,flex_bg,sparse_super,large_file,huge_file,dir_nlink,extra_isize,metadata_csum";
/** Enough for a disk of many GiB; in a sparse file an unused journal costs nothing. */
const JOURNAL_MB = 64;
/** Groups that keep their metadata together; the guest's disk grows by as many at a time (guest/grow.c). */
const GROUPS_TOGETHER = 256;
const MKFS_COMMAND = `mkfs.ext4 -q -F -m 0 -b ${BLOCK_BYTES} -G ${GROUPS_TOGETHER} -I 256 -i ${BYTES_PER_INODE} -O ${EXT4_FEATURES} -J size=${JOURNAL_MB}`;
/** Prezeroed: the file is new and sparse, so no guest has to spend its first minutes on zeroing inode tables. */
const MKFS_EXTENDED = "root_owner=0:0,lazy_itable_init=1,lazy_journal_init=1,assume_storage_prezeroed=1";
/** Bytes of the content, then the number of files and directories. */
const MEASURE_SCRIPT = "du -s --apparent-size --block-size=1 /files/tree && du -s --inodes /files/tree";

export class Workshop {
  readonly #options: WorkshopOptions;
  readonly #turns = new FairTurns(BUILDS);
  /** By digest: what is pulled may at the same time be imported. */
  readonly #builds = new SharedWork<UnpackedImage, Progress>();
  readonly #failed: FailedBuilds;

  constructor(options: WorkshopOptions) {
    this.#options = options;
    this.#failed = new FailedBuilds(options.clock);
  }

  /** Throws an Error for people when the image could not be built a moment ago. */
  checkFailed(digest: string): void {
    this.#failed.check(digest);
  }

  /** Makes the directory and removes what a crash left in it. */
  async open(): Promise<void> {
    await mkdir(this.#options.directory, { recursive: true, mode: 0o700 });
    for (const name of await readdir(this.#options.directory)) await removeTree(join(this.#options.directory, name));
  }

  /** A directory for a piece of work; gone with everything in it when disposed. */
  async begin(): Promise<{ readonly path: string } & AsyncDisposable> {
    const path = join(this.#options.directory, randomUUID());
    await mkdir(path, { mode: 0o700 });
    return { path, [Symbol.asyncDispose]: () => removeTree(path) };
  }

  /** A name that nothing has yet, for what is to be thrown away. */
  trashPath(): string {
    return join(this.#options.directory, randomUUID());
  }

  /** Removes a directory below the workshop's. */
  async discard(path: string): Promise<void> {
    await removeTree(path);
  }

  /**
   * Unpacks, makes the file system and enters it in the catalog. Throws an Error for people.
   *
   * Each caller waits for a turn of its own and shares the work after that: a tenant that queues a well-known image
   * behind others of its own does not keep other tenants from it.
   */
  build(request: BuildRequest): Promise<UnpackedImage> {
    const { digest, owner, signal, report: onProgress } = request;
    return this.#turns.run(owner, signal, () =>
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
      if (!(known instanceof DiskFull)) this.#failed.failed(request.digest, messageOf(error));
      throw known;
    }
  }

  async #build(request: BuildRequest, work: string): Promise<UnpackedImage> {
    const { config, digest, signal } = request;
    const present = this.#options.catalog.findByDigest(digest);
    if (present !== undefined) return present;
    const { layers, entries } = await this.#layOut(request, work);
    this.#report(request, "unpacking the layers");
    const plainBytes = layers.reduce((sum, layer) => sum + layer.size, 0);
    // The tree, and the file made from it while the layers are gone already.
    await this.#options.makeRoom({ peakBytes: 2 * plainBytes, keptBytes: plainBytes });
    const files = join(work, "files");
    const cpuSeconds = cpuSecondsFor(plainBytes, entries);
    await this.#run(
      { directory: work, capabilities: UNPACK_CAPABILITIES, cpuSeconds, signal },
      "umoci",
      "raw",
      "unpack",
      "--image",
      "/files/layout:image",
      "/files/tree",
    );
    await rm(join(files, "layout"), { recursive: true });
    await prepareTree(join(files, "tree"));
    this.#report(request, "making the root file system");
    const rootBytes = await this.#makeRoot(work, digest, { cpuSeconds, signal });
    const finished = join(work, "finished");
    await mkdir(finished);
    await rename(join(files, "root.ext4"), join(finished, "root.ext4"));
    await this.#options.catalog.adopt(finished, {
      digest,
      source: request.source,
      architecture: config.architecture,
      os: config.os,
      layerCount: layers.length,
      configuration: config.configuration,
      rootBytes,
      sizeBytes: (await stat(join(finished, "root.ext4"))).blocks * 512,
    });
    const image = this.#options.catalog.findByDigest(digest);
    if (image === undefined) throw new Error("the image vanished while it was entered in the catalog");
    return image;
  }

  /** Writes the layers as an OCI layout of plain tars; each must be what the config says. */
  async #layOut(request: BuildRequest, work: string) {
    const { config, layerPaths, signal } = request;
    if (config.diffIds.length !== layerPaths.length)
      throw new Error(`it has ${layerPaths.length} layers, and its config names ${config.diffIds.length}`);
    const layout = join(work, "files", "layout");
    const blobs = join(layout, "blobs", "sha256");
    await mkdir(blobs, { recursive: true });
    const layers: { digest: string; size: number }[] = [];
    const entries = new TarEntries();
    const inspect = (chunk: Buffer): void => entries.add(chunk);
    for (const [index, source] of layerPaths.entries()) {
      const ordinal = `layer ${index + 1} of ${layerPaths.length}`;
      this.#report(request, `decompressing ${ordinal}`);
      const expected = config.diffIds[index] ?? "";
      const target = join(blobs, expected.slice("sha256:".length));
      const used = layers.reduce((sum, layer) => sum + layer.size, 0);
      const bytesMax = this.#options.imageBytesMax - used;
      entries.begin();
      const { digest, bytes } = await decompress({ source, target, bytesMax, signal, inspect }).catch(
        (error: Error) => {
          throw error.message.startsWith("its ") ? new Error(`${ordinal} is corrupt: ${error.message}`) : error;
        },
      );
      if (digest !== expected)
        throw new Error(`${ordinal} is corrupt: its content has another digest than the config says`);
      layers.push({ digest, size: bytes });
    }
    // A config of our own with nothing in it but the digests: the tool need not read what a stranger wrote.
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
    return { layers, entries: entries.count };
  }

  /** Makes `files/root.ext4` of `files/tree`, which is gone afterwards. Returns the size of the file system. */
  async #makeRoot(
    work: string,
    digest: string,
    limits: { readonly cpuSeconds: number; readonly signal: AbortSignal },
  ): Promise<number> {
    const reading = { ...limits, directory: work, capabilities: READ_CAPABILITIES };
    const measured = await this.#run(reading, "sh", "-c", MEASURE_SCRIPT);
    const [content = 0, entries = 0] = measured.split("\n").map((line) => Number.parseInt(line, 10));
    if (content > this.#options.imageBytesMax)
      throw new Error(`it unpacks to more than ${this.#options.imageBytesMax} bytes`);
    const root = join(work, "files", "root.ext4");
    const rootBytes = rootSize(content, entries);
    await writeFile(root, "", { mode: 0o600 });
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
      "/files/tree",
      "/files/root.ext4",
    );
    await removeTree(join(work, "files", "tree"));
    return rootBytes;
  }

  #run(
    how: Pick<ConfinedRun, "directory" | "capabilities" | "signal"> & { readonly cpuSeconds: number },
    ...argv: readonly string[]
  ): Promise<string> {
    return runConfined({ ...how, argv, timeoutMs: PROGRAM_TIMEOUT_MS, clock: this.#options.clock });
  }

  #report(request: BuildRequest, message: string): void {
    request.report({ kind: "progress", message, doneBytes: request.layerBytes, totalBytes: request.layerBytes });
  }
}

/**
 * Room for the content with its block rounding and metadata, the journal and some air. Generous, because the file is
 * sparse and a machine's disk is grown anyway; many small files need more, for the sake of the inodes.
 */
/** As large as a machine's disk is by default, so that most machines find their file system grown already. */
function rootSize(contentBytes: number, entries: number): number {
  const needed = contentBytes * 1.1 + entries * BLOCK_BYTES * 1.1 + (JOURNAL_MB + 192) * 1024 * 1024;
  const forInodes = (entries + 4096) * BYTES_PER_INODE * 1.1;
  const unit = 1024 * 1024;
  return Math.ceil(Math.max(needed, forInodes, DISK_GB_DEFAULT * 1024 * unit) / unit) * unit;
}

function cpuSecondsFor(bytes: number, entries: number): number {
  return CPU_SECONDS + Math.ceil(bytes / BYTES_PER_CPU_SECOND + entries / ENTRIES_PER_CPU_SECOND);
}

/** The same image has the same file system id on every node. */
function uuidOf(digest: string): string {
  const hex = digest.slice("sha256:".length);
  return [hex.slice(0, 8), hex.slice(8, 12), `8${hex.slice(13, 16)}`, `8${hex.slice(17, 20)}`, hex.slice(20, 32)].join(
    "-",
  );
}

/** Adds the directories the guest needs. What the image has under these names stays, unless nothing can work with it. */
async function prepareTree(tree: string): Promise<void> {
  // An image without layers, or one whose first layer gives its root an odd mode.
  await mkdir(tree, { recursive: true });
  for (const [name, mode] of GUEST_DIRECTORIES) {
    const path = join(tree, name);
    try {
      // Follows nothing: the parent is our tree, and a link of this name is "exists".
      await mkdir(path);
      await chmod(path, mode);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
      const facts = await lstat(path);
      if (!facts.isDirectory() && !facts.isSymbolicLink())
        throw new Error(`it has something at /${name} that is no directory`);
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
 * `rm` and not `fs.rm`: it walks by directory descriptors, so that paths longer than the kernel allows, which an image
 * can contain, are no obstacle.
 */
async function removeTree(path: string): Promise<void> {
  await runTool("rm", ["-rf", "--one-file-system", "--", path]);
}
