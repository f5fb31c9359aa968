/**
 * Files through nodes of version 1 and 2 of the link, which lack the endpoint for files: an exec whose streams have the
 * guest's own format (GUEST-PROTOCOL.md, files). The only file of the server that knows that format; delete it when
 * LINK_VERSION_LOWEST is 3, with `file` of ExecStart and the node's link/file-exec.ts.
 *
 * Always: a guest is not trusted: what does not fit is an error, numbers are bounded, names are text.
 */
import { createHash } from "node:crypto";
import { Readable } from "node:stream";
import { errorOf } from "@flotilla/base/errors";
import type { FileRequest, LinkError } from "@flotilla/contract/link";
import { FILE_ENTRIES_MAX, type FilePart, locateInFile, WHOLE_FILE } from "@flotilla/contract/link-files";
import type { FileFacts, ListedFile } from "@flotilla/contract/link/files";
import { LINK_PAYLOAD_BYTES_MAX } from "@flotilla/contract/link-stream";
import type { FileAnnounced, FileCall, NodeFile, NodeFiles, NodeWrite, TakeEntry } from "./files.ts";
import type { NodeAddress, NodeLink } from "./node-link.ts";
import { NO_COMMAND, type OpenExec, openOnNode } from "./open-exec.ts";
import { passBody } from "./pass-body.ts";
import { NodeRefused } from "./refusals.ts";

const NEWLINE = 0x0a;
const LINE_BYTES_MAX = 256;
const ENTRY_BYTES_MAX = 8 * 1024;
const ERROR_CHARACTERS_MAX = 8 * 1024;
const DETAIL_CHARACTERS_MAX = 300;
const TIME_MS_MAX = 8.64e15;
const KINDS = { f: "file", d: "directory", l: "link", o: "other" } as const;
const STATUS = /^([fdlo]) ([0-7]{4}) (\d{1,15}) (-?\d{1,15})$/;
const CODES: ReadonlyMap<string, LinkError["code"]> = new Map([
  ["not_found", "no_such_file"],
  ["is_directory", "is_directory"],
  ["not_directory", "not_directory"],
  ["not_empty", "not_empty"],
  ["not_regular", "not_regular"],
  ["name_too_long", "name_too_long"],
  ["no_space", "no_space"],
  ["memory", "in_memory"],
]);

/** `files`, and for a node without the endpoint the older way. */
export function withOlderNodes(files: NodeFiles, link: NodeLink, node: NodeAddress): NodeFiles {
  const older = filesOverExec(link, node);
  const either = async <T>(work: (how: NodeFiles) => Promise<T>): Promise<T> => {
    try {
      return await work(files);
    } catch (error) {
      // Before anything was read of what is to be written: the node refuses the request by its path.
      if (error instanceof NodeRefused && error.status === 404) return await work(older);
      throw error;
    }
  };
  return {
    read: (call, part) => either((how) => how.read(call, part)),
    write: (call, announced) => either((how) => how.write(call, announced)),
    list: (call, take) => either((how) => how.list(call, take)),
    remove: (call) => either((how) => how.remove(call)),
  };
}

function filesOverExec(link: NodeLink, node: NodeAddress): NodeFiles {
  const begin = (call: FileCall, request: Omit<FileRequest, "path">, take: TakeContent) =>
    beginFileExec(link, node, call, { ...request, path: call.path }, take);
  return {
    async read(call, part) {
      const content = new Content();
      const work = await begin(call, { operation: "read", ...part }, (chunk) => content.accept(chunk));
      return readResult(work, content, part);
    },
    async write(call, announced) {
      const work = await begin(call, { operation: "write", ...WHOLE_FILE }, () => undefined);
      const turn = (step: () => boolean) => link.turns.run(call.tenantId, step);
      return { send: (body) => sendContent(work, body, announced, turn) } satisfies NodeWrite;
    },
    async list(call, take) {
      let rest: Buffer = Buffer.alloc(0);
      let count = 0;
      const takeOne = (entry: ListedFile): void => {
        if ((count += 1) > FILE_ENTRIES_MAX)
          throw failed("too_many_entries", `it has more than ${FILE_ENTRIES_MAX} entries`);
        take(entry);
      };
      const work = await begin(call, { operation: "list", ...WHOLE_FILE }, (chunk) => {
        rest = parseEntries(Buffer.concat([rest, chunk]), takeOne);
      });
      await work.done;
    },
    async remove(call) {
      await (await begin(call, { operation: "remove", ...WHOLE_FILE }, () => undefined)).done;
    },
  };
}

