/**
 * File systems of images that came from another node with a machine's disk.
 *
 * Each node builds its own file system of an image, and no two are alike: they hold the times and the order
 * of the build. A disk has only the blocks that differ from its own, so it needs exactly that one. It is
 * stored beside the image's own as `root-c<hash>.ext4`, for all machines that came with it, and removed with
 * the image. If the node does not have the image, the file becomes the image's own.
 *
 * Always: a file gets its name only when it is complete and synced, and its content is never written again.
 *
 * A crash leaves the file where it was, so that adding it again does the same.
 */
import { chmod, mkdir, readdir, rename, stat } from "node:fs/promises";
import { dirname, join } from "node:path";
import type { MovedImage, MovedRoot } from "@flotilla/contract/link/moves";
import { syncToDisk } from "../host/sync-to-disk.ts";
import type { Catalog } from "./catalog.ts";
import { ContentHashes } from "./content-hashes.ts";
import type { ImageBuilder } from "./image-builder.ts";
import type { RootFile, UnpackedImage } from "./images.ts";

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

  async find(digest: string, root: MovedRoot): Promise<string | null> {
    const image = this.#catalog.findByDigest(digest);
    if (image === undefined) return null;
    const directory = dirname(image.rootPath);
    for (const name of (await readdir(directory)).filter((each) => NAME.test(each))) {
      const path = join(directory, name);
      if ((await stat(path)).size === root.size && (await this.#hashes.of(path)) === root.sha256) return name;
    }
    return null;
  }

  async add({ image, root, path }: AddedRoot): Promise<string> {
    const present = this.#catalog.findByDigest(image.digest);
    if (present === undefined) {
      await this.#addImage(image, path);
      return OWN_NAME;
    }
    const name = `root-c${(root.sha256 ?? "").slice(0, 32)}.ext4`;
    const directory = dirname(present.rootPath);
    await chmod(path, 0o444);
    await syncToDisk(path);
    await rename(path, join(directory, name));
    await syncToDisk(directory);
    return name;
  }

  async #addImage(image: MovedImage, path: string): Promise<void> {
    const { digest, source, architecture, os, layerCount, ...rest } = image;
    const { env, workdir, user, entrypoint, command } = rest;
    await using work = await this.#builder.begin();
    const finished = join(work.path, "finished");
    await mkdir(finished);
    const { size, blocks } = await stat(path);
    await rename(path, join(finished, OWN_NAME));
    await this.#catalog.add(finished, {
      ...{ digest, source, architecture, os, layerCount },
      configuration: { env, workdir, user, entrypoint, command },
      rootBytes: size,
      sizeBytes: blocks * 512,
    });
  }
}
