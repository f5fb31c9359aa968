/**
 * Operations on files of a running machine, for the server: contract/src/link/files.ts describes requests and
 * answers.
 *
 *     write: request body → SHA-256 → the guest's input          read: the guest's output → response body
 *
 * Always:
 * - Bytes are passed on without a copy, and neither side is read faster than the other accepts them.
 * - The guest has accepted the operation before the answer's head is sent, so what it refuses has a status
 *   and a code.
 * - A file changes only after all of the request's body has arrived and its SHA-256 was checked. A caller
 *   that has gone, a guest that fails and a guest that makes no progress for FILE_SILENCE_MAX_MS end the
 *   operation.
 * - A read that is incomplete breaks the connection.
 *
 * If the agent dies, the connection breaks, and the guest keeps the old file when its channel is lost.
 */
import { createHash } from "node:crypto";
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Clock, Timer } from "@flotilla/base/clock";
import { errorOf } from "@flotilla/base/errors";
import type { LinkError } from "@flotilla/contract/link/link";
import {
  FILE_ENTRIES_MAX,
  FILE_FACTS_HEADER,
  FILE_SILENCE_MAX_MS,
  type FileOperation,
  locateInFile,
  WHOLE_FILE,
} from "@flotilla/contract/link/file-parts";
import type { FileFacts, FileListLine, FileWritten } from "@flotilla/contract/link/files";
import { readFilePath, readFileRead, readFileWrite } from "@flotilla/contract/link/generated";
import { InvalidMessage } from "@flotilla/contract/link/read";
import { FileFailure, garbage, parseEntries, parseStatus } from "../guest/file-answer.ts";
import { beginFileWork, type FileWork } from "../guest/file-work.ts";
import type { Guest } from "../guest/guest.ts";
import { lateMessage, MESSAGE_MS } from "./bodies.ts";
import { CallerGone } from "./exchange.ts";

/** A path of 4096 characters, escaped, and the other fields. */
const MESSAGE_BYTES_MAX = 32 * 1024;
const NEWLINE = 0x0a;
/**
 * How often progress is checked, and the host's free space: a guest whose write does not fit is paused by its
 * VMM.
 */
const LOOK_MS = 500;

export interface FileOptions {
  readonly guest: Guest;
  readonly clock: Clock;
  /** Whether the host's disk can hold what a guest writes. */
  readonly hasRoom: () => Promise<boolean>;
  /** Why the guest accepts nothing at this moment; null: it does. */
  readonly obstacle: () => LinkError | null;
  /** Whether the guest is given to another VMM at this moment, to which this connection does not lead. */
  readonly isSwitching: () => boolean;
}

interface Exchange extends FileOptions {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
}

type Serve = (exchange: Exchange, message: unknown) => Promise<void>;

/**
 * Resolves when the answer is complete. Before its head is sent, throws InvalidMessage, SyntaxError,
 * FileFailure or CallerGone.
 */
export async function serveFile(
  request: IncomingMessage,
  response: ServerResponse,
  operation: FileOperation,
  options: FileOptions,
): Promise<void> {
  const message: unknown = JSON.parse(await readMessage(request, options.clock));
  const obstacle = options.obstacle();
  if (obstacle !== null) throw failureOf(obstacle);
  const exchange = { request, response, ...options };
  try {
    await SERVE[operation](exchange, message);
  } catch (error) {
    throw unlessInterrupted(exchange, error);
  }
}

const SERVE: Readonly<Record<FileOperation, Serve>> = { read, write, list, remove };

/** The HTTP status of a failure before the head. Never 404, which says that the endpoint is missing. */
export function statusOfFailure(code: LinkError["code"]): number {
  switch (code) {
    case "invalid":
      return 400;
    case "guest_unreachable":
      return 502;
    case "busy":
    case "paused":
    case "interrupted":
      return 503;
    case "no_space":
      return 507;
    default:
      return 409;
  }
}

async function read(exchange: Exchange, message: unknown): Promise<void> {
  const { guest, response } = exchange;
  const { path, ...part } = readFileRead(message);
  const work = beginFileWork(guest, { operation: "read", path, ...part });
  let left = 1;
  using watch = new Watch(exchange, work, () => left > 0 && !response.writableNeedDrain);
  const { mode, size, modifiedAt } = parseStatus(await work.firstLine);
  left = locateInFile(part, size)?.count ?? 0;
  const facts: FileFacts = { mode, size, modifiedAt };
  const head = {
    "content-type": "application/octet-stream",
    "content-length": left,
    [FILE_FACTS_HEADER]: JSON.stringify(facts),
  };
  // With its last byte the answer is complete for its reader.
  if (left === 0) response.writeHead(200, head).end();
  response.on("drain", () => work.resume());
  work.onContent((chunk) => {
    watch.moved();
    if (chunk.byteLength > left) throw garbage();
    left -= chunk.byteLength;
    // The head travels with the first bytes; until then a failure has a status.
    if (!response.headersSent) response.writeHead(200, head);
    if (left === 0) response.end(chunk);
    else if (!response.write(chunk)) work.pause();
  });
  const failure = await work.ended.then(garbage, errorOf);
  if (left > 0 && !response.headersSent) throw failure;
  if (left > 0) response.destroy();
}

