/**
 * Files of a machine through its node: contract/src/link/files.ts describes the requests and answers.
 *
 * Always:
 * - Nothing of a write's content is read before the node has accepted the operation, so NotRunning leaves the
 *   content complete for another attempt.
 * - Neither side is read faster than the other accepts it. Content takes the turns of its tenant.
 * - A write whose content breaks off, or that is closed, leaves the file as it was.
 * - A node that refuses is a NodeRefused with its code. A connection that broke later is `cutOff`: how it
 *   ended is unknown.
 * - A write whose connection died unnoticed ends: TCP itself repeats what was sent for a quarter of an hour.
 */
import { PassThrough, Readable } from "node:stream";
import { reasonOf } from "@flotilla/base/abort";
import { type Clock, every } from "@flotilla/base/clock";
import { Refusal } from "@flotilla/contract/errors";
import {
  FILE_ENTRIES_MAX,
  FILE_FACTS_HEADER,
  FILE_SILENCE_MAX_MS,
  type FilePart,
  locateInFile,
} from "@flotilla/contract/link/file-parts";
import type { FileFacts, FileWritten, ListedFile } from "@flotilla/contract/link/files";
import { readFileFacts, readFileListLine, readFileWritten } from "@flotilla/contract/link/generated";
import { parseNodeText } from "../json/node-message.ts";
import { passBody } from "./pass-body.ts";
import type { NodeAddress, NodeLink, OpenAnswer } from "./node-link.ts";
import { pushInTurns } from "./push-in-turns.ts";
import { NodeRefused } from "./refusals.ts";
import type { Turn } from "../fairness/turns.ts";

/** The node ends an operation whose guest is silent for FILE_SILENCE_MAX_MS. */
const HEADERS_TIMEOUT_MS = FILE_SILENCE_MAX_MS + 15_000;
/**
 * Max silence of a node that neither accepts content nor says anything during a write. It shows life while
 * its guest is slow.
 */
const WRITE_SILENCE_MAX_MS = HEADERS_TIMEOUT_MS;
const WRITE_LOOK_MS = 1_000;
/** What is buffered here for a node that does not read. */
const INPUT_BYTES_MAX = 256 * 1024;
/** A line of a list, or the answer to a write. */
const LINE_CHARACTERS_MAX = 64 * 1024;

export interface FileCall {
  /** Whose turns the content takes. */
  readonly tenantId: string;
  readonly machineId: string;
  /** Absolute. */
  readonly path: string;
  /** Ends the operation, also after it has begun. */
  readonly signal: AbortSignal;
}

export interface NodeFile {
  readonly facts: FileFacts;
  /** The bytes of the requested part, complete or broken off with an error. Destroying it ends the read. */
  readonly content: Readable;
}

export interface FileAnnounced {
  /** Its SHA-256 in lower-case hexadecimal; null: unknown. */
  readonly sha256: string | null;
  /** Number of bytes; null: unknown. */
  readonly bytes: number | null;
}

/** Throws a Refusal or a NodeRefused, or nothing. */
export type TakeEntry = (entry: ListedFile) => void;

/** A write that the node has accepted. */
export interface NodeWrite {
  /** Sends the content. Resolves with its SHA-256 when the file has it, on the machine's disk. Call once. */
  send(content: Readable): Promise<string>;
}

/**
 * Files of the machines on one node. Every function throws NotRunning, NodeUnreachable, NodeRefused with a
 * code of LinkError, or a Refusal when the connection broke after the operation had begun.
 */
export interface NodeFiles {
  read(call: FileCall, part: FilePart): Promise<NodeFile>;
  write(call: FileCall, announced: FileAnnounced): Promise<NodeWrite>;
  /** Calls back with each entry of a directory, in no order. What `take` throws ends it. */
  list(call: FileCall, take: TakeEntry): Promise<void>;
  remove(call: FileCall): Promise<void>;
}

export function filesOnNode(link: NodeLink, node: NodeAddress): NodeFiles {
  return {
    read: (call, part) => read(link, node, call, part),
    write: (call, announced) => write(link, node, call, announced),
    list: (call, take) => list(link, node, call, take),
    async remove(call) {
      const { body } = await open(link, node, call, { operation: "remove", body: JSON.stringify({ path: call.path }) });
      // The head says all.
      body.destroy();
    },
  };
}

