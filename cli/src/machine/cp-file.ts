/**
 * What copying a file and copying a directory share.
 *
 * Always: a local file keeps its old content until the new content is complete. Its directory entry is replaced, also
 * when it is a link: nothing is written through a link.
 */
import { randomBytes } from "node:crypto";
import { createWriteStream } from "node:fs";
import { rename, rm, stat } from "node:fs/promises";
import { Readable, type Transform } from "node:stream";
import { pipeline } from "node:stream/promises";
import { errorOf } from "@flotilla/base/errors";
import { Failure } from "../failure.ts";

/** One side of the copy. */
export type CopyEnd =
  | { readonly kind: "machine"; readonly machine: string; readonly path: string }
  | { readonly kind: "local"; readonly path: string };

export const EXECUTABLE = 0o111;

export const megabytes = (bytes: number): string => `${(bytes / 1e6).toFixed(1)} MB`;

export const contentOf = (answer: Response): Readable => Readable.fromWeb(answer.body ?? new ReadableStream());

/** Writes a file of a machine to `target`, through `meter`. */
export async function save(answer: Response, target: string, meter: Transform): Promise<void> {
  const temporary = `${target}.${randomBytes(4).toString("hex")}`;
  const mode = Number.parseInt(answer.headers.get("x-file-mode") ?? "644", 8) & 0o777;
  try {
    await pipeline(contentOf(answer), meter, createWriteStream(temporary, { mode, flags: "wx" }));
    await rename(temporary, target);
  } catch (error) {
    await rm(temporary, { force: true });
    throw localFailure(error, target);
  }
}

export const isDirectory = (path: string): Promise<boolean> =>
  stat(path).then(
    (facts) => facts.isDirectory(),
    () => false,
  );

/** An error of the local file system is not a bug of ours. */
export function localFailure(error: unknown, path: string): Error {
  const { code } = error as NodeJS.ErrnoException;
  const texts: Readonly<Record<string, string>> = {
    ENOENT: "no such file or directory",
    EACCES: "it may not be opened",
    ENOSPC: "the disk is full",
    ENOTDIR: "a part of the path is not a directory",
    EISDIR: "it is a directory",
    EROFS: "the file system is read-only",
  };
  const text = code === undefined ? undefined : texts[code];
  if (text !== undefined) return new Failure(`${path}: ${text}`);
  return errorOf(error);
}
