/**
 * The file system of simulated hosts, in memory: what the node agent calls of `node:fs` for paths below ROOT.
 * Other paths are the real ones.
 *
 * An operation is an event: it takes effect as a whole when it happens, except that an agent that is killed
 * in the middle of a write leaves a part of it. What a killed agent has written stays, as the kernel's page
 * cache does.
 *
 * Each host has what was synced beside what is there, so that a loss of its power leaves the one and not the
 * other.
 */
import fs from "node:fs";
import fsPromises from "node:fs/promises";
import { syncBuiltinESMExports } from "node:module";
import { basename, dirname } from "node:path";
import type { Program, World } from "./world.ts";

export const ROOT = "/simulated";
/** Where images of the fake driver would be. */
const FAKE_IMAGES = "/fake/";
const OPERATION_MS_MAX = 0.4;
const SYNC_MS_MAX = 4;

class File {
  content: Buffer = Buffer.alloc(0);
  /** What a loss of power leaves; null: nothing was ever synced. */
  synced: Buffer | null = null;
  readonly inode: number;
  mode: number;
  changedAt: number;

  constructor(inode: number, mode: number, changedAt: number) {
    this.inode = inode;
    this.mode = mode;
    this.changedAt = changedAt;
  }
}

class Directory {
  readonly entries = new Map<string, Entry>();
  /** The entries that a loss of power leaves. */
  synced = new Map<string, Entry>();
  readonly inode: number;
  mode = 0o700;
  changedAt: number;

  constructor(inode: number, changedAt: number) {
    this.inode = inode;
    this.changedAt = changedAt;
  }
}

type Entry = File | Directory;

/**
 * Called when a file was written completely under its name, or has another name (`isLink`), and when it is
 * gone.
 */
export interface FileWatcher {
  readonly appeared: (path: string, content: Buffer, isLink?: boolean) => void;
  readonly vanished: (path: string) => void;
}

export class Files {
  readonly #world: World;
  readonly #root: Directory;
  #inodes = 1;
  watcher: FileWatcher | null = null;
  operations = 0;

  constructor(world: World) {
    this.#world = world;
    this.#root = this.#directory();
  }

  // What tests and the world itself use: at once, for no program.

  has(path: string): boolean {
    return this.#find(path) !== undefined;
  }

  names(path: string): readonly string[] {
    const found = this.#find(path);
    return found instanceof Directory ? [...found.entries.keys()].toSorted() : [];
  }

  text(path: string): string | null {
    const found = this.#find(path);
    return found instanceof File ? found.content.toString() : null;
  }

  remove(path: string): void {
    this.#remove(path);
  }

  /** An empty file. */
  put(path: string): void {
    this.#create(path, 0o600, true);
  }

  makeDirectories(path: string): Directory {
    let at = this.#root;
    for (const name of path.split("/").filter((part) => part !== "")) {
      let next = at.entries.get(name);
      if (next === undefined) {
        next = this.#directory();
        at.entries.set(name, next);
        at.changedAt = this.#world.now;
      }
      if (next instanceof File) throw failure("ENOTDIR", path);
      at = next;
    }
    return at;
  }

  /** What is left of a host's files when its power is lost: of what was not synced, each change or not. */
  losePower(path: string): void {
    const found = this.#find(path);
    if (found instanceof Directory) this.#lose(path, found);
  }

  /** Everything there is below a path counts as synced. */
  sync(path: string): void {
    const found = this.#find(path);
    if (found !== undefined) syncAll(found);
  }