interface Operation {
  readonly operation: "read" | "write" | "list" | "remove";
  readonly body: Readable | string;
  readonly bytes?: number | null;
}

async function open(link: NodeLink, node: NodeAddress, call: FileCall, operation: Operation): Promise<OpenAnswer> {
  const { body, bytes } = operation;
  return await link.openAnswer(node, {
    method: "POST",
    path: `/v1/machines/${call.machineId}/files/${operation.operation}`,
    body,
    contentType: "application/octet-stream",
    ...(bytes === undefined || bytes === null ? {} : { contentLength: bytes }),
    headersTimeout: HEADERS_TIMEOUT_MS,
    signal: call.signal,
  });
}

async function read(link: NodeLink, node: NodeAddress, call: FileCall, part: FilePart): Promise<NodeFile> {
  const gone = new AbortController();
  const signal = AbortSignal.any([call.signal, gone.signal]);
  const request = JSON.stringify({ path: call.path, ...part });
  const { headers, body } = await open(link, node, { ...call, signal }, { operation: "read", body: request });
  try {
    const facts = readFileFacts(parseNodeText(String(headers[FILE_FACTS_HEADER])));
    const turn = (work: () => boolean) => link.turns.run(call.tenantId, work);
    const broken = (error: Error) => link.cutOff(node.nodeId, call.machineId, "file", error);
    const bytes = locateInFile(part, facts.size)?.count ?? 0;
    return { facts, content: new Content(body, { bytes, turn, broken, close: () => gone.abort() }) };
  } catch (error) {
    gone.abort();
    throw link.cutOff(node.nodeId, call.machineId, "file", error);
  }
}

interface ContentParts {
  readonly bytes: number;
  readonly turn: Turn;
  readonly broken: (error: Error) => Error;
  readonly close: () => void;
}

/** The node's answer, in turns: as many bytes as its facts say, or an error. */
class Content extends Readable {
  readonly #source: Readable;
  readonly #close: () => void;
  readonly #more: () => void;

  constructor(source: Readable, { bytes, turn, broken, close }: ContentParts) {
    super();
    this.#source = source;
    this.#close = close;
    let left = bytes;
    const refuse = (): unknown =>
      this.destroy(broken(new Error(`the content of the file does not have ${bytes} bytes`)));
    source.on("data", (chunk: Buffer) => (left -= chunk.byteLength) < 0 && refuse());
    source.on("end", () => left > 0 && refuse());
    this.#more = pushInTurns(source, this, turn);
    source.on("error", (error: Error) => this.destroyed || this.destroy(broken(error)));
  }

  override _read(): void {
    this.#more();
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    this.#close();
    this.#source.destroy();
    done(error);
  }
}

async function write(
  link: NodeLink,
  node: NodeAddress,
  call: FileCall,
  { sha256, bytes }: FileAnnounced,
): Promise<NodeWrite> {
  const gone = new AbortController();
  const signal = AbortSignal.any([call.signal, gone.signal]);
  const input = new PassThrough({ highWaterMark: INPUT_BYTES_MAX });
  // The answer reports a broken connection.
  input.on("error", () => undefined);
  const message = Buffer.from(`${JSON.stringify({ path: call.path, sha256 })}\n`);
  input.write(message);
  const length = bytes === null ? null : message.byteLength + bytes;
  try {
    const { body } = await open(link, node, { ...call, signal }, { operation: "write", body: input, bytes: length });
    const send = async (content: Readable): Promise<string> => {
      try {
        return await sendContent(link, node, call, { content, input, answer: body });
      } catch (error) {
        gone.abort();
        throw error;
      }
    };
    return { send };
  } catch (error) {
    input.destroy();
    throw error;
  }
}

interface Sending {
  readonly content: Readable;
  readonly input: PassThrough;
  readonly answer: Readable;
}

