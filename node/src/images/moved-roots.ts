/**
 * File systems of images that came from another node with a machine's disk.
 *
 * Each node builds its own file system of an image, and no two are alike: they hold the times and the order
 * of the build. A disk has only the blocks that differ from its own, so it needs exactly that one. It is
 * stored beside the image's own as `root-c<hash>.ext4`, for all machines that came with it, and removed with
 * the image. If the node does not have the image, what came becomes a separate image: its digest is the hash
 * of what came, not the digest that the other node named.
 *
 * Always:
 * - A file gets its name only when it is complete and synced, and its content is never written again.
 * - Only machines that came with it, or with the same content, use what came: no pull and no reference leads
 *   to it, so another node cannot say what an image is.
 *
 * A crash leaves the file where it was, so that adding it again does the same.
 */
import { createHash } from "node:crypto";
import { chmod, mkdir, readdir, rename, stat } from "node:fs/promises";
import { dirname, join } from "node:path";
import type { MovedImage, MovedRoot } from "@flotilla/contract/link/moves";
import { syncToDisk } from "../host/sync-to-disk.ts";
import type { Catalog } from "./catalog.ts";
import { ContentHashes } from "./content-hashes.ts";
import type { ImageBuilder } from "./image-builder.ts";
import type { HeldRoot, RootFile, UnpackedImage } from "./images.ts";

export interface AddedRoot {
  readonly image: MovedImage;
  readonly root: MovedRoot;
  readonly path: string;
}

/** The image's own file. */
const OWN_NAME = "root.ext4";
const NAME = /^root(-[0-9a-z]{1,40})?\.ext4$/;

export class MovedRoots {
  readonly #catalog: Catalog;
  readonly #builder: ImageBuilder;
  readonly #hashes = new ContentHashes();
  /** Images that are being added, by their digests. */
  readonly #adding = new Map<string, Promise<void>>();

  constructor({ catalog, builder }: { readonly catalog: Catalog; readonly builder: ImageBuilder }) {
    this.#catalog = catalog;
    this.#builder = builder;
  }

  async named(image: UnpackedImage, name: string): Promise<RootFile> {
    const rootPath = join(dirname(image.rootPath), name);
    const found = NAME.test(name) ? await stat(rootPath).catch(() => undefined) : undefined;
    if (found === undefined)
      throw new Error(`the file ${name} of image ${image.digest}, which the machine's disk is based on, is missing`);
    return { rootPath, rootBytes: found.size };
  }

  async describe({ rootPath, rootBytes }: RootFile, signal: AbortSignal): Promise<MovedRoot> {
    const { blocks } = await stat(rootPath);
    return { bytes: blocks * 512, size: rootBytes, sha256: await this.#hashes.of(rootPath, signal) };
  }

  async find(image: MovedImage, root: MovedRoot): Promise<HeldRoot | null> {
    for (const digest of digestsOf(image, root)) {
      const present = this.#catalog.findByDigest(digest);
      const directory = present === undefined ? null : dirname(present.rootPath);
      const names = directory === null ? [] : await readdir(directory);
      for (const name of names.filter((each) => NAME.test(each))) {
        const path = join(directory ?? "", name);
        if ((await stat(path)).size === root.size && (await this.#hashes.of(path)) === root.sha256)
          return { digest, name };
      }
    }
    return null;
  }

  /** Rejects when the content is not what was described: no other file gets the name of what is here. */
  async add({ image, root, path }: AddedRoot): Promise<HeldRoot> {
    const { digest } = image;
    if ((await stat(path)).size !== root.size || (await this.#hashes.of(path)) !== root.sha256)
      throw new Error("the file system of its image differs from what its node described");
    const present = this.#catalog.findByDigest(digest);
    if (present === undefined) {
      const arrived = arrivedDigest(image, root);
      await this.#addOnce({ ...image, digest: arrived }, digest, path);
      return { digest: arrived, name: OWN_NAME };
    }
    const name = `root-c${root.sha256.slice(0, 32)}.ext4`;
    const directory = dirname(present.rootPath);
    await chmod(path, 0o444);
    await syncToDisk(path);
    await rename(path, join(directory, name));
    await syncToDisk(directory);
    return { digest, name };
  }

  /** Machines of one image often come at the same time: the first one that is complete brings it. */
  async #addOnce(image: MovedImage, arrivedAs: string, path: string): Promise<void> {
    const { digest } = image;
    if (this.#catalog.findByDigest(digest) !== undefined) return;
    const begun = this.#adding.get(digest);
    if (begun !== undefined) return await begun;
    const adding = this.#addImage(image, arrivedAs, path).finally(() => this.#adding.delete(digest));
    this.#adding.set(digest, adding);
    await adding;
  }

  async #addImage(image: MovedImage, arrivedAs: string, path: string): Promise<void> {
    const { digest, source, architecture, os, layerCount, ...rest } = image;
    const { env, workdir, user, entrypoint, command } = rest;
    await using work = await this.#builder.begin();
    const finished = join(work.path, "finished");
    await mkdir(finished);
    const { size, blocks } = await stat(path);
    await rename(path, join(finished, OWN_NAME));
    await this.#catalog.add(finished, {
      ...{ digest, arrivedAs, source, architecture, os, layerCount },
      // Only deploys ask for it, and they ask the registry.
      exposedPort: null,
      configuration: { env, workdir, user, entrypoint, command },
      rootBytes: size,
      sizeBytes: blocks * 512,
    });
  }
}

/** The images that may have the root here: the one that was named, and one that came in the same way. */
export const digestsOf = (image: MovedImage, root: MovedRoot): readonly string[] => [
  image.digest,
  arrivedDigest(image, root),
];

/** The digest of an image that came from another node: of all that a machine uses of it. */
function arrivedDigest(image: MovedImage, { size, sha256 }: MovedRoot): string {
  const { architecture, os, env, workdir, user, entrypoint, command } = image;
  const used = [size, sha256, architecture, os, env, workdir, user, entrypoint, command];
  return `sha256:${createHash("sha256")
    .update(`an image from another node ${JSON.stringify(used)}`)
    .digest("hex")}`;
}
