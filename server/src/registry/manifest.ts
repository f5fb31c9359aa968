/**
 * Reads a manifest that was put: what it names, and what it says of itself. Pure.
 *
 * Always: only forms whose parts are all in the registry are accepted: an image, or an index of manifests.
 * What it names is bounded, so that its rows are.
 */
import { hash } from "node:crypto";
import { isDigest } from "@flotilla/contract/reference";
import { factsOf, type PackageFacts } from "./facts.ts";

/** The largest manifest, as registries and clients have it. */
export const MANIFEST_BYTES_MAX = 4 * 1024 * 1024;
const PARTS_MAX = 8_192;
const TYPE_CHARACTERS_MAX = 255;

const IMAGES: ReadonlySet<string> = new Set([
  "application/vnd.oci.image.manifest.v1+json",
  "application/vnd.docker.distribution.manifest.v2+json",
]);
const INDEXES: ReadonlySet<string> = new Set([
  "application/vnd.oci.image.index.v1+json",
  "application/vnd.docker.distribution.manifest.list.v2+json",
]);

/** What `Accept` of the backend asks for. */
export const MANIFEST_TYPES: readonly string[] = [...IMAGES, ...INDEXES];

export interface BlobPart {
  readonly digest: string;
  readonly bytes: number;
}

export interface ReadManifest {
  readonly digest: string;
  readonly mediaType: string;
  readonly artifactType: string | null;
  /** Layers and the configuration, each once. */
  readonly blobs: readonly BlobPart[];
  /** Manifests that an index names. */
  readonly children: readonly string[];
  readonly facts: PackageFacts | null;
}

/** `contentType`: as the request names it. Throws an Error for users. */
export function readManifest(bytes: Buffer, contentType: string | undefined): ReadManifest {
  const document = objectOf(parsed(bytes), "it is not a JSON object");
  const said = document["mediaType"];
  const mediaType = (contentType ?? (typeof said === "string" ? said : "")).split(";")[0]?.trim() ?? "";
  if (typeof said === "string" && said !== mediaType) throw new Error(`it says that it is ${shown(said)}`);
  if (document["schemaVersion"] !== 2) throw new Error("its schemaVersion is not 2");
  const digest = `sha256:${hash("sha256", bytes, "hex")}`;
  if (INDEXES.has(mediaType)) {
    const children = listOf(document["manifests"], "manifests").map((part) => partOf(part).digest);
    return { digest, mediaType, artifactType: textOf(document["artifactType"]), blobs: [], children, facts: null };
  }
  if (!IMAGES.has(mediaType)) throw new Error(`its type ${shown(mediaType)} is not that of an image or an index`);
  const config = objectOf(document["config"], "it has no config");
  const parts = [config, ...listOf(document["layers"], "layers")].map((part) => partOf(part));
  const blobs = new Map(parts.map((part) => [part.digest, part]));
  const artifactType = textOf(document["artifactType"]);
  const facts = factsOf(artifactType, document["annotations"]);
  return { digest, mediaType, artifactType, blobs: [...blobs.values()], children: [], facts };
}

function parsed(bytes: Buffer): unknown {
  try {
    return JSON.parse(bytes.toString("utf8"));
  } catch {
    throw new Error("it is not JSON");
  }
}

function listOf(value: unknown, name: string): readonly unknown[] {
  if (!Array.isArray(value)) throw new Error(`it has no ${name}`);
  if (value.length > PARTS_MAX) throw new Error(`it has more than ${PARTS_MAX} ${name}`);
  return value;
}

function partOf(value: unknown): BlobPart {
  const part = objectOf(value, "a part of it is not an object");
  const { digest, size, urls } = part;
  if (typeof digest !== "string" || !isDigest(digest)) throw new Error("a part of it has no sha256 digest");
  if (typeof size !== "number" || !Number.isSafeInteger(size) || size < 0)
    throw new Error(`the size of its part ${digest} is not a number of bytes`);
  if (Array.isArray(urls) && urls.length > 0) throw new Error(`its part ${digest} is elsewhere`);
  return { digest, bytes: size };
}

function objectOf(value: unknown, otherwise: string): Readonly<Record<string, unknown>> {
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw new Error(otherwise);
  return value as Readonly<Record<string, unknown>>;
}

const textOf = (value: unknown): string | null =>
  typeof value === "string" && value !== "" && value.length <= TYPE_CHARACTERS_MAX && !value.includes("\0")
    ? value
    : null;

const shown = (text: string): string => JSON.stringify(text.slice(0, 100));