async function sendContent(
  link: NodeLink,
  { nodeId }: NodeAddress,
  { tenantId, machineId, signal }: FileCall,
  { content, input, answer }: Sending,
): Promise<string> {
  using watch = new WriteWatch(link.clock, input, answer);
  const outcome = outcomeOf(answer, watch).catch((error: unknown): BrokenAnswer => ({ kind: "broken", error }));
  const sent = passBody(content, input, (work) => link.turns.run(tenantId, work));
  try {
    const early = await Promise.race([sent.all, outcome]);
    if (early === undefined) input.end();
    const written = await outcome;
    if (written.kind === "failed") throw new NodeRefused(200, written.error);
    if (written.kind === "written" && early === undefined) return written.sha256;
    if (signal.aborted) throw reasonOf(signal);
    const cause = written.kind === "broken" ? written.error : new Error("the answer came before the content was sent");
    throw link.cutOff(nodeId, machineId, "file", cause);
  } finally {
    sent.stop();
    input.destroy();
  }
}

interface BrokenAnswer {
  readonly kind: "broken";
  readonly error: unknown;
}

/**
 * Breaks off the answer to a write when its node is silent for WRITE_SILENCE_MAX_MS. Waiting for the caller's
 * content does not count.
 */
class WriteWatch implements Disposable {
  readonly #clock: Clock;
  #movedAt: number;
  readonly #stop: () => void;

  constructor(clock: Clock, input: PassThrough, answer: Readable) {
    this.#clock = clock;
    this.#movedAt = clock.monotonic();
    input.on("drain", () => this.moved());
    this.#stop = every(clock, WRITE_LOOK_MS, () => {
      if (!input.writableNeedDrain && !input.writableEnded) this.moved();
      if (clock.monotonic() - this.#movedAt > WRITE_SILENCE_MAX_MS)
        answer.destroy(new Error(`the node was silent for ${WRITE_SILENCE_MAX_MS / 1000} s`));
    });
  }

  moved(): void {
    this.#movedAt = this.#clock.monotonic();
  }

  [Symbol.dispose](): void {
    this.#stop();
  }
}

/** Reads the answer to a write, which may begin with much white space. */
async function outcomeOf(answer: Readable, watch: WriteWatch): Promise<FileWritten> {
  let text = "";
  for await (const chunk of answer as AsyncIterable<Buffer>) {
    watch.moved();
    text = (text + chunk.toString("utf8")).trimStart();
    if (text.length > LINE_CHARACTERS_MAX)
      throw new Error(`the answer is longer than ${LINE_CHARACTERS_MAX} characters`);
  }
  return readFileWritten(parseNodeText(text));
}

async function list(link: NodeLink, node: NodeAddress, call: FileCall, take: TakeEntry): Promise<void> {
  const { body } = await open(link, node, call, { operation: "list", body: JSON.stringify({ path: call.path }) });
  const lines = new ListLines(take);
  try {
    for await (const chunk of body as AsyncIterable<Buffer>)
      await link.turns.run(call.tenantId, () => lines.accept(chunk));
    if (lines.isDone) return;
    throw new Error("the answer ended without a result");
  } catch (error) {
    if (error instanceof NodeRefused || error instanceof Refusal || call.signal.aborted) throw error;
    throw link.cutOff(node.nodeId, call.machineId, "file", error);
  }
}

class ListLines {
  isDone = false;
  readonly #take: TakeEntry;
  readonly #decoder = new TextDecoder();
  #rest = "";
  #count = 0;

  constructor(take: TakeEntry) {
    this.#take = take;
  }

  accept(chunk: Buffer): void {
    const lines = (this.#rest + this.#decoder.decode(chunk, { stream: true })).split("\n");
    this.#rest = lines.pop() ?? "";
    if (this.#rest.length > LINE_CHARACTERS_MAX) throw new Error("a line of the answer is too long");
    for (const text of lines) {
      const line = readFileListLine(parseNodeText(text));
      if (line.kind === "failed") throw new NodeRefused(200, line.error);
      if (line.kind === "done") this.isDone = true;
      else if ((this.#count += 1) > FILE_ENTRIES_MAX) throw new Error("the answer has too many entries");
      else this.#take(line.entry);
    }
  }
}