  #lose(path: string, directory: Directory): void {
    const { random } = this.#world;
    for (const name of new Set([...directory.entries.keys(), ...directory.synced.keys()])) {
      const [now, then] = [directory.entries.get(name), directory.synced.get(name)];
      const kept = now === then || random.happens(0.5) ? now : then;
      const child = `${path}/${name}`;
      if (kept !== now) {
        if (now !== undefined) this.#vanish(child, now);
        if (kept === undefined) directory.entries.delete(name);
        else directory.entries.set(name, kept);
      }
      if (kept instanceof Directory) this.#lose(child, kept);
      else if (kept !== undefined && random.happens(0.5)) kept.content = kept.synced ?? Buffer.alloc(0);
      if (kept instanceof File && kept !== now) this.watcher?.appeared(child, kept.content);
    }
    syncAll(directory);
  }

  // The calls of programs.

  /** An operation of the program that runs. `partly`: what a killed program leaves of it. */
  async perform<T>(ms: number, work: () => T, partly?: () => void): Promise<T> {
    const world = this.#world;
    const owner = world.program;
    const done = Promise.withResolvers<T>();
    const hangsMs = Math.max(0, owner.filesAnswerAt - world.now);
    world.after(hangsMs + world.random.between(0.01, ms), owner, () => {
      this.operations += 1;
      if (owner.dies("files")) {
        const how = world.random.below(3);
        if (how === 1 && partly !== undefined) attempt(partly);
        if (how === 2) attempt(work);
        world.note(`${owner.name} dies in an operation on files (${["before", "in", "after"][how]} it)`);
        owner.kill();
        return;
      }
      world.activity += 1;
      try {
        done.resolve(work());
      } catch (error) {
        done.reject(error);
      }
    });
    return await done.promise;
  }

  readFile(path: string): Promise<Buffer> {
    return this.perform(OPERATION_MS_MAX, () => Buffer.from(this.#file(path).content));
  }

  writeFile(path: string, content: Buffer, { mode, flush }: { mode: number; flush: boolean }): Promise<void> {
    const write = (bytes: Buffer) => {
      const file = this.#create(path, mode, true);
      file.content = bytes;
      file.changedAt = this.#world.now;
      if (flush) file.synced = bytes;
      this.watcher?.appeared(path, bytes);
    };
    return this.perform(
      flush ? SYNC_MS_MAX : OPERATION_MS_MAX,
      () => write(content),
      () => write(content.subarray(0, content.byteLength >> 1)),
    );
  }

  rename(from: string, to: string): Promise<void> {
    return this.perform(OPERATION_MS_MAX, () => {
      const source = this.#parent(from);
      const moved = source.entries.get(basename(from));
      if (moved === undefined) throw failure("ENOENT", from);
      const target = this.#parent(to);
      const replaced = target.entries.get(basename(to));
      if (replaced instanceof Directory && replaced.entries.size > 0) throw failure("ENOTEMPTY", to);
      source.entries.delete(basename(from));
      target.entries.set(basename(to), moved);
      source.changedAt = target.changedAt = this.#world.now;
      this.#vanish(from, moved);
      this.#appear(to, moved);
    });
  }

  link(from: string, to: string): Promise<void> {
    return this.perform(OPERATION_MS_MAX, () => {
      const file = this.#file(from);
      const parent = this.#parent(to);
      if (parent.entries.has(basename(to))) throw failure("EEXIST", to);
      parent.entries.set(basename(to), file);
      this.watcher?.appeared(to, file.content, true);
    });
  }

  rm(path: string, { recursive, force }: { recursive: boolean; force: boolean }): Promise<void> {
    return this.perform(OPERATION_MS_MAX, () => {
      const found = this.#find(path);
      if (found === undefined) {
        if (force) return;
        throw failure("ENOENT", path);
      }
      if (found instanceof Directory && !recursive) throw failure("ERR_FS_EISDIR", path);
      this.#remove(path);
    });
  }

  rmdir(path: string): Promise<void> {
    return this.perform(OPERATION_MS_MAX, () => {
      if (this.#list(path).entries.size > 0) throw failure("ENOTEMPTY", path);
      this.#remove(path);
    });
  }

  mkdir(path: string, recursive: boolean): Promise<void> {
    return this.perform(OPERATION_MS_MAX, () => this.mkdirSync(path, recursive));
  }

  mkdirSync(path: string, recursive: boolean): void {
    if (recursive) return void this.makeDirectories(path);
    const parent = this.#parent(path);
    if (parent.entries.has(basename(path))) throw failure("EEXIST", path);
    parent.entries.set(basename(path), this.#directory());
    parent.changedAt = this.#world.now;
  }

  readdir(path: string): Promise<string[]> {
    return this.perform(OPERATION_MS_MAX, () => [...this.#list(path).entries.keys()].toSorted());
  }

  stat(path: string, bigint = false): Promise<object> {
    return this.perform(OPERATION_MS_MAX, () => statsOf(this.#get(path), this.#world, bigint));
  }

  /** Changes only what no invariant looks at. */
  touch(path: string, change: (entry: Entry) => void): Promise<void> {
    return this.perform(OPERATION_MS_MAX, () => change(this.#get(path)));
  }

  async open(path: string, flags: string, mode: number): Promise<OpenFile> {
    const entry = await this.perform(OPERATION_MS_MAX, () =>
      flags.startsWith("r") ? this.#get(path) : this.#create(path, mode, flags.startsWith("w")),
    );
    return new OpenFile(this, this.#world, path, entry, flags.startsWith("a"));
  }

  // Helpers.

  #directory(): Directory {
    this.#inodes += 1;
    return new Directory(this.#inodes, this.#world.now);
  }

  #find(path: string): Entry | undefined {
    let at: Entry | undefined = this.#root;
    for (const name of path.split("/")) {
      if (name === "") continue;
      if (!(at instanceof Directory)) return undefined;
      at = at.entries.get(name);
    }
    return at;
  }

  #get(path: string): Entry {
    const found = this.#find(path);
    if (found === undefined) throw failure("ENOENT", path);
    return found;
  }

  #file(path: string): File {
    const found = this.#get(path);
    if (found instanceof Directory) throw failure("EISDIR", path);
    return found;
  }

  #list(path: string): Directory {
    const found = this.#get(path);
    if (found instanceof File) throw failure("ENOTDIR", path);
    return found;
  }

  #parent(path: string): Directory {
    return this.#list(dirname(path));
  }

  #create(path: string, mode: number, truncates: boolean): File {
    const parent = this.#parent(path);
    const known = parent.entries.get(basename(path));
    if (known instanceof Directory) throw failure("EISDIR", path);
    if (known !== undefined) {
      if (truncates) known.content = Buffer.alloc(0);
      return known;
    }
    this.#inodes += 1;
    const file = new File(this.#inodes, mode, this.#world.now);
    parent.entries.set(basename(path), file);
    parent.changedAt = this.#world.now;
    return file;
  }

  #remove(path: string): void {
    const found = this.#find(path);
    if (found === undefined) return;
    const parent = this.#parent(path);
    parent.entries.delete(basename(path));
    parent.changedAt = this.#world.now;
    this.#vanish(path, found);
  }

  #vanish(path: string, entry: Entry): void {
    if (entry instanceof File) this.watcher?.vanished(path);
    else for (const [name, child] of entry.entries) this.#vanish(`${path}/${name}`, child);
  }

  #appear(path: string, entry: Entry): void {
    if (entry instanceof File) this.watcher?.appeared(path, entry.content);
    else for (const [name, child] of entry.entries) this.#appear(`${path}/${name}`, child);
  }
}

class OpenFile implements AsyncDisposable {
  readonly #files: Files;
  readonly #world: World;
  readonly #path: string;
  readonly #entry: Entry;
  readonly #appends: boolean;
  #position = 0;

  constructor(files: Files, world: World, path: string, entry: Entry, appends: boolean) {
    this.#files = files;
    this.#world = world;
    this.#path = path;
    this.#entry = entry;
    this.#appends = appends;
  }

  get #file(): File {
    if (this.#entry instanceof File) return this.#entry;
    throw failure("EISDIR", this.#path);
  }

  writeFile(data: string | Buffer): Promise<void> {
    const bytes = Buffer.from(data as string);
    const write = (part: Buffer): void => {
      const at = this.#appends ? this.#file.content.byteLength : this.#position;
      this.#put(part, at);
      this.#position = at + part.byteLength;
    };
    return this.#files.perform(
      OPERATION_MS_MAX,
      () => write(bytes),
      () => write(bytes.subarray(0, bytes.byteLength >> 1)),
    );
  }

  appendFile(data: string | Buffer): Promise<void> {
    return this.writeFile(data);
  }

  async write(data: Buffer, from: number, length: number, position: number | null): Promise<{ bytesWritten: number }> {
    const bytes = Buffer.from(data.subarray(from, from + length));
    const at = position ?? this.#position;
    if (position === null) this.#position += length;
    const write = (part: Buffer): void => this.#put(part, at);
    await this.#files.perform(
      OPERATION_MS_MAX,
      () => write(bytes),
      () => write(bytes.subarray(0, length >> 1)),
    );
    return { bytesWritten: length };
  }

  async read(buffer: Buffer, to: number, length: number, position: number | null): Promise<{ bytesRead: number }> {
    const at = position ?? this.#position;
    const part = await this.#files.perform(OPERATION_MS_MAX, () => this.#file.content.subarray(at, at + length));
    if (position === null) this.#position += part.byteLength;
    return { bytesRead: part.copy(buffer, to) };
  }

  stat(): Promise<object> {
    return this.#files.perform(OPERATION_MS_MAX, () => statsOf(this.#entry, this.#world, false));
  }

  truncate(size = 0): Promise<void> {
    return this.#files.perform(OPERATION_MS_MAX, () => {
      const file = this.#file;
      const next = Buffer.alloc(size);
      file.content.copy(next);
      file.content = next;
    });
  }

  sync(): Promise<void> {
    return this.#files.perform(SYNC_MS_MAX, () => {
      if (this.#entry instanceof File) this.#entry.synced = this.#entry.content;
      else this.#entry.synced = new Map(this.#entry.entries);
    });
  }

  datasync(): Promise<void> {
    return this.sync();
  }

  close(): Promise<void> {
    return Promise.resolve();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #put(part: Buffer, at: number): void {
    const file = this.#file;
    const next = Buffer.alloc(Math.max(file.content.byteLength, at + part.byteLength));
    file.content.copy(next);
    part.copy(next, at);
    file.content = next;
    file.changedAt = this.#world.now;
  }
}