const failed = (code: LinkError["code"], message: string): NodeRefused => new NodeRefused(200, { code, message });
const garbage = (): NodeRefused => failed("guest_unreachable", "the machine's agent gave an invalid answer");

function parseStatus(line: string): FileFacts & Pick<ListedFile, "kind"> {
  const [, kind, mode = "", size, modified] = STATUS.exec(line) ?? [];
  if (kind === undefined) throw garbage();
  const modifiedAt = Math.max(0, Math.min(Number(modified), TIME_MS_MAX));
  return { kind: KINDS[kind as keyof typeof KINDS], mode, size: Number(size), modifiedAt };
}

/** Takes the complete entries; returns the rest, which belongs before the next bytes. */
function parseEntries(bytes: Buffer, take: TakeEntry): Buffer {
  for (let at = 0; ; ) {
    const statusEnd = bytes.indexOf(0, at);
    const nameEnd = statusEnd < 0 ? -1 : bytes.indexOf(0, statusEnd + 1);
    if (nameEnd < 0 && bytes.byteLength - at > ENTRY_BYTES_MAX) throw garbage();
    if (nameEnd < 0) return bytes.subarray(at);
    const { kind, mode, size, modifiedAt } = parseStatus(bytes.toString("latin1", at, statusEnd));
    take({ name: bytes.toString("utf8", statusEnd + 1, nameEnd), kind, size, mode, modifiedAt });
    at = nameEnd + 1;
  }
}

function failureOf(said: string): NodeRefused {
  const [word = ""] = said.split(" ", 1);
  const detail = said.slice(word.length + 1, word.length + 1 + DETAIL_CHARACTERS_MAX).trim();
  const code = CODES.get(word);
  if (code !== undefined) return failed(code, detail);
  if (word === "changed") return failed("file_refused", "it became shorter while it was read");
  return failed("file_refused", detail || said.slice(0, DETAIL_CHARACTERS_MAX) || "it was interrupted");
}

type TakeContent = (chunk: Uint8Array) => void | Promise<void>;

interface FileExec {
  readonly exec: OpenExec;
  readonly firstLine: string;
  readonly done: Promise<void>;
}

async function beginFileExec(
  link: NodeLink,
  node: NodeAddress,
  { tenantId, machineId, signal }: FileCall,
  file: FileRequest,
  takeContent: TakeContent,
): Promise<FileExec> {
  const start = { ...NO_COMMAND, hasStdin: file.operation === "write", file };
  const exec = await openOnNode(link, node, { tenantId, machineId, start, signal });
  const answer = new Answer(takeContent);
  const done = exec.run({ onOutput: (stream, chunk) => answer.take(stream, chunk) }).then(({ exitCode }) => {
    if (exitCode !== 0) throw failureOf(answer.error);
  });
  // A waiting caller gets the error; one that has left does not.
  done.catch(() => undefined);
  const firstLine = await Promise.race([answer.firstLine, done.then(() => "")]);
  return { exec, firstLine, done };
}

/** Separates the first line from the content. */
class Answer {
  readonly firstLine: Promise<string>;
  error = "";
  readonly #takeContent: TakeContent;
  readonly #line = Promise.withResolvers<string>();
  #lineSoFar: Buffer | null = Buffer.alloc(0);

  constructor(takeContent: TakeContent) {
    this.#takeContent = takeContent;
    this.firstLine = this.#line.promise;
  }

