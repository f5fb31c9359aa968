/**
 * The images on this node's disk, and the references that point to them.
 *
 * Owns `<images>/unpacked/sha256-…/{root.ext4,image.json}` and `<images>/references/*.json`.
 *
 * Always:
 * - a directory in `unpacked` is complete: it gets its name by rename after its files were synced;
 * - root.ext4 is never written again, because machines' disks depend on its blocks;
 * - a reference is one small file, replaced by rename, and belongs to one owner: tenants neither see nor use
 *   what another tenant fetched or what a tag meant to it;
 * - a reference without its image is removed at the next start;
 * - the time stamp of image.json is when the image was last used: it survives restarts and costs no write of
 *   data.
 *
 * Only this process writes here. Everything is in memory, so a lookup does not touch the disk.
 */
import { createHash } from "node:crypto";
import { chmod, mkdir, open, readdir, readFile, rename, rm, stat, utimes } from "node:fs/promises";
import { join } from "node:path";
import type { Clock } from "@flotilla/base/clock";
import { messageOf } from "@flotilla/base/errors";
import type { Log } from "@flotilla/base/log";
import { syncToDisk } from "../host/sync-to-disk.ts";
import { type ImageConfiguration, REFERENCES_PER_OWNER, type UnpackedImage } from "./images.ts";

/** The content of image.json. */
export interface ImageRecord {
  readonly digest: string;
  /** Registry and repository it was first pulled from: its name when no reference points to it. */
  readonly source: string;
  /** As UnpackedImage has it. */
  readonly arrivedAs?: string;
  readonly architecture: string;
  readonly os: string;
  readonly layerCount: number;
  readonly exposedPort: number | null;
  readonly configuration: ImageConfiguration;
  /** As UnpackedImage has it. */
  readonly isPackage?: boolean;
  /** Size of the file system. */
  readonly rootBytes: number;
  /** Bytes it takes on the disk. */
  readonly sizeBytes: number;
}

interface ReferenceRecord {
  /** The tenant that owns the reference; null or absent for the operator's and for local images. */
  readonly owner?: string | null;
  readonly name: string;
  readonly arch: string;
  readonly digest: string;
}

type ReferenceKey = Pick<ReferenceRecord, "owner" | "name" | "arch">;

interface Held extends ImageRecord {
  lastUsedAt: number;
}

export class Catalog {
  readonly #directory: string;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #images = new Map<string, Held>();
  readonly #references = new Map<string, ReferenceRecord>();
  /** Last write of each reference that is being written. */
  readonly #writes = new Map<string, Promise<void>>();
  #onChange: () => void = () => undefined;

  constructor(options: { readonly directory: string; readonly clock: Clock; readonly log: Log }) {
    this.#directory = options.directory;
    this.#clock = options.clock;
    this.#log = options.log;
  }

