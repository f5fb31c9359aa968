/**
 * Images for tests, made offline: written as OCI layouts by this file and pushed to a registry with skopeo.
 *
 * `busybox`: one gzip layer of a few MB, for this machine's architecture. `alpine`: a manifest list for amd64
 * and arm64 of three layers with whiteouts, an opaque directory, a zstd layer, and a config with env,
 * workdir, user and entrypoint. `debian`: python3 and nodejs, made by scripts/make-local-image and kept in
 * the cache directory, because it takes a minute.
 */
import { execFile } from "node:child_process";
import { createHash, randomUUID } from "node:crypto";
import { createReadStream, createWriteStream } from "node:fs";
import { copyFile, mkdir, mkdtemp, open, readFile, rename, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pipeline } from "node:stream/promises";
import { promisify } from "node:util";
import { parseSettings } from "@flotilla/contract/settings";
import { createGzip, gzipSync, zstdCompressSync } from "node:zlib";
import type { TestRegistry } from "./registry.ts";
import { REGISTRY_USER } from "./registry.ts";
import { makeTar, type TarMember } from "./tar.ts";

const execute = promisify(execFile);

export interface LayerSpec {
  /** A plain tar. */
  readonly tar: Buffer;
  readonly compression: "gzip" | "zstd" | "none";
  /** The config's digest for it, when it should be wrong. */
  readonly diffId?: string;
}

/** A compressed layer in a file. */
export interface LayerFile {
  readonly path: string;
  readonly diffId: string;
}

export interface PlatformSpec {
  readonly arch: string;
  /** In OCI form: Env, WorkingDir, User, Entrypoint, Cmd. */
  readonly config?: Readonly<Record<string, unknown>>;
  readonly layers: readonly (LayerSpec | LayerFile)[];
}

export const HOST_ARCH = process.arch === "arm64" ? "arm64" : "amd64";
const SUFFIX = { gzip: "+gzip", zstd: "+zstd", none: "" } as const;

/** Writes an OCI layout with one image, or a list when there are several platforms, tagged `latest`. */
export async function writeLayout(directory: string, platforms: readonly PlatformSpec[]): Promise<void> {
  const blobs = join(directory, "blobs", "sha256");
  await mkdir(blobs, { recursive: true });
  const entries: object[] = [];
  for (const platform of platforms) {
    const manifest = await writePlatform(blobs, platform);
    const type = "application/vnd.oci.image.manifest.v1+json";
    entries.push({ mediaType: type, ...manifest, platform: { os: "linux", architecture: platform.arch } });
  }
  const name = { annotations: { "org.opencontainers.image.ref.name": "latest" } };
  const type = "application/vnd.oci.image.index.v1+json";
  const list = JSON.stringify({ schemaVersion: 2, mediaType: type, manifests: entries });
  const [only] = entries;
  const top =
    platforms.length === 1
      ? { ...only, ...name }
      : { mediaType: type, ...(await writeBlob(blobs, Buffer.from(list))), ...name };
  await writeFile(join(directory, "index.json"), JSON.stringify({ schemaVersion: 2, manifests: [top] }));
  await writeFile(join(directory, "oci-layout"), JSON.stringify({ imageLayoutVersion: "1.0.0" }));
}

interface Blob {
  readonly digest: string;
  readonly size: number;
}

async function writePlatform(blobs: string, platform: PlatformSpec): Promise<Blob> {
  const layers: object[] = [];
  for (const layer of platform.layers) {
    const suffix = SUFFIX["path" in layer ? "gzip" : layer.compression];
    const blob = "path" in layer ? await copyBlob(blobs, layer.path) : await writeBlob(blobs, compressed(layer));
    layers.push({ mediaType: `application/vnd.oci.image.layer.v1.tar${suffix}`, ...blob });
  }
  const diffIds = platform.layers.map((layer) => layer.diffId ?? ("tar" in layer ? digestOf(layer.tar) : ""));
  const config = {
    architecture: platform.arch,
    os: "linux",
    config: platform.config ?? {},
    rootfs: { type: "layers", diff_ids: diffIds },
  };
  const configBlob = await writeBlob(blobs, Buffer.from(JSON.stringify(config)));
  const manifest = {
    schemaVersion: 2,
    mediaType: "application/vnd.oci.image.manifest.v1+json",
    config: { mediaType: "application/vnd.oci.image.config.v1+json", ...configBlob },
    layers,
  };
  return writeBlob(blobs, Buffer.from(JSON.stringify(manifest)));
}