async function write(exchange: Exchange, message: unknown): Promise<void> {
  const { guest, request, response } = exchange;
  const { path, sha256 } = readFileWrite(message);
  const work = beginFileWork(guest, { operation: "write", path, ...WHOLE_FILE });
  let isGuestsTurn = true;
  using watch = new Watch(exchange, work, () => isGuestsTurn || request.isPaused());
  watch.requireRoom();
  await work.firstLine;
  isGuestsTurn = false;
  response.writeHead(200, { "content-type": "application/json" });
  response.flushHeaders();
  watch.showLife();
  work.onContent(() => {
    throw garbage();
  });
  try {
    const found = await passBody(request, work, watch);
    if (sha256 !== null && found !== sha256) throw new FileFailure("hash_differs", `the content's SHA-256 is ${found}`);
    isGuestsTurn = true;
    work.input.end();
    await work.ended;
    endWith(response, { kind: "written", sha256: found });
  } catch (error) {
    endWith(response, { kind: "failed", error: linkErrorOf(unlessInterrupted(exchange, error)) });
  } finally {
    // What is still sent is discarded, so that the caller reads its answer.
    request.removeAllListeners("data");
    request.resume();
  }
}

/**
 * Passes all of the body to the guest; resolves with its SHA-256. Rejects when the operation ends before the
 * body.
 */
async function passBody(request: IncomingMessage, work: FileWork, watch: Watch): Promise<string> {
  const hash = createHash("sha256");
  const { input } = work;
  const complete = new Promise<void>((resolve, reject) => {
    if (request.readableEnded) resolve();
    request.once("end", resolve);
    request.once("error", reject);
  });
  request.on("data", (chunk: Buffer) => {
    hash.update(chunk);
    if (!input.write(chunk)) request.pause();
  });
  input.on("drain", () => {
    watch.moved();
    request.resume();
  });
  request.resume();
  await Promise.race([complete, work.ended.then(() => Promise.reject(garbage()))]);
  return hash.digest("hex");
}

async function list(exchange: Exchange, message: unknown): Promise<void> {
  const { guest, response } = exchange;
  const work = beginFileWork(guest, { operation: "list", path: readFilePath(message).path, ...WHOLE_FILE });
  using watch = new Watch(exchange, work, () => !response.writableNeedDrain);
  parseStatus(await work.firstLine);
  response.writeHead(200, { "content-type": "application/x-ndjson" });
  response.on("drain", () => work.resume());
  let rest: Buffer = Buffer.alloc(0);
  let count = 0;
  work.onContent((chunk) => {
    watch.moved();
    const parsed = parseEntries(rest.byteLength === 0 ? chunk : Buffer.concat([rest, chunk]));
    rest = parsed.rest;
    count += parsed.entries.length;
    if (count > FILE_ENTRIES_MAX)
      throw new FileFailure("too_many_entries", `it has more than ${FILE_ENTRIES_MAX} entries`);
    const lines = parsed.entries.map((entry) => lineOf({ kind: "entry", entry })).join("");
    if (lines !== "" && !response.write(lines)) work.pause();
  });
  try {
    await work.ended;
    if (rest.byteLength > 0) throw garbage();
    response.end(lineOf({ kind: "done" }));
  } catch (error) {
    response.end(lineOf({ kind: "failed", error: linkErrorOf(unlessInterrupted(exchange, error)) }));
  }
}

async function remove(exchange: Exchange, message: unknown): Promise<void> {
  const { guest, response } = exchange;
  const work = beginFileWork(guest, { operation: "remove", path: readFilePath(message).path, ...WHOLE_FILE });
  using _watch = new Watch(exchange, work, () => true);
  await work.ended;
  response.writeHead(200, { "content-length": 0 }).end();
}

/**
 * Ends an operation whose caller has gone, whose guest makes no progress, or whose host has no space left.
 */
class Watch implements Disposable {
  readonly #exchange: Exchange;
  readonly #work: FileWork;
  readonly #isGuestsTurn: () => boolean;
  #needsRoom = false;
  #showsLife = false;
  #silentMs = 0;
  #timer: Timer | null = null;
  readonly #onClose = (): void => this.#work.fail(new CallerGone());