  async open(): Promise<void> {
    for (const name of ["unpacked", "references"])
      await mkdir(join(this.#directory, name), { recursive: true, mode: 0o700 });
    for (const name of await readdir(join(this.#directory, "unpacked"))) {
      const held = await this.#readImage(name);
      if (held !== undefined) this.#images.set(held.digest, held);
    }
    for (const name of await readdir(join(this.#directory, "references"))) {
      const path = join(this.#directory, "references", name);
      const record = name.endsWith(".json") ? await readJson<ReferenceRecord>(path) : undefined;
      if (record !== undefined && this.#images.has(record.digest)) this.#references.set(keyOf(record), record);
      else await rm(path, { force: true });
    }
  }

  /** Calls back after a reference has come or gone. */
  watch(onChange: () => void): void {
    this.#onChange = onChange;
  }

  find(name: string, arch: string, owner: string | null): UnpackedImage | undefined {
    const record = this.#references.get(keyOf({ name, arch, owner }));
    return record === undefined ? undefined : this.findByDigest(record.digest, name, owner);
  }

  /** The digests that any reference points to. */
  namedDigests(): ReadonlySet<string> {
    return new Set([...this.#references.values()].map(({ digest }) => digest));
  }

  /** Whether one of the owner's references points to the digest. */
  hasReference(owner: string | null, digest: string): boolean {
    return [...this.#references.values()].some((record) => record.digest === digest && ownerOf(record) === owner);
  }

  findByDigest(digest: string, name?: string, tenantId: string | null = null): UnpackedImage | undefined {
    const held = this.#images.get(digest);
    if (held === undefined) return undefined;
    const { source, ...record } = held;
    const reference = name ?? this.#nameOf(digest) ?? unnamed(held);
    return { ...record, reference, tenantId, source, rootPath: join(this.#pathOf(digest), "root.ext4") };
  }

  /** Architectures for which the node has this reference. */
  architecturesOf(name: string): readonly string[] {
    return [...this.#references.values()].filter((record) => record.name === name).map((record) => record.arch);
  }

  /**
   * One entry per reference. Images without a reference (replaced by a newer digest) appear as `…@sha256:…`.
   * With a tenant those that it may use: what it fetched itself, and local ones.
   */
  list(tenantId: string | null = null): readonly UnpackedImage[] {
    const records = [...this.#references.values()];
    const isShown = (name: string, owner: string | null): boolean =>
      tenantId === null || owner === tenantId || isLocalName(name);
    const named = records
      .filter((record) => isShown(record.name, ownerOf(record)))
      .map((record) => this.findByDigest(record.digest, record.name, ownerOf(record)));
    const digestsNamed = new Set(records.map(({ digest }) => digest));
    const others = [...this.#images.values()]
      .filter(({ arrivedAs }) => tenantId === null || arrivedAs === undefined)
      .filter(({ digest, source }) => !digestsNamed.has(digest) && isShown(source, null))
      .map((image) => this.findByDigest(image.digest, unnamed(image)));
    return [...named, ...others]
      .filter((image) => image !== undefined)
      .toSorted((a, b) => (a.reference < b.reference ? -1 : 1));
  }

  images(): readonly (ImageRecord & { readonly lastUsedAt: number })[] {
    return [...this.#images.values()];
  }

  /** Local images without a reference: nothing can name them again. */
  namelessLocal(): readonly (ImageRecord & { readonly lastUsedAt: number })[] {
    const named = this.namedDigests();
    return this.images().filter(({ digest, source }) => isLocalName(source) && !named.has(digest));
  }

  /** The digests that a local reference points to. */
  localDigests(): ReadonlySet<string> {
    return new Set([...this.#references.values()].filter(({ name }) => isLocalName(name)).map(({ digest }) => digest));
  }

  /** Epoch milliseconds. Infinity: the image is not here any more. */
  lastUsedAt(digest: string): number {
    return this.#images.get(digest)?.lastUsedAt ?? Number.POSITIVE_INFINITY;
  }

  async touch(digest: string): Promise<void> {
    const held = this.#images.get(digest);
    if (held === undefined) return;
    held.lastUsedAt = this.#clock.now();
    const at = held.lastUsedAt / 1000;
    // Best effort: only the order of a later collection depends on it.
    await utimes(join(this.#pathOf(digest), "image.json"), at, at).catch(() => undefined);
  }

  /**
   * Adds an image: `directory` holds its `root.ext4` on the same file system; gets image.json and its final
   * name.
   */
  async add(directory: string, record: ImageRecord): Promise<void> {
    await chmod(join(directory, "root.ext4"), 0o444);
    await syncToDisk(join(directory, "root.ext4"));
    await writeSynced(join(directory, "image.json"), JSON.stringify(record, null, 2));
    // Other users may pass through this directory, if given a path into it; its parent is only for root.
    await chmod(directory, 0o755);
    await syncToDisk(directory);
    await rename(directory, this.#pathOf(record.digest)).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== "ENOTEMPTY" && error.code !== "EEXIST") throw error;
      throw new Error(
        "a damaged copy of it is on the node's disk; the node's operator can find its path in the node's log",
      );
    });
    await syncToDisk(join(this.#directory, "unpacked"));
    this.#images.set(record.digest, { ...record, lastUsedAt: this.#clock.now() });
  }

  /** The last of several at once counts. */
  async setReference({ name, arch, owner }: ReferenceKey, digest: string): Promise<void> {
    const record: ReferenceRecord = { owner: owner ?? null, name, arch, digest };
    await this.#inTurn(record, () => this.#writeReference(record));
  }

  /**
   * Removes the references of this name that belong to no tenant, of all architectures. Resolves with the
   * digests that they pointed to.
   */
  async removeReferences(name: string): Promise<ReadonlySet<string>> {
    const found = [...this.#references.values()].filter((record) => record.name === name && ownerOf(record) === null);
    for (const record of found) await this.#inTurn(record, () => this.#removeReference(record));
    return new Set(found.map(({ digest }) => digest));
  }

  /** Writes of one reference, one after the other. */
  async #inTurn(reference: ReferenceKey, write: () => Promise<void>): Promise<void> {
    const key = keyOf(reference);
    const written = (this.#writes.get(key) ?? Promise.resolve()).then(write);
    const settled = written.catch(() => undefined);
    this.#writes.set(key, settled);
    await written.finally(() => this.#writes.get(key) === settled && this.#writes.delete(key));
  }

  async #removeReference(record: ReferenceRecord): Promise<void> {
    await rm(this.#referencePath(record), { force: true });
    await syncToDisk(join(this.#directory, "references"));
    this.#references.delete(keyOf(record));
    this.#onChange();
  }

  async #writeReference(record: ReferenceRecord): Promise<void> {
    const path = this.#referencePath(record);
    if (!this.#references.has(keyOf(record))) await this.#dropOldest(record.owner ?? null);
    await writeSynced(`${path}.new`, JSON.stringify(record));
    await rename(`${path}.new`, path);
    await syncToDisk(join(this.#directory, "references"));
    this.#references.set(keyOf(record), record);
    this.#onChange();
  }

  /** A tenant above its limit of references loses its oldest one. */
  async #dropOldest(owner: string | null): Promise<void> {
    if (owner === null) return;
    const own = [...this.#references].filter(([, record]) => record.owner === owner);
    const [oldest] = own;
    if (own.length < REFERENCES_PER_OWNER || oldest === undefined) return;
    this.#references.delete(oldest[0]);
    await rm(this.#referencePath(oldest[1]), { force: true });
  }

  /**
   * Removes an image and its references from the catalog and moves its files to `trash`, for the caller to
   * delete.
   */
  async remove(digest: string, trash: string): Promise<void> {
    this.#images.delete(digest);
    for (const record of this.#references.values())
      if (record.digest === digest) {
        this.#references.delete(keyOf(record));
        await rm(this.#referencePath(record), { force: true });
      }
    this.#onChange();
    await rename(this.#pathOf(digest), trash);
  }

  async #readImage(name: string): Promise<Held | undefined> {
    const directory = join(this.#directory, "unpacked", name);
    try {
      const record = JSON.parse(await readFile(join(directory, "image.json"), "utf8")) as ImageRecord;
      if (record.digest.replace(":", "-") !== name) throw new Error("image.json names a different digest");
      const root = await stat(join(directory, "root.ext4"));
      if (root.size !== record.rootBytes) throw new Error("the size of root.ext4 differs from image.json");
      return { ...record, lastUsedAt: (await stat(join(directory, "image.json"))).mtimeMs };
    } catch (error) {
      // Not removed, because a machine's disk may depend on it. This program never leaves a damaged image
      // behind.
      this.#log.error({ directory, reason: messageOf(error) }, "an unpacked image is damaged and will not be used");
      return undefined;
    }
  }

  #nameOf(digest: string): string | undefined {
    return [...this.#references.values()].find((item) => item.digest === digest)?.name;
  }

  #pathOf(digest: string): string {
    return join(this.#directory, "unpacked", digest.replace(":", "-"));
  }

  #referencePath(key: ReferenceKey): string {
    const hash = createHash("sha256").update(keyOf(key)).digest("hex");
    return join(this.#directory, "references", `${hash.slice(0, 32)}.json`);
  }
}

/** Unambiguous, because names contain no space. */
function keyOf({ name, arch, owner }: ReferenceKey): string {
  return typeof owner === "string" ? `${arch} ${name} ${owner}` : `${arch} ${name}`;
}

const isLocalName = (name: string): boolean => name.startsWith("local/");

const unnamed = ({ source, digest, arrivedAs = digest }: ImageRecord): string => `${source}@${arrivedAs}`;

const ownerOf = ({ owner }: ReferenceRecord): string | null => owner ?? null;

async function readJson<T>(path: string): Promise<T | undefined> {
  try {
    return JSON.parse(await readFile(path, "utf8")) as T;
  } catch {
    return undefined;
  }
}

async function writeSynced(path: string, text: string): Promise<void> {
  await using file = await open(path, "w", 0o600);
  await file.writeFile(text);
  await file.sync();
}