function compressed({ tar, compression }: LayerSpec): Buffer {
  if (compression === "none") return tar;
  return compression === "gzip" ? gzipSync(tar, { level: 1 }) : zstdCompressSync(tar);
}

async function writeBlob(blobs: string, bytes: Buffer): Promise<Blob> {
  const digest = digestOf(bytes);
  await writeFile(join(blobs, digest.slice("sha256:".length)), bytes);
  return { digest, size: bytes.length };
}

async function copyBlob(blobs: string, path: string): Promise<Blob> {
  const digest = await digestOfFile(path);
  await copyFile(path, join(blobs, digest.slice("sha256:".length)));
  return { digest, size: (await stat(path)).size };
}

export function digestOf(bytes: Buffer): string {
  return `sha256:${createHash("sha256").update(bytes).digest("hex")}`;
}

const digestOfFile = (path: string): Promise<string> => digestOfStream(createReadStream(path));

async function digestOfStream(chunks: AsyncIterable<Buffer>): Promise<string> {
  const hash = createHash("sha256");
  for await (const chunk of chunks) hash.update(chunk);
  return `sha256:${hash.digest("hex")}`;
}

/** Pushes all platforms of a layout as `name`, such as `library/alpine:3`, keeping every digest. */
async function pushLayout(layout: string, registry: TestRegistry, name: string): Promise<void> {
  await execute("skopeo", [
    ..."--insecure-policy copy --quiet --all --preserve-digests --dest-tls-verify=false --dest-creds".split(" "),
    `${REGISTRY_USER.name}:${REGISTRY_USER.password}`,
    `oci:${layout}:latest`,
    `docker://${registry.host}/${name}`,
  ]);
}

/** Writes a layout in a temporary directory, pushes it and removes it. */
export async function pushImage(
  registry: TestRegistry,
  name: string,
  platforms: readonly PlatformSpec[],
): Promise<void> {
  const directory = await mkdtemp(join(tmpdir(), "flotilla-layout-"));
  try {
    await writeLayout(directory, platforms);
    await pushLayout(directory, registry, name);
  } finally {
    await rm(directory, { recursive: true });
  }
}

const PATH = "PATH=/usr/sbin:/usr/bin:/sbin:/bin";

/** A busybox with links for its applets, as members of a tar. */
async function busyboxMembers(): Promise<readonly TarMember[]> {
  const { stdout } = await execute("busybox", ["--list"]);
  const applets = stdout.split("\n").filter((name) => name !== "" && name !== "busybox");
  return [
    { name: "bin", type: "directory" },
    { name: "bin/busybox", content: await readFile("/bin/busybox"), mode: 0o755 },
    ...applets.map((name) => ({ name: `bin/${name}`, type: "symlink", target: "busybox" }) as const),
    { name: "etc", type: "directory" },
    { name: "etc/passwd", content: "root:x:0:0:root:/root:/bin/sh\nsailor:x:1000:1000:sailor:/home/sailor:/bin/sh\n" },
    { name: "etc/group", content: "root:x:0:\nsailor:x:1000:\n" },
    { name: "root", type: "directory", mode: 0o700 },
    { name: "tmp", type: "directory", mode: 0o1777 },
  ];
}

export async function busyboxPlatforms(): Promise<readonly PlatformSpec[]> {
  const tar = makeTar(await busyboxMembers());
  return [{ arch: HOST_ARCH, config: { Env: [PATH], Cmd: ["sh"] }, layers: [{ tar, compression: "gzip" }] }];
}

