/**
 * Parses what a registry or an archive says about an image: manifest lists, manifests and configs. All of it
 * is untrusted input.
 *
 * Pure. Understands both dialects, OCI and Docker's schema 2, which differ only in media types. Always:
 * - every field is checked for type and size here, so the rest of the code works with plain values;
 * - anything but a container image for Linux, or a package of a machine, is refused with a message that names
 *   what it is.
 */
import { ENV_BYTES_MAX, PORT_MAX } from "@flotilla/contract/limits";
import { ImageRefused } from "./image-refused.ts";
import type { ImageConfiguration } from "./images.ts";
import { isDigest } from "@flotilla/contract/reference";
import { PACKAGE_LAYER_TYPE, type PackagedDisk, parsePackagedDisk } from "./package-manifest.ts";

/**
 * The limit of registries themselves; real documents have a few KiB. Applies to lists, manifests and configs.
 */
export const MANIFEST_BYTES_MAX = 4 * 1024 * 1024;
/** Container engines stop at 127, the limit of overlay mounts; tools that flatten layers allow more. */
const LAYERS_MAX = 512;
const LIST_ENTRIES_MAX = 1024;

export const MANIFEST_TYPES = {
  ociIndex: "application/vnd.oci.image.index.v1+json",
  ociManifest: "application/vnd.oci.image.manifest.v1+json",
  dockerList: "application/vnd.docker.distribution.manifest.list.v2+json",
  dockerManifest: "application/vnd.docker.distribution.manifest.v2+json",
} as const;
const OCI_CONFIG_TYPE = "application/vnd.oci.image.config.v1+json";
const OCI_LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar";
const DOCKER_CONFIG_TYPE = "application/vnd.docker.container.image.v1+json";
const LAYER_TYPE =
  /^application\/vnd\.(?:oci\.image\.layer\.(?:nondistributable\.)?v1\.tar(?:\+gzip|\+zstd)?|docker\.image\.rootfs\.(?:foreign\.)?diff\.tar(?:\.gzip|\.zstd)?)$/;

export interface Descriptor {
  readonly mediaType: string;
  /** `sha256:` and 64 hexadecimal digits. */
  readonly digest: string;
  /** Bytes. */
  readonly size: number;
}

export interface ListEntry extends Descriptor {
  readonly os: string | null;
  readonly architecture: string | null;
  /** Variant of the architecture, such as `v3`. */
  readonly variant: string | null;
}

export type Manifest =
  | { readonly kind: "list"; readonly entries: readonly ListEntry[] }
  | {
      readonly kind: "image";
      readonly config: Descriptor;
      readonly layers: readonly Descriptor[];
      /** null: its layers are files, as those of every container image. */
      readonly disk: PackagedDisk | null;
    };

export interface ImageConfig {
  readonly architecture: string;
  readonly os: string;
  /** Digest of each layer's tar, uncompressed, in order. */
  readonly diffIds: readonly string[];
  /** The lowest TCP port that it exposes: they have no order. null: none. */
  readonly exposedPort: number | null;
  readonly configuration: ImageConfiguration;
}

/**
 * `mediaType` is the transport's; the document's own takes precedence. Throws an Error with a user-facing
 * message.
 */
export function parseManifest(bytes: Buffer, mediaType: string | null): Manifest {
  const document = parseObject(bytes, "manifest");
  if (document["schemaVersion"] === 1) throw new Error("its manifest uses the old schema 1, which is not supported");
  if (document["schemaVersion"] !== 2) throw new Error("its manifest does not have schemaVersion 2");
  const type = typeof document["mediaType"] === "string" ? document["mediaType"] : mediaType;
  const isList =
    type === MANIFEST_TYPES.ociIndex || type === MANIFEST_TYPES.dockerList || Array.isArray(document["manifests"]);
  if (isList) {
    const entries = parseArray(document["manifests"], LIST_ENTRIES_MAX, "manifest list");
    return { kind: "list", entries: entries.map((entry) => ({ ...parseDescriptor(entry), ...parsePlatform(entry) })) };
  }
  const disk = parsePackagedDisk(document);
  const config = parseDescriptor(document["config"]);
  if (config.mediaType !== OCI_CONFIG_TYPE && config.mediaType !== DOCKER_CONFIG_TYPE)
    throw new Error(`it is not a container image: its config is of type ${plain(config.mediaType)}`);
  if (config.size > MANIFEST_BYTES_MAX) throw new Error(`its config is larger than ${MANIFEST_BYTES_MAX} bytes`);
  const layers = parseArray(document["layers"], LAYERS_MAX, "manifest's layers").map(parseDescriptor);
  const isKnown = (type: string): boolean => (disk === null ? LAYER_TYPE.test(type) : type === PACKAGE_LAYER_TYPE);
  const odd = layers.find((layer) => !isKnown(layer.mediaType));
  if (odd !== undefined)
    throw new Error(`one of its layers is of type ${plain(odd.mediaType)}, which is not supported`);
  return { kind: "image", config, layers, disk };
}

