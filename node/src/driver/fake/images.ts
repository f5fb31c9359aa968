/**
 * Images without bytes, for the fake driver.
 *
 * FAKE: any reference exists unless it contains a key of FAULTS. `slow-<ms>` in a reference makes its pull
 * take that long, `broken` makes it fail, `exposes-<port>` makes it expose that port; `too-large` makes an
 * import fail on a full disk. COMMANDS has what images run. Kept in memory: after a restart any digest is
 * accepted as an image.
 */
import { createHash } from "node:crypto";
import { orAborted } from "@flotilla/base/abort";
import type { Clock } from "@flotilla/base/clock";
import type { ImageFault } from "@flotilla/contract/errors";
import type { NodeImage } from "@flotilla/contract/link/link";
import type { MovedImage, MovedRoot } from "@flotilla/contract/link/moves";
import { canonicalReference } from "@flotilla/contract/reference";
import { ImageRefused } from "../../images/image-refused.ts";
import { DiskFull } from "../../images/space.ts";
import {
  type EnsureOptions,
  type HeldRoot,
  type Images,
  REFERENCES_PER_OWNER,
  type RootFile,
  type UnpackedImage,
} from "../../images/images.ts";

const PROGRESS_STEPS = 4;
/** Part of a reference → why the image cannot be provided, and the message for its owner. */
const FAULTS: readonly (readonly [string, ImageFault, string])[] = [
  ["missing", "image_not_found", "does not exist in its registry"],
  ["secluded", "image_refused", "is refused by its registry"],
  ["outlawed", "image_not_allowed", "is of a registry that is not allowed here"],
  ["foreign", "image_wrong_platform", "has no variant for this node"],
];

/** Part of a reference → what a machine of the image runs unless it is given a command. */
const COMMANDS: readonly (readonly [string, string])[] = [
  ["speaks", "echo $FAKE_IMAGE; sleep 1000000"],
  ["nginx", "listen 80 200; sleep 1000000"],
];

const commandOf = (reference: string): readonly string[] =>
  COMMANDS.filter(([part]) => reference.includes(part)).flatMap(([, line]) => ["sh", "-c", line]);

const isLocalName = (reference: string): boolean => reference.startsWith("local/");
const keyOf = (reference: string, tenantId: string | null): string =>
  isLocalName(reference) ? reference : `${tenantId ?? ""} ${reference}`;

export class FakeImages implements Images {
  readonly #clock: Clock;
  readonly #arch: string;
  readonly #cached = new Map<string, UnpackedImage>();
  /** The keys of each tenant's references, the oldest first. */
  readonly #keysOf = new Map<string, Set<string>>();
  #onChange: () => void = () => undefined;

  constructor(clock: Clock, arch: string) {
    this.#clock = clock;
    this.#arch = arch;
    // Like a real node at its start.
    this.#remember("local/busybox");
  }

  async ensure(reference: string, { onProgress, signal, isRefresh, tenantId }: EnsureOptions): Promise<UnpackedImage> {
    const known = this.#cached.has(keyOf(reference, tenantId));
    if (known && isRefresh !== true) return this.#remember(reference, tenantId);
    const [, fault, text] = FAULTS.find(([word]) => reference.includes(word)) ?? [];
    if (fault !== undefined) throw new ImageRefused(fault, `image ${reference} ${text}`);
    const pullMs = Number(/slow-(\d+)/.exec(reference)?.[1] ?? 0);
    for (let step = 1; pullMs > 0 && step <= PROGRESS_STEPS; step += 1) {
      const waiting = this.#clock.sleep(pullMs / PROGRESS_STEPS, signal);
      await (signal === undefined ? waiting : orAborted(waiting, signal));
      const message = `pulling layer ${step} of ${PROGRESS_STEPS}`;
      onProgress?.({ kind: "progress", message, doneBytes: step * 1000, totalBytes: PROGRESS_STEPS * 1000 });
    }
    if (reference.includes("broken")) throw new Error(`image ${reference} has a corrupt layer`);
    return this.#remember(reference, tenantId);
  }

