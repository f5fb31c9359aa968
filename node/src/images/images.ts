/**
 * The interface to the images on this node's disk.
 */
import type { ImageProgress, NodeImage } from "@flotilla/contract/link/link";
import type { MovedImage, MovedRoot } from "@flotilla/contract/link/moves";

/** A tenant that fetches more loses its oldest reference: the list of its images is read and sent whole. */
export const REFERENCES_PER_OWNER = 1_000;

/** The parts of an OCI image's config that a machine uses. */
export interface ImageConfiguration {
  /** `NAME=value` lines. */
  readonly env: readonly string[];
  /** Absolute; `/` when the image sets none. */
  readonly workdir: string;
  readonly user: string;
  readonly entrypoint: readonly string[];
  readonly command: readonly string[];
}

/** An image unpacked on this node. */
export interface UnpackedImage extends NodeImage {
  readonly configuration: ImageConfiguration;
  /** Registry and repository it was first pulled from, or `local/…`. */
  readonly source: string;
  /** It came from another node with a machine, which said that this is its digest. Absent: it did not. */
  readonly arrivedAs?: string;
  /** It is the disk of a machine, as a package has it. Absent: it was made from a container image. */
  readonly isPackage?: boolean;
  /**
   * A read-only ext4 file system in a file, shared by all machines of the image. Never written after it got
   * its name.
   */
  readonly rootPath: string;
  /** Size of that file system, in bytes: a machine's disk is at least as large. */
  readonly rootBytes: number;
}

/** A read-only ext4 file system in a file. */
export interface RootFile {
  readonly rootPath: string;
  readonly rootBytes: number;
}

/** A file system on this node: the digest of its image, and the name of its file. */
export interface HeldRoot {
  readonly digest: string;
  readonly name: string;
}

export interface EnsureOptions {
  /** `amd64` or `arm64`; null for the node's own. */
  readonly arch: string | null;
  /** The requesting tenant; null for the node's operator. */
  readonly tenantId: string | null;
  readonly onProgress?: (progress: Extract<ImageProgress, { kind: "progress" }>) => void;
  /** Stops waiting; a pull that other callers wait for continues. */
  readonly signal?: AbortSignal;
  /**
   * Asks the registry what the reference points to, even when the node has an image for it: `PUT /v1/images`.
   */
  readonly isRefresh?: boolean;
  /** Whether it is a package; an image of the other kind is refused. Absent: a container image. */
  readonly isPackage?: boolean;
}

export interface Images {
  /**
   * Returns the unpacked image; pulls it if the tenant has not pulled it before. Callers of one tenant share
   * one pull. An image unpacked for another tenant is used once the registry has served this tenant its
   * manifest. Throws with a message for the machine's owner: ImageRefused when no attempt can succeed, and an
   * Error when the registry is down, the image corrupt or the disk full.
   */
  ensure(reference: string, options: EnsureOptions): Promise<UnpackedImage>;
  /**
   * Finds the image without using the network; undefined if the tenant (null: the operator) does not have it
   * here.
   */
  find(reference: string, arch: string | null, tenantId?: string | null): Promise<UnpackedImage | undefined>;
  /** The image of a digest that a machine's disk is based on. */
  findByDigest(digest: string): Promise<UnpackedImage | undefined>;
  /**
   * The file system for a disk of `diskBytes`: the image's own if the disk is at least as large, otherwise a
   * smaller copy, made once. The result may be larger than requested if the content needs more. A package is
   * refused if the disk is smaller than the one it was made of.
   */
  rootFor(image: UnpackedImage, diskBytes: number): Promise<RootFile>;
  /** A file system of the image by the name of its file. Throws when the node does not have it. */
  rootNamed(image: UnpackedImage, name: string): Promise<RootFile>;
  /** What another node must know of a file system. The hash of its content is computed once. */
  describeRoot(root: RootFile, signal: AbortSignal): Promise<MovedRoot>;
  /** The image's file system that has this content; null when the node has none. */
  findRoot(image: MovedImage, root: MovedRoot): Promise<HeldRoot | null>;
  /**
   * Adds the file system at `path`, which came from another node, to its image; if the node does not have it,
   * to one with another digest (moved-roots.ts). The file is moved.
   */
  addRoot(request: { readonly image: MovedImage; readonly root: MovedRoot; readonly path: string }): Promise<HeldRoot>;
  /** The images that a tenant has references to, and local images; everything without a tenant. */
  list(tenantId?: string | null): Promise<readonly NodeImage[]>;
  /** Imports an OCI layout (tar), a docker archive or a root file system tar as `local/<name>[:tag]`. */
  importArchive(path: string, reference: string): Promise<UnpackedImage>;
  /**
   * Removes a local image's references, and the image if nothing uses it: otherwise it goes once it may.
   * Throws an Error for users when the reference names no local image.
   */
  removeLocal(reference: string): Promise<void>;
  /** Calls back after an image has come or gone. */
  watch(onChange: () => void): void;
}