  /** `isGuestsTurn`: whether the guest is expected to do something now. */
  constructor(exchange: Exchange, work: FileWork, isGuestsTurn: () => boolean) {
    this.#exchange = exchange;
    this.#work = work;
    this.#isGuestsTurn = isGuestsTurn;
    exchange.response.once("close", this.#onClose);
    exchange.response.on("error", () => undefined);
    if (exchange.response.destroyed) this.#onClose();
    this.#lookLater();
  }

  /** The guest has made progress. */
  moved(): void {
    this.#silentMs = 0;
  }

  /** Ends the operation with `no_space` when the host's disk is full: then the guest cannot answer itself. */
  requireRoom(): void {
    this.#needsRoom = true;
    void this.#lookForRoom();
  }

  /**
   * Sends white space from now on: a request that is not read does not show that its caller has gone, and the
   * server ends a silent one.
   */
  showLife(): void {
    this.#showsLife = true;
  }

  /** The operation is over: a guest that still works on it is stopped. */
  [Symbol.dispose](): void {
    this.#timer?.cancel();
    this.#timer = null;
    this.#needsRoom = false;
    this.#exchange.response.off("close", this.#onClose);
    this.#work.fail(new Error("the operation is over"));
  }

  #lookLater(): void {
    this.#timer = this.#exchange.clock.timer(LOOK_MS, () => this.#look());
  }

  #look(): void {
    this.#silentMs = this.#isGuestsTurn() ? this.#silentMs + LOOK_MS : 0;
    const obstacle = this.#exchange.obstacle();
    if (this.#silentMs > FILE_SILENCE_MAX_MS) {
      const message = `the machine's agent has made no progress for ${FILE_SILENCE_MAX_MS / 1000} s`;
      return this.#work.fail(failureOf(obstacle ?? { code: "guest_unreachable", message }));
    }
    // A paused guest may continue soon.
    if (obstacle !== null && obstacle.code !== "paused") return this.#work.fail(failureOf(obstacle));
    if (this.#showsLife) this.#exchange.response.write("\n");
    if (this.#needsRoom) void this.#lookForRoom();
    this.#lookLater();
  }

  async #lookForRoom(): Promise<void> {
    const hasRoom = await this.#exchange.hasRoom().catch(() => true);
    if (!hasRoom && this.#needsRoom)
      this.#work.fail(new FileFailure("no_space", "no space is left on the host of the machine"));
  }
}

/**
 * Reads the message with which a request begins, up to a line break or the end; what follows stays in the
 * request, which is paused. Throws InvalidMessage when it is too long, incomplete or late.
 */
function readMessage(request: IncomingMessage, clock: Clock): Promise<string> {
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  const chunks: Buffer[] = [];
  let bytes = 0;
  const onData = (chunk: Buffer): void => {
    const end = chunk.indexOf(NEWLINE);
    chunks.push(end < 0 ? chunk : chunk.subarray(0, end));
    bytes += chunks.at(-1)?.byteLength ?? 0;
    if (bytes > MESSAGE_BYTES_MAX) reject(new InvalidMessage("message", `at most ${MESSAGE_BYTES_MAX} bytes`));
    else if (end >= 0) finish(chunk.subarray(end + 1));
  };
  const onEnd = (): void => finish(Buffer.alloc(0));
  const onBroken = (): void => reject(new InvalidMessage("message", "all of it"));
  const finish = (rest: Buffer): void => {
    request.off("data", onData);
    request.pause();
    if (rest.byteLength > 0) request.unshift(rest);
    resolve(Buffer.concat(chunks).toString("utf8"));
  };
  const late = clock.timer(MESSAGE_MS, () => reject(lateMessage()));
  request.on("data", onData);
  request.once("end", onEnd);
  request.once("close", onBroken);
  request.on("error", onBroken);
  return promise.finally(() => {
    late.cancel();
    request.off("data", onData);
    request.off("end", onEnd);
    request.off("close", onBroken);
  });
}

const failureOf = ({ code, message }: LinkError): FileFailure => new FileFailure(code, message);

const lineOf = (line: FileListLine): string => `${JSON.stringify(line)}\n`;

const endWith = (response: ServerResponse, outcome: FileWritten): void => void response.end(JSON.stringify(outcome));

/** The error, or that another VMM has got the guest, in which its agent answers. */
function unlessInterrupted({ isSwitching }: Exchange, error: unknown): unknown {
  const isLost = error instanceof FileFailure && error.code === "guest_unreachable";
  return isLost && isSwitching() ? new FileFailure("interrupted", "another VMM has got the guest") : error;
}

function linkErrorOf(error: unknown): LinkError {
  const { message } = errorOf(error);
  return { code: error instanceof FileFailure ? error.code : "internal", message };
}