  async find(
    reference: string,
    _arch: string | null,
    tenantId: string | null = null,
  ): Promise<UnpackedImage | undefined> {
    const isLocal = reference.startsWith("local/") && !reference.includes("missing");
    return this.#cached.get(keyOf(reference, tenantId)) ?? (isLocal ? this.#remember(reference) : undefined);
  }

  async findByDigest(digest: string): Promise<UnpackedImage | undefined> {
    const known = [...this.#cached.values()].find((image) => image.digest === digest);
    return known ?? { ...this.#image("local/found-by-digest", null), digest };
  }

  async list(wanted: string | null = null): Promise<readonly NodeImage[]> {
    const all = [...this.#cached.values()].map((image) => {
      const { rootPath: _path, rootBytes: _bytes, configuration: _how, source: _source, ...shown } = image;
      return shown;
    });
    return all.filter((image) => wanted === null || image.tenantId === wanted || isLocalName(image.reference));
  }

  async importArchive(_path: string, reference: string): Promise<UnpackedImage> {
    if (reference.includes("too-large")) throw new DiskFull(`image ${reference} does not fit`);
    return this.#remember(reference);
  }

  async removeLocal(reference: string): Promise<void> {
    const name = canonicalReference(reference);
    const found = [...this.#cached].filter(([, image]) => canonicalReference(image.reference) === name);
    for (const [key, { tenantId }] of found) {
      this.#cached.delete(key);
      if (tenantId !== null) this.#keysOf.get(tenantId)?.delete(key);
    }
    if (found.length > 0) this.#onChange();
  }

  watch(onChange: () => void): void {
    this.#onChange = onChange;
  }

  rootFor(image: UnpackedImage): Promise<RootFile> {
    return Promise.resolve(image);
  }

  /** Every node has the same file system for a digest. */
  rootNamed(image: UnpackedImage): Promise<RootFile> {
    return Promise.resolve(image);
  }

  describeRoot({ rootPath }: RootFile): Promise<MovedRoot> {
    return Promise.resolve({ bytes: 0, size: 0, sha256: createHash("sha256").update(rootPath).digest("hex") });
  }

  findRoot({ digest }: MovedImage): Promise<HeldRoot> {
    return Promise.resolve({ digest, name: "root.ext4" });
  }

  addRoot({ image: { digest } }: { readonly image: MovedImage }): Promise<HeldRoot> {
    return Promise.resolve({ digest, name: "root.ext4" });
  }

  #remember(reference: string, tenantId: string | null = null): UnpackedImage {
    const key = keyOf(reference, tenantId);
    const owner = isLocalName(reference) ? null : tenantId;
    const image = { ...this.#image(reference, owner), ...this.#cached.get(key), lastUsedAt: this.#clock.now() };
    const isNew = !this.#cached.has(key);
    if (isNew && owner !== null) this.#own(owner, key);
    this.#cached.set(key, image);
    if (isNew) this.#onChange();
    return image;
  }

  /** Drops the oldest of too many, as a real node does. */
  #own(owner: string, key: string): void {
    const keys = this.#keysOf.get(owner) ?? new Set();
    this.#keysOf.set(owner, keys.add(key));
    const [oldest] = keys;
    if (keys.size <= REFERENCES_PER_OWNER || oldest === undefined) return;
    keys.delete(oldest);
    this.#cached.delete(oldest);
  }

  #image(reference: string, tenantId: string | null): UnpackedImage {
    const digest = `sha256:${createHash("sha256").update(canonicalReference(reference)).digest("hex")}`;
    return {
      reference,
      digest,
      sizeBytes: 0,
      architecture: this.#arch,
      os: "linux",
      layerCount: 1,
      exposedPort: Number(/exposes-(\d+)/.exec(reference)?.[1] ?? 0) || null,
      lastUsedAt: this.#clock.now(),
      tenantId,
      source: reference,
      configuration: {
        ...{ env: [`FAKE_IMAGE=${reference}`], workdir: "/", user: "", entrypoint: [] },
        command: [...commandOf(reference)],
      },
      rootPath: `/fake/${digest}`,
      rootBytes: 0,
    };
  }
}
