/**
 * Reads an image from a file: an OCI layout (directory or tar), also of a package of a machine, the output
 * of `docker save`, or a tar of a root file system. Plain, gzip or zstd, detected from the content, never
 * from the name.
 *
 * Archives are hostile input, like registries. Always:
 * - GNU tar extracts the archive confined and without capabilities;
 * - no link in it is followed outside the extracted directory;
 * - every digest that names a file is verified.
 *
 * Layer digests are not checked here: image-builder.ts compares each layer with the digest in the config.
 */
import { createHash } from "node:crypto";
import { lstat, open, readdir, realpath, stat } from "node:fs/promises";
import { join, sep } from "node:path";
import type { Clock } from "@flotilla/base/clock";
import { compressionOf, decompress, readHead } from "./blobs.ts";
import { ConfinedFailure, runConfined } from "./confine.ts";
import { CorruptData } from "./corrupt-data.ts";
import type { ImageConfiguration } from "./images.ts";
import {
  choosePlatform,
  type ImageConfig,
  MANIFEST_BYTES_MAX,
  parseConfig,
  parseManifest,
  renderConfig,
  renderManifest,
} from "./manifest.ts";
import type { PackagedDisk } from "./package-manifest.ts";

export interface OpenArchiveOptions {
  /** A file or a directory. */
  readonly path: string;
  /** An empty directory for the extracted files; the caller removes it. */
  readonly work: string;
  /** The platform to choose from archives with several; assumed for a bare root file system. */
  readonly arch: string;
  readonly bytesMax: number;
  readonly signal: AbortSignal;
  readonly clock: Clock;
  /** The program of node/native/jail.c. */
  readonly launcher: string;
  /** The configuration of a bare root file system, which brings none. */
  readonly configuration: ImageConfiguration;
}

export interface ArchiveImage {
  /** Digest of the manifest, or of a generated one when the archive has none. */
  readonly digest: string;
  readonly config: ImageConfig;
  readonly layerPaths: readonly string[];
  /** The layers are parts of this disk; null: they are files, as those of every container image. */
  readonly disk: PackagedDisk | null;
}

/** Configuration of root file systems, which do not say how to run them. */
export const PLAIN_CONFIGURATION: ImageConfiguration = {
  env: ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
  workdir: "/",
  user: "",
  entrypoint: [],
  command: ["/bin/sh"],
};

const TIMEOUT_MS = 20 * 60 * 1000;
/** Members that identify the kind of archive. */
const MARKERS = ["oci-layout", "index.json", "manifest.json"];

/** Throws an Error with a user-facing message. */
export async function openArchive(options: OpenArchiveOptions): Promise<ArchiveImage> {
  const facts = await stat(options.path).catch(() => undefined);
  if (facts === undefined) throw new Error("the archive does not exist");
  if (facts.isDirectory()) return readLayout(options.path, options);
  const tar = await plainTar(options);
  const markers = await extract(
    options,
    tar,
    "markers",
    MARKERS.flatMap((name) => [name, `./${name}`]),
  );
  const found = await readdir(markers);
  if (found.includes("oci-layout") && found.includes("index.json"))
    return readLayout(await extract(options, tar, "layout", []), options);
  // A root file system may contain a file of this name; it is a docker archive only if the file lists layers.
  const saved = found.includes("manifest.json") ? await readSavedManifest(markers) : undefined;
  if (saved !== undefined) return readDockerArchive(await extract(options, tar, "saved", []), saved, options);
  return readRootFileSystem(tar, options);
}

/** Returns the path of the archive as an uncompressed tar. */
async function plainTar(options: OpenArchiveOptions): Promise<string> {
  const head = await readHead(options.path, 0, 8);
  let path = options.path;
  if (compressionOf(head) !== "none") {
    path = join(options.work, "archive.tar");
    await decompress({ ...options, source: options.path, target: path }).catch((error: Error) => {
      throw error instanceof CorruptData ? new Error("the archive's compressed data is damaged") : error;
    });
  }
  if (!isTarHeader(await readHead(path, 0, 512)))
    throw new Error("it is not a tar archive (plain, gzip or zstd); an image or a root file system must be one");
  return path;
}

/** Compares the header's checksum, which every tar format has. */
function isTarHeader(header: Buffer): boolean {
  if (header.length < 512) return false;
  const stored = Number.parseInt(header.toString("latin1", 148, 156).replace(/[\0 ].*$/s, ""), 8);
  let sum = 8 * 0x20;
  for (const [index, byte] of header.entries()) if (index < 148 || index >= 156) sum += byte;
  return stored === sum;
}

/** Extracts all members, or those of `members` that exist, into a separate directory. */
async function extract(
  options: OpenArchiveOptions,
  tar: string,
  name: string,
  members: readonly string[],
): Promise<string> {
  const directory = join(options.work, name);
  const argv = ["tar", "--extract", "--file=/input/archive", "--directory=/files", "--no-same-owner"];
  const { signal, clock, launcher } = options;
  try {
    await runConfined({
      launcher,
      directory,
      inputs: { archive: tar },
      capabilities: [],
      argv: [
        ...argv,
        "--no-same-permissions",
        "--no-overwrite-dir",
        ...(members.length > 0 ? ["--occurrence=1"] : []),
        ...members,
      ],
      timeoutMs: TIMEOUT_MS,
      signal,
      clock,
    });
  } catch (error) {
    const isOnlyMissing =
      error instanceof ConfinedFailure && members.length > 0 && /Not found in archive/.test(error.detail);
    if (!isOnlyMissing)
      throw error instanceof ConfinedFailure ? new Error(`the archive cannot be read: ${error.detail}`) : error;
  }
  return join(directory, "files");
}