function syncAll(entry: Entry): void {
  if (entry instanceof File) {
    entry.synced = entry.content;
    return;
  }
  entry.synced = new Map(entry.entries);
  for (const child of entry.entries.values()) syncAll(child);
}

function attempt(work: () => unknown): void {
  try {
    work();
  } catch {
    // The program is dead, so there is no caller.
  }
}

function statsOf(entry: Entry, world: World, bigint: boolean): object {
  const size = entry instanceof File ? entry.content.byteLength : 4096;
  const mtimeMs = world.toEpoch(entry.changedAt);
  const blocks = Math.ceil(size / 512);
  const uid = process.getuid?.() ?? 0;
  const shared = {
    mode: entry.mode,
    uid,
    isFile: () => entry instanceof File,
    isDirectory: () => entry instanceof Directory,
  };
  if (!bigint) return { ...shared, ino: entry.inode, size, blocks, mtimeMs, nlink: 1 };
  const mtimeNs = BigInt(Math.round(mtimeMs * 1000)) * 1000n;
  return { ...shared, ino: BigInt(entry.inode), size: BigInt(size), blocks: BigInt(blocks), mtimeNs };
}

function failure(code: string, path: string): NodeJS.ErrnoException {
  return Object.assign(new Error(`${code}: ${path}`), { code, path });
}