  take(stream: "stdout" | "stderr", chunk: Uint8Array): void | Promise<void> {
    if (stream === "stderr") {
      if (this.error.length < ERROR_CHARACTERS_MAX) this.error += Buffer.from(chunk).toString("utf8");
      return;
    }
    if (this.#lineSoFar === null) return this.#takeContent(chunk);
    const bytes = Buffer.concat([this.#lineSoFar, chunk]);
    const end = bytes.indexOf(NEWLINE);
    if (end < 0 && bytes.byteLength <= LINE_BYTES_MAX) {
      this.#lineSoFar = bytes;
      return;
    }
    this.#lineSoFar = null;
    this.#line.resolve(bytes.toString("utf8", 0, end < 0 ? LINE_BYTES_MAX : end));
    const content = bytes.subarray(end + 1);
    return content.byteLength > 0 ? this.#takeContent(content) : undefined;
  }
}

function readResult(work: FileExec, content: Content, part: FilePart): NodeFile {
  content.onDestroy = () => work.exec.close();
  try {
    const { mode, size, modifiedAt } = parseStatus(work.firstLine);
    content.expect(locateInFile(part, size)?.count ?? 0, work.done);
    return { facts: { mode, size, modifiedAt }, content };
  } catch (error) {
    content.destroy();
    throw error;
  }
}

/** The bytes on their way to the caller. */
class Content extends Readable {
  onDestroy: () => void = () => undefined;
  #bytes = 0;
  /** null: not known yet. */
  #expected: number | null = null;
  #resume: (() => void) | null = null;

  accept(chunk: Uint8Array): void | Promise<void> {
    this.#bytes += chunk.byteLength;
    this.#refuseMore();
    if (this.destroyed || this.push(chunk)) return;
    return new Promise((resolve) => {
      this.#resume = resolve;
    });
  }

  /** Ends with the work if the expected number of bytes has arrived by then. */
  expect(count: number, done: Promise<void>): void {
    this.#expected = count;
    this.#refuseMore();
    done.then(
      () => (this.#bytes === count ? this.push(null) : this.destroy(new Error("a file changed while it was read"))),
      (error: unknown) => this.destroy(errorOf(error)),
    );
  }

  /** A caller would take the rest for the beginning of the next answer on its connection. */
  #refuseMore(): void {
    if (this.#bytes > (this.#expected ?? this.#bytes)) this.destroy(garbage());
  }

  override _read(): void {
    const resume = this.#resume;
    this.#resume = null;
    resume?.();
  }

  override _destroy(error: Error | null, callback: (error?: Error | null) => void): void {
    this.onDestroy();
    this._read();
    callback(error);
  }
}

type Turn = (work: () => boolean) => boolean | Promise<boolean>;

async function sendContent(
  { exec, done }: FileExec,
  body: Readable,
  { sha256 }: FileAnnounced,
  turn: Turn,
): Promise<string> {
  const hash = createHash("sha256");
  const write = (chunk: Buffer): boolean => {
    hash.update(chunk);
    let hasRoom = true;
    for (let at = 0; at < chunk.byteLength; at += LINK_PAYLOAD_BYTES_MAX)
      hasRoom = exec.send("stdin", chunk.subarray(at, at + LINK_PAYLOAD_BYTES_MAX));
    return hasRoom;
  };
  const once = (event: string, listener: () => void): void => {
    if (event === "drain") void exec.room.then(listener);
  };
  const sent = passBody(body, { write, once, off: () => undefined, destroyed: false }, turn);
  try {
    // If it ends before all was sent it has failed, and throws here.
    await Promise.race([sent.all, done]);
    const found = hash.digest("hex");
    if (sha256 !== null && found !== sha256) throw failed("hash_differs", `the content's SHA-256 is ${found}`);
    exec.endInput();
    await done;
    return found;
  } catch (error) {
    exec.close();
    throw error;
  } finally {
    sent.stop();
  }
}