async function readLayout(directory: string, options: OpenArchiveOptions): Promise<ArchiveImage> {
  let bytes = await readDocument(directory, "index.json");
  let digest = digestOf(bytes);
  for (let depth = 0; ; depth += 1) {
    const manifest = parseManifest(bytes, null);
    if (manifest.kind === "image") {
      const config = parseConfig(await readBlob(directory, manifest.config.digest));
      const layerPaths = await Promise.all(manifest.layers.map((layer) => fileIn(directory, blobName(layer.digest))));
      return { digest, config, layerPaths, disk: manifest.disk };
    }
    if (depth === 3) throw new Error("its manifest lists are nested too deeply");
    digest = chooseEntry(manifest.entries, options.arch).digest;
    bytes = await readBlob(directory, digest);
  }
}

/**
 * Chooses the entry of an architecture; one of several variants. A single entry need not name its platform.
 */
function chooseEntry(entries: Parameters<typeof choosePlatform>[0], arch: string): { readonly digest: string } {
  const [only] = entries;
  if (only !== undefined && entries.length === 1) return only;
  const matching = entries.filter((entry) => entry.os === "linux" && entry.architecture === arch);
  const variants = new Set(matching.map(({ variant }) => variant));
  if (variants.size < matching.length || entries.some((entry) => entry.architecture === null))
    throw new Error(`the archive holds ${entries.length} images; export one at a time`);
  return choosePlatform(entries, arch);
}

interface SavedImage {
  readonly config: string;
  readonly layers: readonly string[];
}

/** undefined: it lists no layers, or is another document. */
async function readSavedManifest(directory: string): Promise<SavedImage | undefined> {
  if (!(await lstat(join(directory, "manifest.json"))).isFile()) return undefined;
  const parsed = jsonIn(await readDocument(directory, "manifest.json"));
  if (!Array.isArray(parsed) || parsed.length === 0) return undefined;
  const images = parsed.map((item: unknown) => {
    const { Config: config, Layers: layers } = (item ?? {}) as Record<string, unknown>;
    const isImage =
      typeof config === "string" && Array.isArray(layers) && layers.every((name) => typeof name === "string");
    return isImage ? { config, layers } : undefined;
  });
  const [only] = images;
  if (only !== undefined && images.length > 1)
    throw new Error(`the archive holds ${images.length} images; save one at a time`);
  return only;
}

/** undefined: it is not JSON. */
function jsonIn(bytes: Buffer): unknown {
  try {
    return JSON.parse(bytes.toString("utf8"));
  } catch {
    return undefined;
  }
}

async function readDockerArchive(
  directory: string,
  saved: SavedImage,
  options: OpenArchiveOptions,
): Promise<ArchiveImage> {
  const config = parseConfig(await readDocument(directory, saved.config));
  const layerPaths = await Promise.all(saved.layers.map((name) => fileIn(directory, name)));
  return { digest: await manifestDigest(config, layerPaths, options.signal), config, layerPaths, disk: null };
}

async function readRootFileSystem(tar: string, options: OpenArchiveOptions): Promise<ArchiveImage> {
  const diffId = await hashFile(tar, options.signal);
  const { arch, configuration } = options;
  const config: ImageConfig = {
    ...{ architecture: arch, os: "linux", diffIds: [diffId], exposedPort: null },
    configuration,
  };
  return { digest: await manifestDigest(config, [tar], options.signal), config, layerPaths: [tar], disk: null };
}

/** The digest that the image's manifest would have. Equal archives give equal digests. */
async function manifestDigest(config: ImageConfig, paths: readonly string[], signal: AbortSignal): Promise<string> {
  const configBytes = renderConfig(config);
  const layers: { digest: string; size: number }[] = [];
  for (const [index, path] of paths.entries()) {
    signal.throwIfAborted();
    layers.push({ digest: config.diffIds[index] ?? "", size: (await stat(path)).size });
  }
  return digestOf(renderManifest({ digest: digestOf(configBytes), size: configBytes.length }, layers));
}

async function readBlob(directory: string, digest: string): Promise<Buffer> {
  const bytes = await readDocument(directory, blobName(digest));
  if (digestOf(bytes) !== digest) throw new Error(`the archive is damaged: blob ${digest} does not match its digest`);
  return bytes;
}

function blobName(digest: string): string {
  return join("blobs", ...digest.split(":"));
}

async function readDocument(directory: string, name: string): Promise<Buffer> {
  const path = await fileIn(directory, name);
  if ((await stat(path)).size > MANIFEST_BYTES_MAX)
    throw new Error(`its ${name} is larger than ${MANIFEST_BYTES_MAX} bytes`);
  await using file = await open(path, "r");
  return await file.readFile();
}

/**
 * A regular file of the archive. Links within it are followed (older docker archives link equal layers);
 * links out of it are refused.
 */
async function fileIn(directory: string, name: string): Promise<string> {
  const root = await realpath(directory);
  const path = await realpath(join(root, name)).catch(() => undefined);
  if (path === undefined)
    throw new Error(`the archive is incomplete: ${JSON.stringify(name.slice(0, 200))} is missing`);
  if (!path.startsWith(root + sep) || !(await lstat(path)).isFile())
    throw new Error(`the archive is not valid: ${JSON.stringify(name.slice(0, 200))} is not a file in it`);
  return path;
}

function digestOf(bytes: Buffer): string {
  return `sha256:${createHash("sha256").update(bytes).digest("hex")}`;
}

async function hashFile(path: string, signal: AbortSignal): Promise<string> {
  await using file = await open(path, "r");
  const hash = createHash("sha256");
  for await (const chunk of file.createReadStream({ signal, highWaterMark: 256 * 1024 })) hash.update(chunk as Buffer);
  return `sha256:${hash.digest("hex")}`;
}
