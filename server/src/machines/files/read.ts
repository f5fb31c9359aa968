/**
 * Reads a file of a machine, whole or in part, and lists directories.
 *
 * Always: a file is streamed, and what does not come in full breaks the answer instead of ending it; a small one is read
 * first, so that its hash stands in the head.
 */
import { createHash } from "node:crypto";
import { Readable } from "node:stream";
import { errorOf } from "@flotilla/base/errors";
import { Refusal } from "@flotilla/contract/errors";
import type { FileEntry } from "@flotilla/contract/files";
import type { MachineServices } from "../services.ts";
import { type FileStatus, parseEntries, parseStatus } from "./answer.ts";
import { locate, type Part, WHOLE } from "./range.ts";
import { beginFileWork, type FileTarget } from "./work.ts";

/** Files up to this size are held for their hash. */
const HASHED_BYTES_MAX = 1024 * 1024;
const ENTRIES_MAX = 100_000;

export interface FileRead {
  readonly status: 200 | 206;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Readable;
}

/** `part` undefined: all of it. */
export async function readFile(
  services: MachineServices,
  target: FileTarget,
  part: Part | undefined,
): Promise<FileRead> {
  const content = new Content();
  const request = { operation: "read", ...(part ?? WHOLE) } as const;
  const work = await beginFileWork(services, target, request, (chunk) => content.accept(chunk));
  content.onDestroy = () => work.exec.close();
  const status = parseStatus(work.firstLine);
  const located = part === undefined ? { first: 0, count: status.size } : locate(part, status.size);
  if (located === undefined) {
    content.destroy();
    const text = `the range asked for lies outside ${target.path}, which has ${status.size} bytes`;
    throw new Refusal("range_not_satisfiable", text, { "content-range": `bytes */${status.size}` });
  }
  const { first, count } = located;
  content.expect(count, work.done);
  const headers = headersOf(status, count);
  if (part !== undefined) {
    headers["content-range"] = `bytes ${first}-${first + count - 1}/${status.size}`;
    return { status: 206, headers, body: content };
  }
  if (count > HASHED_BYTES_MAX) return { status: 200, headers, body: content };
  const bytes = Buffer.concat(await content.toArray());
  headers["x-content-sha256"] = createHash("sha256").update(bytes).digest("hex");
  return { status: 200, headers, body: Readable.from([bytes]) };
}

function headersOf({ size, modifiedAt, mode }: FileStatus, count: number): Record<string, string> {
  return {
    "content-length": String(count),
    "accept-ranges": "bytes",
    "last-modified": new Date(modifiedAt).toUTCString(),
    etag: `"${size.toString(16)}-${modifiedAt.toString(16)}"`,
    "x-file-mode": mode,
  };
}

/** The entries of a directory, by name. */
export async function listDirectory(services: MachineServices, target: FileTarget): Promise<readonly FileEntry[]> {
  const found: FileEntry[] = [];
  let rest: Buffer = Buffer.alloc(0);
  const work = await beginFileWork(services, target, { operation: "list", ...WHOLE }, (chunk) => {
    const parsed = parseEntries(Buffer.concat([rest, chunk]));
    rest = parsed.rest;
    for (const entry of parsed.entries) found.push(entry);
    if (found.length > ENTRIES_MAX) throw tooMany(target.path);
  });
  await work.done;
  return found.sort((one, other) => (one.name < other.name ? -1 : 1));
}

const tooMany = (path: string): Refusal =>
  new Refusal("conflict", `${path} has more than ${ENTRIES_MAX} entries; list it with a command, such as ls -f`);

/** The bytes on their way to the caller. */
class Content extends Readable {
  onDestroy: () => void = () => undefined;
  #bytes = 0;
  #goOn: (() => void) | null = null;

  accept(chunk: Uint8Array): void | Promise<void> {
    this.#bytes += chunk.byteLength;
    if (this.destroyed || this.push(chunk)) return;
    return new Promise((resolve) => {
      this.#goOn = resolve;
    });
  }

  /** Ends with the work, if as much as was promised has come by then. */
  expect(count: number, done: Promise<void>): void {
    done.then(
      () => (this.#bytes === count ? this.push(null) : this.destroy(new Error("a file changed while it was read"))),
      (error: unknown) => this.destroy(errorOf(error)),
    );
  }

  override _read(): void {
    const goOn = this.#goOn;
    this.#goOn = null;
    goOn?.();
  }

  override _destroy(error: Error | null, callback: (error?: Error | null) => void): void {
    this.onDestroy();
    this._read();
    callback(error);
  }
}
