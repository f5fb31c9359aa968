/**
 * The files of a fake machine: a map from path to bytes, with the error codes of the real agent's file
 * worker.
 *
 * FAKE: for tests of the control plane. Kept in this process only, across stops and starts of the machine,
 * except for `/tmp`, `/run` and `/dev/shm`. Two variables of the machine's environment control it:
 *
 *     FAKE_LINK=/from:/to     a symbolic link            FAKE_DISK_BYTES=N    capacity of the disk
 */
import type { GuestFileRequest } from "../../guest/guest.ts";
import type { ScriptWorld } from "./script.ts";

interface FakeFile {
  readonly content: Buffer;
  readonly modifiedAt: number;
}

const MEMORY = /^\/(tmp|run|dev\/shm)(\/|$)/;
const CHUNK_BYTES = 64 * 1024;

/** Ends a request with the agent's error code and reason. */
class Failed extends Error {}

export class FakeFiles {
  readonly #files = new Map<string, FakeFile>();
  readonly #directories = new Set(["/", "/tmp", "/run", "/dev", "/dev/shm", "/workspace"]);
  readonly #environment: Readonly<Record<string, string>>;

  constructor(environment: Readonly<Record<string, string>>) {
    this.#environment = environment;
  }

  /** A boot empties the directories in memory. */
  reboot(): void {
    for (const path of this.#files.keys()) if (MEMORY.test(path)) this.#files.delete(path);
  }

  /** The content of the directories in memory, as a suspend saves it. */
  inMemory(): Readonly<Record<string, string>> {
    const files = [...this.#files].filter(([path]) => MEMORY.test(path));
    return Object.fromEntries(files.map(([path, { content }]) => [path, content.toString("base64")]));
  }

  /** Replaces the content of the directories in memory. */
  load(saved: Readonly<Record<string, string>>): void {
    this.reboot();
    for (const [path, content] of Object.entries(saved)) this.append(path, Buffer.from(content, "base64"));
  }

  /** Reads a file for a script. */
  get(path: string): Uint8Array | undefined {
    return this.#files.get(path)?.content;
  }

  append(path: string, data: Uint8Array): void {
    this.#files.set(path, { content: Buffer.concat([this.get(path) ?? Buffer.alloc(0), data]), modifiedAt: 0 });
  }

  delete(path: string): void {
    this.#files.delete(path);
  }

  /** Handles a request as the agent's worker would; returns the exit code. */
  async run(request: GuestFileRequest, world: ScriptWorld, now: () => number): Promise<number> {
    try {
      await this.#do(request, world, now);
      return 0;
    } catch (error) {
      if (!(error instanceof Failed)) throw error;
      await world.write("stderr", error.message);
      return 1;
    }
  }

  async #do(request: GuestFileRequest, world: ScriptWorld, now: () => number): Promise<void> {
    const path = this.#resolve(request.path, request.operation === "write");
    switch (request.operation) {
      case "write":
        return await this.#write(path, world, now);
      case "list":
        return await this.#list(path, world);
      case "remove":
        if (this.#directories.has(path)) throw new Failed("not_empty Directory not empty");
        if (!this.#files.delete(path)) throw new Failed("not_found No such file or directory");
        return;
      case "stat":
        await world.write("stdout", this.#line(path, "\n"));
        return;
      case "read":
        return await this.#read(path, request, world);
    }
  }

  #resolve(wanted: string, isWrite: boolean): string {
    const path = plain(wanted);
    const [from = "", to = ""] = (this.#environment["FAKE_LINK"] ?? "").split(":");
    if (from === "" || (path !== from && !path.startsWith(`${from}/`))) return path;
    const resolved = plain(to + path.slice(from.length));
    if (isWrite && MEMORY.test(resolved) && !MEMORY.test(path)) throw new Failed(`memory ${resolved}`);
    return resolved;
  }

  #line(path: string, end: string): string {
    const file = this.#files.get(path);
    if (file !== undefined) return `f 0644 ${file.content.byteLength} ${file.modifiedAt}${end}`;
    if (this.#directories.has(path)) return `d 0755 4096 0${end}`;
    throw new Failed("not_found No such file or directory");
  }

  async #read(path: string, { offset, length, isFromEnd }: GuestFileRequest, world: ScriptWorld): Promise<void> {
    if (this.#directories.has(path)) throw new Failed("is_directory Is a directory");
    await world.write("stdout", this.#line(path, "\n"));
    const content = this.#files.get(path)?.content ?? Buffer.alloc(0);
    const from = isFromEnd ? Math.max(0, content.byteLength - offset) : offset;
    const part = content.subarray(from, length === null ? undefined : from + length);
    for (let at = 0; at < part.byteLength; at += CHUNK_BYTES) {
      world.checkAlive();
      await world.write("stdout", part.subarray(at, at + CHUNK_BYTES));
    }
  }

  async #list(path: string, world: ScriptWorld): Promise<void> {
    if (!this.#directories.has(path)) {
      throw new Failed(this.#files.has(path) ? "not_directory Not a directory" : "not_found No such file or directory");
    }
    await world.write("stdout", this.#line(path, "\n"));
    const prefix = path === "/" ? "/" : `${path}/`;
    for (const other of [...this.#directories, ...this.#files.keys()]) {
      const name = other.startsWith(prefix) ? other.slice(prefix.length) : "";
      if (name !== "" && !name.includes("/")) await world.write("stdout", `${this.#line(other, "\0")}${name}\0`);
    }
  }

  async #write(path: string, world: ScriptWorld, now: () => number): Promise<void> {
    if (this.#directories.has(path)) throw new Failed("is_directory Is a directory");
    const parents = parentsOf(path);
    if (parents.some((parent) => this.#files.has(parent))) throw new Failed("not_directory Not a directory");
    await world.write("stdout", "ready\n");
    const chunks: Uint8Array[] = [];
    let bytes = 0;
    for await (const chunk of world.input) {
      bytes += chunk.byteLength;
      if (bytes > Number(this.#environment["FAKE_DISK_BYTES"] ?? Number.POSITIVE_INFINITY))
        throw new Failed("no_space No space left on device");
      chunks.push(chunk);
    }
    world.checkAlive();
    for (const parent of parents) this.#directories.add(parent);
    this.#files.set(path, { content: Buffer.concat(chunks), modifiedAt: now() });
  }
}

/** Normalizes a path: without repeated and trailing slashes, `.` and `..`. */
function plain(path: string): string {
  const parts: string[] = [];
  for (const part of path.split("/")) {
    if (part === "..") parts.pop();
    else if (part !== "" && part !== ".") parts.push(part);
  }
  return `/${parts.join("/")}`;
}

function parentsOf(path: string): readonly string[] {
  const parts = path.split("/").slice(1, -1);
  return parts.map((_, index) => `/${parts.slice(0, index + 1).join("/")}`);
}
