/**
 * What the rest of the node agent sees of the images on its disk.
 */
import type { ImageProgress, NodeImage } from "@flotilla/contract/link";

/** The parts of an OCI image's config that a machine takes over. */
export interface ImageConfiguration {
  /** `NAME=value` lines. */
  readonly env: readonly string[];
  /** Absolute; `/` when the image says nothing. */
  readonly workdir: string;
  readonly user: string;
  readonly entrypoint: readonly string[];
  readonly command: readonly string[];
}

/** An image unpacked on this node. */
export interface UnpackedImage extends NodeImage {
  readonly configuration: ImageConfiguration;
  /** Registry and repository that it was fetched from first, or `local/…`. */
  readonly source: string;
  /** A read-only ext4 file system in a file, shared by all machines of the image. Never written after it has its name. */
  readonly rootPath: string;
  /** Size of that file system, in bytes: a machine's disk is at least as large. */
  readonly rootBytes: number;
}

/** A read-only ext4 file system in a file. */
export interface RootFile {
  readonly rootPath: string;
  readonly rootBytes: number;
}

export interface EnsureOptions {
  /** `amd64` or `arm64`; null: the node's own. */
  readonly arch: string | null;
  /** The tenant that asks; null: the node's operator. */
  readonly tenantId: string | null;
  readonly onProgress?: (progress: Extract<ImageProgress, { kind: "progress" }>) => void;
  /** Gives up waiting; a pull that others wait for goes on. */
  readonly signal?: AbortSignal;
  /** Asks the registry what the reference means now, even when the node has an image under it: `PUT /v1/images`. */
  readonly isRefresh?: boolean;
}

export interface Images {
  /**
   * The image, unpacked; pulls it if the tenant has not pulled it. Callers of one tenant share one pull; what another
   * tenant has unpacked is used after the registry has given this one the manifest.
   * Throws with a text for the machine's owner: an ImageRefused when it can not be had however often it is tried, and an
   * Error when the registry is down, the image corrupt or the disk full.
   */
  ensure(reference: string, options: EnsureOptions): Promise<UnpackedImage>;
  /** The image if the tenant (null: the operator) has it on this node's disk, without any network. */
  find(reference: string, arch: string | null, tenantId?: string | null): Promise<UnpackedImage | undefined>;
  /** An image by the digest that a machine's disk was made from. */
  findByDigest(digest: string): Promise<UnpackedImage | undefined>;
  /**
   * The image's file system for a disk of so many bytes: the image's own when the disk is at least as large, else a
   * smaller one, made once. What is on it may need more than was asked.
   */
  rootFor(image: UnpackedImage, diskBytes: number): Promise<RootFile>;
  /** What a tenant has under its references, and local images; without a tenant everything. */
  list(tenantId?: string | null): Promise<readonly NodeImage[]>;
  /** Takes in an OCI layout (tar), a docker archive or a root file system tar, as `local/<name>[:tag]`. */
  importArchive(path: string, reference: string): Promise<UnpackedImage>;
  remove(reference: string): Promise<"removed" | "missing" | "in use">;
  /** Removes images that no machine's disk depends on until `freeBytesMin` are free, least recently used first. */
  collectGarbage(inUse: ReadonlySet<string>): Promise<{ readonly removed: number; readonly freedBytes: number }>;
}
