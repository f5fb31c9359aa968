/**
 * Makes the file system for a disk smaller than the image's own file: shrunk once per image and size, stored
 * beside it as `root-<bytes>.ext4` and removed with the image.
 *
 * Always:
 * - a file gets its name only when it is complete; a crash leaves a work directory, which the image builder
 *   removes;
 * - the programs that change the file system run confined, because its content is untrusted.
 */
import { chmod, mkdir, rename, stat } from "node:fs/promises";
import { dirname, join } from "node:path";
import type { Clock } from "@flotilla/base/clock";
import { runTool } from "../host/out-of-memory.ts";
import { syncToDisk } from "../host/sync-to-disk.ts";
import { ConfinedFailure, requireLeft, runConfined } from "./confine.ts";
import type { RootFile, UnpackedImage } from "./images.ts";
import type { ImageBuilder } from "./image-builder.ts";

export interface SmallerRootRequest {
  readonly image: UnpackedImage;
  readonly bytes: number;
  readonly builder: ImageBuilder;
  readonly clock: Clock;
  /** The program of node/native/jail.c. */
  readonly launcher: string;
  readonly signal: AbortSignal;
}

const TIMEOUT_MS = 5 * 60 * 1000;
const KIB = 1024;

/** Throws an Error with a user-facing message when it cannot be made. */
export async function ensureSmallerRoot(request: SmallerRootRequest): Promise<RootFile> {
  const { image, bytes, builder } = request;
  const rootPath = join(dirname(image.rootPath), `root-${bytes}.ext4`);
  const found = await stat(rootPath).catch(() => undefined);
  if (found !== undefined) return { rootPath, rootBytes: found.size };
  await using work = await builder.begin();
  const files = join(work.path, "files");
  const made = join(files, "root.ext4");
  await mkdir(files);
  await runTool("cp", ["--sparse=always", image.rootPath, made]);
  await chmod(made, 0o600);
  await run(request, work.path, ["e2fsck", "-f", "-y", "/files/root.ext4"]);
  await run(request, work.path, ["resize2fs", "/files/root.ext4", `${Math.floor(bytes / KIB)}K`]).catch(
    (error: unknown) => {
      // The content needs more than that: make it as small as possible.
      if (!(error instanceof ConfinedFailure)) throw error;
      return run(request, work.path, ["resize2fs", "-M", "/files/root.ext4"]);
    },
  );
  await requireLeft("file", made);
  await syncToDisk(made);
  await chmod(made, 0o444);
  await rename(made, rootPath);
  return { rootPath, rootBytes: (await stat(rootPath)).size };
}

async function run(request: SmallerRootRequest, directory: string, argv: readonly string[]): Promise<void> {
  const { clock, launcher, signal } = request;
  await runConfined({ launcher, directory, capabilities: [], argv, timeoutMs: TIMEOUT_MS, signal, clock });
}