const bytesOf = (data: unknown): Buffer => Buffer.from(data as string);

/** The files of a program; throws for code that no program runs. */
type FilesOf = (program: Program) => Files;

/** From now on calls below ROOT reach the files of the program that makes them. */
export function patchFiles(programOf: () => Program, filesOf: FilesOf): void {
  const here = (path: unknown): path is string =>
    typeof path === "string" && (path.startsWith(ROOT) || path.startsWith(FAKE_IMAGES));
  const files = (): Files => filesOf(programOf());
  const replace = (name: string, mine: (...parameters: never[]) => unknown): void => {
    const all = fsPromises as unknown as Record<string, (...parameters: unknown[]) => unknown>;
    const real = all[name] as (...parameters: unknown[]) => unknown;
    all[name] = (path, ...rest) => (here(path) ? mine(...([path, ...rest] as never[])) : real(path, ...rest));
  };
  replace("readFile", async (path: string, options?: string | { encoding?: string }) => {
    const content = await files().readFile(path);
    return options === undefined ? content : content.toString();
  });
  replace("writeFile", (path: string, data: unknown, options?: { mode?: number; flush?: boolean }) =>
    files().writeFile(path, bytesOf(data), { mode: options?.mode ?? 0o644, flush: options?.flush === true }),
  );
  replace("rename", (from: string, to: string) => files().rename(from, to));
  replace("link", (from: string, to: string) => files().link(from, to));
  replace("rm", (path: string, options?: { recursive?: boolean; force?: boolean }) =>
    files().rm(path, { recursive: options?.recursive === true, force: options?.force === true }),
  );
  replace("rmdir", (path: string) => files().rmdir(path));
  replace("mkdir", (path: string, options?: { recursive?: boolean }) =>
    files().mkdir(path, options?.recursive === true),
  );
  replace("readdir", (path: string) => files().readdir(path));
  replace("stat", (path: string, options?: { bigint?: boolean }) => files().stat(path, options?.bigint === true));
  replace("statfs", () => Promise.resolve({ bavail: 2 ** 30, blocks: 2 ** 31, bsize: 4096 }));
  replace("chmod", (path: string, mode: number) => files().touch(path, (entry) => (entry.mode = mode)));
  replace("chown", (path: string) => files().touch(path, () => undefined));
  replace("utimes", (path: string, _read: number, seconds: number) =>
    files().touch(path, (entry) => (entry.changedAt = seconds * 1000 - programOf().world.toEpoch(0))),
  );
  replace("open", (path: string, flags = "r", mode = 0o666) => files().open(path, flags, mode));
  for (const name of ["access", "appendFile", "copyFile", "lstat", "symlink", "truncate", "unlink"])
    replace(name, (path: string) => Promise.reject(new Error(`${name} is not simulated: ${path}`)));
  const { mkdirSync } = fs;
  fs.mkdirSync = ((path: string, options?: { recursive?: boolean }) =>
    here(path) ? files().mkdirSync(path, options?.recursive === true) : mkdirSync(path, options)) as typeof mkdirSync;
  syncBuiltinESMExports();
}
