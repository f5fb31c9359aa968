/**
 * The data directory of `flotilla up`: makes it where it does not exist, and checks that files can be made in
 * it.
 *
 * The check comes before anything is started: a directory that cannot be used is a setting to correct, and
 * deserves a better message than that of the program that fails first. A full disk is none: the database has
 * its reserve there.
 */
import { existsSync, mkdirSync, mkdtempSync, rmdirSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import { ownMessageOf } from "@flotilla/base/errors";
import { type Failure, fileErrorText, usage } from "../failure.ts";

/** Throws a Failure that says why the directory, an absolute path, cannot be used. */
export function requireDirectory(path: string): void {
  try {
    make(path);
    rmdirSync(mkdtempSync(join(path, ".try-")));
  } catch (error) {
    const failure = error as NodeJS.ErrnoException;
    const isFull = failure.code === "ENOSPC" || failure.code === "EDQUOT";
    if (isFull && !existsSync(path)) throw unusable(path, reasonOf(failure), "make room there");
    if (!isFull) throw unusable(path, reasonOf(failure));
  }
}

/** Where no directory is missing, ENOENT is the answer of a file system that takes no entries. */
function reasonOf(error: NodeJS.ErrnoException): string {
  if (error.code === "ENOENT" || error.code === "EPERM") return "no file can be made there";
  return fileErrorText(error) ?? ownMessageOf(error);
}

/**
 * One directory at a time: Node's own recursive mkdir does not end where a directory exists and takes no
 * entry, as in /proc.
 */
function make(path: string): void {
  const found = statSync(path, { throwIfNoEntry: false });
  if (found?.isDirectory()) return;
  if (found !== undefined) throw new Error(`${path} is not a directory`);
  make(dirname(path));
  mkdirSync(path, { mode: 0o700 });
}

const CHOOSE = "choose a directory where this user may make files, with --data-dir DIRECTORY or FLOTILLA_DATA_DIR";

const unusable = (path: string, reason: string, otherwise?: string): Failure =>
  usage(
    `the data directory ${path} cannot be used: ${reason}`,
    otherwise === undefined ? CHOOSE : `${otherwise}, or ${CHOOSE}`,
  );
