/**
 * `flotilla machine cp -r`: copies a directory into a machine or out of it, file by file through the files
 * API, so that the machine needs no program for it.
 *
 * Always:
 * - File names from a machine are not trusted: a name that is not plain ends the copy, and nothing is written
 *   through a local link, so nothing outside the destination changes.
 * - Links and special files are skipped and counted.
 * - Each file is complete or absent. A copy that fails keeps the files already copied.
 *
 * An archive would be faster for thousands of small files, but would need a program in every image, and a
 * reader here that withstands hostile archives.
 */
import { createReadStream } from "node:fs";
import { lstat, mkdir, readdir } from "node:fs/promises";
import { basename, join, posix, resolve } from "node:path";
import { Transform } from "node:stream";
import { mapAtMost } from "@flotilla/base/concurrency";
import { type Flotilla, FlotillaError } from "@flotilla/sdk";
import type { Call } from "../call.ts";
import { Failure, localFailure } from "../failure.ts";
import { nodeFetch } from "../node-fetch.ts";
import type { Progress } from "../output.ts";
import {
  bodyOf,
  brokenTransfer,
  type CopyEnd,
  fileText,
  inMachine,
  isDirectory,
  type MachineFile,
  megabytes,
  permissionsOf,
  save,
} from "./cp-file.ts";
import { stoppable } from "../stoppable.ts";
import { findMachine } from "./find.ts";

/** Files copied concurrently. */
const AT_ONCE = 4;
/** Paths for one command in the machine. */
const PATHS_MAX = 200;
const DEPTH_MAX = 200;

interface Entry {
  readonly name: string;
  readonly kind: string;
}

export async function copyTree(call: Call, source: CopyEnd, destination: CopyEnd): Promise<number> {
  const machine = source.kind === "machine" ? source : destination;
  if (machine.kind !== "machine") return 0;
  const flotilla = call.flotilla(nodeFetch);
  const { id } = await findMachine(flotilla, machine.machine);
  using progress = call.output.progress(`copying ${source.path}`);
  const tree = new Tree(call, { flotilla, id, machine: machine.machine, progress });
  if (source.kind === "machine") {
    const to = resolve(call.world.directory, destination.path);
    const stopping = new AbortController();
    const code = await stoppable(call, stopping, () => tree.download(source.path, to, stopping.signal));
    if (code !== 0) return code;
  } else await tree.upload(resolve(call.world.directory, source.path), destination.path);
  tree.tell();
  return 0;
}

/** Whether a name can only denote a file in its directory. Pure. */
export function isPlainName(name: string): boolean {
  return name !== "" && name !== "." && name !== ".." && !/[/\0]/.test(name);
}

class Tree {
  readonly #call: Call;
  readonly #flotilla: Flotilla;
  readonly #id: string;
  readonly #machine: string;
  readonly #progress: Progress;
  #files = 0;
  #bytes = 0;
  #leftOut = 0;
  /** Paths by the permissions that they are to have. */
  readonly #permissions = new Map<string, string[]>();
  readonly #emptyDirectories: string[] = [];

  constructor(
    call: Call,
    to: { readonly flotilla: Flotilla; readonly id: string; readonly machine: string; readonly progress: Progress },
  ) {
    this.#call = call;
    this.#flotilla = to.flotilla;
    this.#id = to.id;
    this.#machine = to.machine;
    this.#progress = to.progress;
  }

  async download(from: string, to: string, stopped: AbortSignal): Promise<void> {
    const target = (await isDirectory(to)) ? join(to, basename(from)) : to;
    await this.#downloadInto(from, target, { depth: 0, stopped });
  }