/**
 * The entry for Linux on this architecture; of several the one that the most processors can run. Throws an
 * Error that lists the platforms the image has.
 */
export function choosePlatform(entries: readonly ListEntry[], arch: string): ListEntry {
  const [found] = entries
    .filter((entry) => entry.os === "linux" && entry.architecture === arch)
    .toSorted((one, other) => levelOf(one) - levelOf(other));
  if (found !== undefined) return found;
  // Some builders name no platform where there is one image. Its config does, and is checked.
  const [only] = entries;
  if (only !== undefined && entries.length === 1 && only.architecture === null) return only;
  // Build attestations appear in a list as platform `unknown`.
  const known = entries.filter((entry) => entry.architecture !== null && entry.architecture !== "unknown");
  const offered = [...new Set(known.map((entry) => `${entry.os}/${entry.architecture}`))].slice(0, 20);
  throw new ImageRefused(
    "image_wrong_platform",
    `it has no variant for linux/${arch}; it has ${offered.length === 0 ? "no platform" : offered.join(", ")}`,
  );
}

/**
 * What a variant needs of a processor; none, and the first of each architecture (`v1` of amd64, `v8` of
 * arm64), nothing special.
 */
function levelOf({ architecture, variant }: ListEntry): number {
  const level = Number(/^v(\d+)/.exec(variant ?? "")?.[1] ?? (variant === null ? 0 : Number.MAX_SAFE_INTEGER));
  return level <= (architecture === "arm64" ? 8 : 1) ? 0 : level;
}

/** Throws an Error with a user-facing message. */
export function parseConfig(bytes: Buffer): ImageConfig {
  const document = parseObject(bytes, "config");
  const os = parsePlainText(document["os"] ?? "linux", "os");
  if (os !== "linux") throw new ImageRefused("image_wrong_platform", `it is built for ${plain(os)}, not for linux`);
  const rootfs = asObject(document["rootfs"], "rootfs");
  const diffIds = parseArray(rootfs["diff_ids"] ?? [], LAYERS_MAX, "config's diff_ids").map((item) => {
    if (typeof item !== "string" || !isDigest(item))
      throw new Error("its config has a diff_id that is not a sha256 digest");
    return item;
  });
  const architecture = normalArchitecture(parsePlainText(document["architecture"], "architecture"));
  const config = asObject(document["config"] ?? {}, "config");
  const exposedPort = parseExposedPort(config["ExposedPorts"]);
  return { architecture, os, diffIds, exposedPort, configuration: parseConfiguration(config) };
}

/** Renders a config in OCI's format, for imported root file systems and for the unpacking tool. */
export function renderConfig(config: ImageConfig): Buffer {
  const { env, workdir, user, entrypoint, command } = config.configuration;
  const exposed = config.exposedPort === null ? {} : { ExposedPorts: { [`${config.exposedPort}/tcp`]: {} } };
  return Buffer.from(
    JSON.stringify({
      architecture: config.architecture,
      os: config.os,
      config: { Env: env, WorkingDir: workdir, User: user, Entrypoint: entrypoint, Cmd: command, ...exposed },
      rootfs: { type: "layers", diff_ids: config.diffIds },
    }),
  );
}

export function renderManifest(
  config: Omit<Descriptor, "mediaType">,
  layers: readonly Omit<Descriptor, "mediaType">[],
): Buffer {
  return Buffer.from(
    JSON.stringify({
      schemaVersion: 2,
      mediaType: MANIFEST_TYPES.ociManifest,
      config: { mediaType: OCI_CONFIG_TYPE, ...config },
      layers: layers.map((layer) => ({ mediaType: OCI_LAYER_TYPE, ...layer })),
    }),
  );
}