/** Layers that test whiteouts, opaque directories, owners, modes and attributes. */
export async function alpinePlatforms(): Promise<readonly PlatformSpec[]> {
  const base = makeTar([
    ...(await busyboxMembers()),
    { name: "etc/os-release", content: 'ID=alpine\nNAME="Alpine-like"\n' },
    { name: "srv", type: "directory" },
    { name: "srv/removed", content: "from the first layer" },
    { name: "srv/kept", content: "from the first layer" },
    { name: "srv/hidden", type: "directory" },
    { name: "srv/hidden/old", content: "from the first layer" },
    { name: "home", type: "directory" },
    { name: "home/sailor", type: "directory", uid: 1000, gid: 1000, mode: 0o750 },
  ]);
  const middle = makeTar([
    { name: "srv/.wh.removed" },
    { name: "srv/hidden", type: "directory" },
    { name: "srv/hidden/.wh..wh..opq" },
    { name: "srv/hidden/new", content: "from the second layer" },
    { name: "bin/ping-cap", content: "#!/bin/sh\n", mode: 0o755, xattrs: { "security.capability": NET_RAW } },
    { name: "bin/setuid", content: "#!/bin/sh\n", mode: 0o4755 },
    { name: "bin/setuid-too", type: "hardlink", target: "bin/setuid" },
  ]);
  const top = makeTar([
    { name: "home/sailor/note", content: "ahoy\n", uid: 1000, gid: 1000, mode: 0o600 },
    { name: "dev", type: "directory" },
    { name: "dev/null", type: "character", device: [1, 3], mode: 0o666 },
  ]);
  const config = {
    Env: [PATH, "PORT_OF_CALL=Valparaíso"],
    WorkingDir: "/home/sailor",
    User: "sailor",
    Entrypoint: ["/bin/sh", "-c"],
    Cmd: ["cat note"],
  };
  const layers: readonly LayerSpec[] = [
    { tar: base, compression: "gzip" },
    { tar: middle, compression: "zstd" },
    { tar: top, compression: "none" },
  ];
  return ["amd64", "arm64"].map((arch) => ({
    arch,
    config: { ...config, Env: [...config.Env, `ARCH=${arch}`] },
    layers,
  }));
}

/** cap_net_raw=ep, as `setcap` writes it. */
const NET_RAW = Buffer.from([1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);

/** Debian with python3 and nodejs. Takes a minute the first time; kept in the cache directory. */
export async function debianPlatforms(): Promise<readonly PlatformSpec[]> {
  const layer = await packedBeside(await debianArchive());
  return [{ arch: HOST_ARCH, config: { Env: [PATH, "LANG=C.UTF-8"], Cmd: ["bash"] }, layers: [layer] }];
}

/**
 * A tar as a gzip layer, packed once and kept beside it under the tar's digest: if the tar is made again
 * meanwhile, the packed file and its digest still match.
 */
export async function packedBeside(tar: string): Promise<LayerFile> {
  await using file = await open(tar);
  const read = () => file.createReadStream({ start: 0, autoClose: false });
  const diffId = await digestOfStream(read());
  const path = `${tar}.${diffId.slice("sha256:".length, "sha256:".length + 16)}.gz`;
  if ((await stat(path).catch(() => undefined)) === undefined) {
    const partial = `${path}.${randomUUID()}`;
    await pipeline(read(), createGzip({ level: 1 }), createWriteStream(partial));
    await rename(partial, path);
  }
  return { path, diffId };
}

/** The same as a tar of a root file system. Raise the number in its name when its content should change. */
export async function debianArchive(): Promise<string> {
  const archive = join(parseSettings(["cacheDirectory"], process.env).cacheDirectory, "images", "test-debian-1.tar");
  const script = join(import.meta.dirname, "..", "..", "scripts", "make-local-image");
  await execute("sh", [script, "python", archive, "nodejs"], { maxBuffer: 16 * 1024 * 1024 });
  return archive;
}
