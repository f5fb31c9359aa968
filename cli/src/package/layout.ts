/**
 * A directory that is an OCI image layout: `oci-layout`, `index.json`, and blobs by their digest.
 *
 * Always: digests from a file or a server become names of files only in their plain form, so nothing outside
 * of the directory is read or written.
 */
import { mkdir, readFile, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { Failure, fileErrorText } from "../failure.ts";
import type { Descriptor } from "./registry.ts";

const VERSION = { imageLayoutVersion: "1.0.0" };
const INDEX_TYPE = "application/vnd.oci.image.index.v1+json";
const TAG = "org.opencontainers.image.ref.name";

export interface LayoutEntry extends Descriptor {
  readonly artifactType?: string;
  readonly annotations?: Readonly<Record<string, string>>;
}

interface Index {
  readonly manifests: readonly LayoutEntry[];
}

/** A part of a manifest. Throws a Failure when it is not one. */
export function descriptorOf(value: unknown): LayoutEntry {
  const { digest, size, mediaType, artifactType, annotations } = (value ?? {}) as Partial<LayoutEntry>;
  if (typeof digest !== "string" || !/^sha256:[0-9a-f]{64}$/.test(digest)) throw new Failure("a part has no digest");
  if (typeof size !== "number" || !Number.isSafeInteger(size) || size < 0) throw new Failure("a part has no size");
  return {
    ...{ digest, size, mediaType: typeof mediaType === "string" ? mediaType : "" },
    ...(typeof artifactType === "string" ? { artifactType } : {}),
    ...(annotations === undefined ? {} : { annotations }),
  };
}

/** What a manifest names: its configuration and layers, or the manifests of an index. */
export function partsOf(manifest: Buffer): { readonly blobs: LayoutEntry[]; readonly manifests: LayoutEntry[] } {
  const { config, layers, manifests } = JSON.parse(manifest.toString("utf8")) as Readonly<Record<string, unknown>>;
  const list = (value: unknown): LayoutEntry[] => (Array.isArray(value) ? value.map(descriptorOf) : []);
  return {
    blobs: [...(config === undefined ? [] : [descriptorOf(config)]), ...list(layers)],
    manifests: list(manifests),
  };
}

export class Layout {
  readonly directory: string;

  constructor(directory: string) {
    this.directory = directory;
  }

  pathOf(digest: string): string {
    return join(this.directory, "blobs", "sha256", digest.slice("sha256:".length));
  }

  async make(): Promise<void> {
    await mkdir(join(this.directory, "blobs", "sha256"), { recursive: true });
    await writeFile(join(this.directory, "oci-layout"), JSON.stringify(VERSION));
  }

  /** Whether it has a file of this size for the blob. */
  async has({ digest, size }: Descriptor): Promise<boolean> {
    const found = await stat(this.pathOf(digest)).catch(() => null);
    return found?.size === size;
  }

  /** The manifest with the tag; null: the only one. Throws a Failure. */
  async find(tag: string | null): Promise<LayoutEntry> {
    const { manifests } = await this.#readIndex();
    const found = manifests.filter((each) => tag === null || each.annotations?.[TAG] === tag);
    const [first] = found.length === 0 && manifests.length === 1 ? manifests : found;
    if (first !== undefined && found.length <= 1) return descriptorOf(first);
    const tags = manifests.map((each) => each.annotations?.[TAG] ?? each.digest).join(", ");
    throw new Failure(`${this.directory} has several packages: ${tags}`, "name one of them with --tag");
  }

  /** Adds a manifest; it replaces another one with its tag. */
  async add(entry: LayoutEntry, tag: string | null): Promise<void> {
    const { manifests } = await this.#readIndex().catch(() => ({ manifests: [] }));
    const others = manifests.filter(
      ({ digest, annotations }) => digest !== entry.digest && (tag === null || annotations?.[TAG] !== tag),
    );
    const named = { ...entry, ...(tag === null ? {} : { annotations: { [TAG]: tag } }) };
    const index = { schemaVersion: 2, mediaType: INDEX_TYPE, manifests: [...others, named] };
    await writeFile(join(this.directory, "index.json"), JSON.stringify(index));
  }

  async #readIndex(): Promise<Index> {
    const path = join(this.directory, "index.json");
    try {
      const { manifests } = JSON.parse(await readFile(path, "utf8")) as Partial<Index>;
      if (Array.isArray(manifests)) return { manifests: manifests as readonly LayoutEntry[] };
    } catch (error) {
      throw new Failure(
        `${this.directory} is not an OCI image layout: ${fileErrorText(error) ?? "index.json cannot be read"}`,
        "`flotilla machine pull` makes one",
      );
    }
    throw new Failure(`${this.directory} is not an OCI image layout: index.json names no manifests`);
  }
}