function normalArchitecture(name: string): string {
  if (name === "x86_64" || name === "x86-64") return "amd64";
  return name === "aarch64" ? "arm64" : name;
}

function parseConfiguration(config: Record<string, unknown>): ImageConfiguration {
  const env = parseTexts(config["Env"], "Env").filter((line) => line.indexOf("=") > 0);
  if (env.reduce((sum, line) => sum + Buffer.byteLength(line) + 1, 0) > ENV_BYTES_MAX)
    throw new Error(`its environment is larger than ${ENV_BYTES_MAX} bytes`);
  const workdir = parseText(config["WorkingDir"] ?? "", "WorkingDir", 4096);
  return {
    env,
    workdir: workdir.startsWith("/") ? workdir : `/${workdir}`,
    user: parseText(config["User"] ?? "", "User", 256),
    entrypoint: parseTexts(config["Entrypoint"], "Entrypoint"),
    command: parseTexts(config["Cmd"], "Cmd"),
  };
}

/** The keys are such as `80/tcp`, `80` and `8000-8010/tcp`. */
function parseExposedPort(value: unknown): number | null {
  const keys = Object.keys(asObject(value ?? {}, "ExposedPorts"));
  return keys.reduce<number | null>((lowest, key) => {
    const port = Number(/^(\d{1,5})(?:-\d{1,5})?(?:\/tcp)?$/.exec(key)?.[1] ?? 0);
    return port < 1 || port > PORT_MAX || (lowest !== null && lowest <= port) ? lowest : port;
  }, null);
}

function parseDescriptor(value: unknown): Descriptor {
  const object = asObject(value, "descriptor");
  const { mediaType, digest, size } = object;
  if (typeof mediaType !== "string" || mediaType.length > 256)
    throw new Error("its manifest has an entry without a type");
  if (typeof digest !== "string" || !isDigest(digest))
    throw new Error("its manifest has an entry without a sha256 digest");
  if (typeof size !== "number" || !Number.isSafeInteger(size) || size < 0)
    throw new Error("its manifest has an entry without a size");
  return { mediaType, digest, size };
}

function parsePlatform(value: unknown): Pick<ListEntry, "os" | "architecture" | "variant"> {
  const platform = asObject(value, "descriptor")["platform"];
  if (platform === undefined || platform === null) return { os: null, architecture: null, variant: null };
  const { os, architecture, variant } = asObject(platform, "platform");
  return {
    os: parsePlainText(os, "os"),
    architecture: normalArchitecture(parsePlainText(architecture, "architecture")),
    variant: typeof variant === "string" && variant !== "" ? variant : null,
  };
}

function parseObject(bytes: Buffer, what: string): Record<string, unknown> {
  if (bytes.length > MANIFEST_BYTES_MAX) throw new Error(`its ${what} is larger than ${MANIFEST_BYTES_MAX} bytes`);
  try {
    return asObject(JSON.parse(bytes.toString("utf8")), what);
  } catch {
    throw new Error(`its ${what} is not a JSON object`);
  }
}

function asObject(value: unknown, what: string): Record<string, unknown> {
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw new Error(`its ${what} is malformed`);
  return value as Record<string, unknown>;
}

function parseArray(value: unknown, lengthMax: number, what: string): readonly unknown[] {
  if (!Array.isArray(value)) throw new Error(`its ${what} is missing`);
  if (value.length > lengthMax) throw new Error(`its ${what} has more than ${lengthMax} entries`);
  return value;
}

/** Configs written by Go programs have `null` for an empty list. */
function parseTexts(value: unknown, what: string): readonly string[] {
  return parseArray(value ?? [], 65_536, `config's ${what}`).map((item) => parseText(item, what, 128 * 1024));
}

function parseText(value: unknown, what: string, lengthMax: number): string {
  if (typeof value !== "string" || value.length > lengthMax || value.includes("\0"))
    throw new Error(`its config's ${what} is malformed`);
  return value;
}

/** Short identifiers such as `linux`, which also appear in error messages. */
function parsePlainText(value: unknown, what: string): string {
  if (typeof value !== "string" || !/^[\w.-]{1,64}$/.test(value)) throw new Error(`its ${what} is malformed`);
  return value;
}

/** Untrusted text for an error message: escaped and short. */
function plain(text: string): string {
  return JSON.stringify(text.slice(0, 100));
}
