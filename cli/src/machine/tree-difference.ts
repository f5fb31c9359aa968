/**
 * The files that differ between two machines, from lists of their directories.
 *
 * Always:
 * - Files are compared by kind, size, permissions and time. Content is compared, by its hash, where only the
 *   times differ and the file is small; a larger one counts as changed.
 * - Only differences are held in memory, and at most ENTRIES_MAX entries are looked at.
 * - A directory that goes while it is read is empty: both machines run.
 * - File names from a machine are not trusted: one that is not plain ends the comparison.
 */
import { posix } from "node:path";
import { mapAtMost } from "@flotilla/base/concurrency";
import type { FileEntry } from "@flotilla/sdk";
import { Failure } from "../failure.ts";
import { isPlainName } from "./cp-tree.ts";

/** Directories that are read concurrently, in each machine. */
const AT_ONCE = 4;
const ENTRIES_MAX = 200_000;
/** The API gives the hash of a file up to this size. */
const HASHED_BYTES_MAX = 1024 * 1024;
/** What is in memory, or is of the machine's kernel. Looked into only where the comparison begins there. */
const LEFT_OUT: ReadonlySet<string> = new Set(["/proc", "/sys", "/dev", "/run", "/tmp"]);

type Facts = Omit<FileEntry, "name">;

export interface Difference {
  readonly change: "added" | "changed" | "removed";
  readonly path: string;
  /** In the first machine; null: it is not there. */
  readonly before: Facts | null;
  readonly after: Facts | null;
}

/** The files of one machine. */
export interface FilesOf {
  /** null: there is no directory at the path. */
  list(path: string): Promise<readonly FileEntry[] | null>;
  /** The hash of a file's content; null: it is not known. */
  hash(path: string): Promise<string | null>;
}

export interface TreeDifference {
  readonly differences: readonly Difference[];
  /** Directories whose names are not UTF-8: the API cannot list them. */
  readonly unread: number;
}

/** A directory, and in which of the machines it is one. */
interface Place {
  readonly path: string;
  readonly isIn: readonly [before: boolean, after: boolean];
}

/** What differs below `path`. Throws a Failure when it is a directory in neither, or has too much. */
export async function compareTrees(before: FilesOf, after: FilesOf, path: string): Promise<TreeDifference> {
  const comparison = new Comparison(before, after);
  const first = await comparison.read({ path, isIn: [true, true] });
  if (first === null) throw new Failure(`${path} is not a directory in either machine`);
  // Level by level, so that the number of requests under way is bounded, however deep the trees are.
  for (let level = first; level.length > 0; ) {
    const below = await mapAtMost(AT_ONCE, level, async (place) => (await comparison.read(place)) ?? []);
    level = below.flat();
  }
  const differences = comparison.differences.toSorted((one, other) => (one.path < other.path ? -1 : 1));
  return { differences, unread: comparison.unread };
}

class Comparison {
  readonly differences: Difference[] = [];
  unread = 0;
  readonly #before: FilesOf;
  readonly #after: FilesOf;
  #entries = 0;

  constructor(before: FilesOf, after: FilesOf) {
    this.#before = before;
    this.#after = after;
  }

  /** Compares the entries of one directory. Returns the directories in it; null: it is in neither machine. */
  async read({ path, isIn }: Place): Promise<readonly Place[] | null> {
    const [before, after] = await Promise.all([
      isIn[0] ? this.#before.list(path) : null,
      isIn[1] ? this.#after.list(path) : null,
    ]);
    if (before === null && after === null) return null;
    const olds = new Map((before ?? []).map((entry) => [entry.name, entry]));
    const news = new Map((after ?? []).map((entry) => [entry.name, entry]));
    const names = [...new Set([...olds.keys(), ...news.keys()])];
    this.#entries += names.length;
    if (this.#entries > ENTRIES_MAX)
      throw new Failure(`there are more than ${ENTRIES_MAX} files to compare`, "name a directory, such as /etc");
    const below: Place[] = [];
    for (const name of names) {
      if (!isPlainName(name))
        throw new Failure(`${path} has a file named ${JSON.stringify(name)}, which is not a valid file name`);
      const place = await this.#compare(posix.join(path, name), olds.get(name) ?? null, news.get(name) ?? null);
      if (place !== null) below.push(place);
    }
    return below;
  }

  /** Returns the place if it is a directory that is to be read. */
  async #compare(path: string, old: FileEntry | null, now: FileEntry | null): Promise<Place | null> {
    if (old === null) this.#differs("added", path, old, now);
    else if (now === null) this.#differs("removed", path, old, now);
    else if (!(await this.#isSame(path, old, now))) this.#differs("changed", path, old, now);
    const isIn = [old?.kind === "directory", now?.kind === "directory"] as const;
    if (!(isIn[0] || isIn[1]) || LEFT_OUT.has(path)) return null;
    if (!path.includes("\ufffd")) return { path, isIn };
    this.unread += 1;
    return null;
  }

  #differs(change: Difference["change"], path: string, old: FileEntry | null, now: FileEntry | null): void {
    this.differences.push({ change, path, before: factsOf(old), after: factsOf(now) });
  }

  async #isSame(path: string, old: FileEntry, now: FileEntry): Promise<boolean> {
    if (old.kind !== now.kind || old.mode !== now.mode) return false;
    // A directory differs by what is in it; the size and time of a device say nothing.
    if (old.kind === "directory" || old.kind === "other") return true;
    if (old.size !== now.size) return false;
    if (old.modifiedAt === now.modifiedAt || (old.kind === "file" && old.size === 0)) return true;
    if (old.kind !== "file" || old.size > HASHED_BYTES_MAX) return false;
    const [one, other] = await Promise.all([this.#before.hash(path), this.#after.hash(path)]);
    return one !== null && one === other;
  }
}

const factsOf = (entry: FileEntry | null): Facts | null => {
  if (entry === null) return null;
  const { name: _, ...facts } = entry;
  return facts;
};