  async #downloadInto(from: string, to: string, at: { readonly depth: number; readonly stopped: AbortSignal }) {
    const entries = await this.#list(from, at.depth, at.stopped).catch((error: unknown) => {
      const isFile =
        error instanceof FlotillaError && error.code === "conflict" && error.details.resource?.kind === "file";
      throw isFile ? new Failure(`${fileText(this.#file(from))} is not a directory`, "leave out -r") : error;
    });
    // Checks what exists already: a link would lead outside the destination.
    await mkdir(to).catch(async (error: NodeJS.ErrnoException) => {
      if (error.code !== "EEXIST") throw localFailure(error, to);
      if (!(await lstat(to)).isDirectory()) throw new Failure(`${to} exists and is not a directory`);
    });
    await eachOf(entries, async ({ name, kind }, failed) => {
      if (!isPlainName(name))
        throw new Failure(`${from} has a file named ${JSON.stringify(name)}, which is not a valid file name`);
      if (kind === "directory") return;
      if (kind !== "file") this.#leftOut += 1;
      else {
        const path = posix.join(from, name);
        const answer = await this.#read(path, { signal: AbortSignal.any([failed, at.stopped]) });
        await save(answer, this.#file(path), { target: join(to, name), meter: this.#meter() });
      }
    });
    for (const { name, kind } of entries)
      if (kind === "directory")
        await this.#downloadInto(posix.join(from, name), join(to, name), { ...at, depth: at.depth + 1 });
  }

  async #list(path: string, depth: number, signal?: AbortSignal): Promise<readonly Entry[]> {
    if (depth > DEPTH_MAX) throw new Failure(`${path} is nested too deeply`);
    const answer = await this.#read(path, { query: { list: true }, signal });
    const text = await answer.text().catch(() => Promise.reject(brokenTransfer(this.#file(path))));
    return JSON.parse(text) as readonly Entry[];
  }

  #read(path: string, options: Parameters<Flotilla["readFileAt"]>[2] = {}): Promise<Response> {
    return inMachine(this.#file(path), () => this.#flotilla.readFileAt(this.#id, path, options));
  }

  #file(path: string): MachineFile {
    return { machine: this.#machine, path };
  }

  async upload(from: string, to: string): Promise<void> {
    const facts = await lstat(from).catch((error: unknown) => Promise.reject(localFailure(error, from)));
    if (!facts.isDirectory()) throw new Failure(`${from} is not a directory`, "leave out -r");
    const isInside = to.endsWith("/") || (await this.#directoryExists(to));
    await this.#uploadInto(from, isInside ? posix.join(to, basename(from)) : to, 0);
    await this.#run(["mkdir", "-p", "--"], this.#emptyDirectories, "made");
    for (const [permissions, paths] of this.#permissions)
      await this.#run(["chmod", permissions, "--"], paths, `given the permissions ${permissions}`);
  }

  async #directoryExists(path: string): Promise<boolean> {
    try {
      await this.#list(path, 0);
      return true;
    } catch (error) {
      if (!(error instanceof FlotillaError) || (error.code !== "not_found" && error.code !== "conflict")) throw error;
      return false;
    }
  }

  async #uploadInto(from: string, to: string, depth: number): Promise<void> {
    if (depth > DEPTH_MAX) throw new Failure(`${from} is nested too deeply`);
    const entries = await readdir(from, { withFileTypes: true }).catch((error: unknown) =>
      Promise.reject(localFailure(error, from)),
    );
    if (entries.length === 0) this.#emptyDirectories.push(to);
    await eachOf(entries, async (entry, signal) => {
      if (entry.isFile()) await this.#send(join(from, entry.name), posix.join(to, entry.name), signal);
      else if (!entry.isDirectory()) this.#leftOut += 1;
    });
    for (const entry of entries)
      if (entry.isDirectory()) await this.#uploadInto(join(from, entry.name), posix.join(to, entry.name), depth + 1);
  }

  async #send(from: string, to: string, signal: AbortSignal): Promise<void> {
    const { mode } = await lstat(from).catch((error: unknown) => Promise.reject(localFailure(error, from)));
    const body = bodyOf(createReadStream(from), from, this.#meter());
    await inMachine(this.#file(to), () => this.#flotilla.putFileAt(this.#id, to, body, { signal }));
    const permissions = permissionsOf(mode);
    if (permissions === null) return;
    const paths = this.#permissions.get(permissions);
    if (paths === undefined) this.#permissions.set(permissions, [to]);
    else paths.push(to);
  }

  /** Runs a program in the machine for what the files API cannot do. */
  async #run(program: readonly string[], paths: readonly string[], what: string): Promise<void> {
    for (let at = 0; at < paths.length; at += PATHS_MAX) {
      const command = [...program, ...paths.slice(at, at + PATHS_MAX)];
      const { exitCode, stderr } = await this.#flotilla.exec(this.#id, { command });
      if (exitCode !== 0)
        throw new Failure(`the files were copied, but not all could be ${what}: ${stderr.trim().slice(0, 300)}`);
    }
  }

  #meter(): Transform {
    this.#files += 1;
    return new Transform({
      transform: (chunk: Buffer, _encoding, done) => {
        this.#bytes += chunk.byteLength;
        this.#progress.say(`copying: ${this.#files} files, ${megabytes(this.#bytes)}`);
        done(null, chunk);
      },
    });
  }

  tell(): void {
    const leftOut =
      this.#leftOut === 1 ? "1 link or special file was" : `${this.#leftOut} links and special files were`;
    if (this.#leftOut > 0) this.#call.output.note(`flotilla: ${leftOut} skipped`);
  }
}

/** Does the work for each item, a few concurrently; the first failure ends it, and aborts what runs. */
async function eachOf<T>(items: readonly T[], work: (item: T, signal: AbortSignal) => Promise<void>): Promise<void> {
  const failed = new AbortController();
  await mapAtMost(AT_ONCE, items, (item) =>
    work(item, failed.signal).catch((error: unknown) => {
      failed.abort();
      throw error;
    }),
  );
}
