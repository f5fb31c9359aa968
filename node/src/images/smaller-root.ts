/**
 * An image's file system for a disk smaller than the image's own file: shrunk once per image and size, and kept beside
 * it as `root-<bytes>.ext4`, gone with the image.
 *
 * Always: a file has its name only when it is whole; a crash in the middle leaves work that the workshop sweeps. The file
 * system was made of what strangers wrote, so the programs that change it run confined.
 */
import { chmod, mkdir, open, rename, stat } from "node:fs/promises";
import { dirname, join } from "node:path";
import type { Clock } from "@flotilla/base/clock";
import { runTool } from "../host/out-of-memory.ts";
import { ConfinedFailure, runConfined } from "./confine.ts";
import type { RootFile, UnpackedImage } from "./images.ts";
import type { Workshop } from "./workshop.ts";

export interface SmallerRootRequest {
  readonly image: UnpackedImage;
  readonly bytes: number;
  readonly workshop: Workshop;
  readonly clock: Clock;
  readonly signal: AbortSignal;
}

const TIMEOUT_MS = 5 * 60 * 1000;
const KIB = 1024;

/** Throws an Error for people when it cannot be made. */
export async function ensureSmallerRoot(request: SmallerRootRequest): Promise<RootFile> {
  const { image, bytes, workshop } = request;
  const rootPath = join(dirname(image.rootPath), `root-${bytes}.ext4`);
  const found = await stat(rootPath).catch(() => undefined);
  if (found !== undefined) return { rootPath, rootBytes: found.size };
  await using work = await workshop.begin();
  const files = join(work.path, "files");
  const made = join(files, "root.ext4");
  await mkdir(files);
  await runTool("cp", ["--sparse=always", image.rootPath, made]);
  await chmod(made, 0o600);
  await run(request, work.path, ["e2fsck", "-f", "-y", "/files/root.ext4"]);
  await run(request, work.path, ["resize2fs", "/files/root.ext4", `${Math.floor(bytes / KIB)}K`]).catch(
    (error: unknown) => {
      // What is on it needs more than was asked: as small as it goes.
      if (!(error instanceof ConfinedFailure)) throw error;
      return run(request, work.path, ["resize2fs", "-M", "/files/root.ext4"]);
    },
  );
  await flush(made);
  await chmod(made, 0o444);
  await rename(made, rootPath);
  return { rootPath, rootBytes: (await stat(rootPath)).size };
}

async function run({ clock, signal }: SmallerRootRequest, directory: string, argv: readonly string[]): Promise<void> {
  await runConfined({ directory, capabilities: ["dac_override"], argv, timeoutMs: TIMEOUT_MS, signal, clock });
}

async function flush(path: string): Promise<void> {
  const handle = await open(path, "r");
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}
