/**
 * A machine's log on the link: the lines of a part of it and, for a follower, new lines.
 *
 * Always:
 * - At most one piece of the log is buffered, however slow the reader is. The log itself is the queue: a
 *   reader that is too slow misses the oldest lines, and a mark says so.
 * - A search compares texts, so its time grows with the log alone.
 * - A body that ends normally is complete: the end or the limit was reached, or the machine was removed. One
 *   that breaks off means that the agent ended.
 */
import { once } from "node:events";
import type { ServerResponse } from "node:http";
import { LOG_SEARCH_CHARACTERS_MAX, LOG_TAIL_MAX } from "@flotilla/contract/limits";
import type { LogLine, LogMark, LogMessage } from "@flotilla/contract/link/link";
import { InvalidMessage, whole } from "@flotilla/contract/link/read";
import type { LogPosition, MachineLog } from "../machines/workload/machine-log.ts";

/** A position, or the first line of a time. */
type Place = LogPosition | { readonly time: number };

/** The requested part of a log. */
export interface LogsRequest {
  readonly start: Place | null;
  /** The last lines of the part. */
  readonly tail: number | null;
  readonly end: Place | null;
  readonly limit: number;
  readonly search: string;
  readonly isFollowing: boolean;
  readonly hasMarks: boolean;
}

/** Without a limit. */
const LIMIT_MAX = Number.MAX_SAFE_INTEGER;
/** Read backwards together, for the last lines that contain a text. */
const BACK_LINES = 1_000;
/** A search sends a mark after so many lines without a hit, so that its reader knows where it is. */
const MARK_LINES = 50_000;

/** Parses the query of `GET …/logs`. Throws InvalidMessage. */
export function parseLogsRequest(query: URLSearchParams): LogsRequest {
  const start = place(query, "after", "since");
  const tail = query.get("tail");
  const search = query.get("search") ?? "";
  if (search.length > LOG_SEARCH_CHARACTERS_MAX)
    throw new InvalidMessage("search", `at most ${LOG_SEARCH_CHARACTERS_MAX} characters`);
  return {
    start,
    tail: tail === null && start !== null ? null : whole(Number(tail ?? "0"), "tail", 0, LOG_TAIL_MAX),
    end: place(query, "before", "until"),
    limit: whole(Number(query.get("limit") ?? LIMIT_MAX), "limit", 1, LIMIT_MAX),
    search: search.toLowerCase(),
    isFollowing: query.get("follow") === "1",
    hasMarks: query.get("marks") === "1",
  };
}

function place(query: URLSearchParams, positionName: string, timeName: string): Place | null {
  const position = query.get(positionName);
  if (position !== null) {
    const [file, byte] = position.split(":").map((part) => whole(Number(part), positionName, 0, LIMIT_MAX));
    if (file === undefined || byte === undefined) throw new InvalidMessage(positionName, "file:byte");
    return { file, byte };
  }
  const time = query.get(timeName);
  return time === null ? null : { time: whole(Number(time), timeName, 0, LIMIT_MAX) };
}

export interface ServeLogsOptions {
  readonly wanted: LogsRequest;
  /** Aborted when the caller disconnects. */
  readonly signal: AbortSignal;
}

/** Resolves when the response has ended. Rejects when the log cannot be read. */
export async function serveLogs(
  response: ServerResponse,
  log: MachineLog,
  { wanted, signal }: ServeLogsOptions,
): Promise<void> {
  const now = await log.end();
  const end = await endOf(log, wanted, now);
  let position = await beginningOf(log, wanted, { end: end ?? now, signal });
  response.writeHead(200, { "content-type": "application/x-ndjson" });
  response.flushHeaders();
  const answer = new LogAnswer(response, wanted, signal);
  if (wanted.hasMarks) await answer.send([await firstMark(log, position)]);
  for (let isDone = false; !isDone && !signal.aborted; ) {
    const changed = nextChange(log, signal);
    const piece = await log.read(position, end);
    position = piece.next;
    if (piece.lines.length > 0) isDone = await answer.add(piece);
    else if (wanted.isFollowing && !log.isRemoved) await changed.promise;
    else {
      isDone = true;
      answer.end(position, wanted.end === null);
    }
    changed.forget();
  }
  response.end();
}

/** Without following, the end is the present one, however fast the log grows; undefined: none. */
async function endOf(log: MachineLog, { end, isFollowing }: LogsRequest, now: LogPosition) {
  if (isFollowing) return undefined;
  return end === null ? now : earlier(await positionOf(log, end), now);
}

const positionOf = (log: MachineLog, at: Place): Promise<LogPosition> =>
  "time" in at ? log.seek(at.time) : log.wholeLine(at);

async function beginningOf(
  log: MachineLog,
  { start, tail, search }: LogsRequest,
  { end, signal }: { readonly end: LogPosition; readonly signal: AbortSignal },
): Promise<LogPosition> {
  const from = start === null ? null : await positionOf(log, start);
  if (tail === null) return from ?? end;
  const last = search === "" ? await log.tail(tail, end) : await lastMatches(log, { tail, search, end, from, signal });
  return from === null || isEarlier(from, last) ? last : from;
}

/** Where the last `tail` lines begin that contain the text. */
async function lastMatches(
  log: MachineLog,
  options: {
    readonly tail: number;
    readonly search: string;
    readonly end: LogPosition;
    readonly from: LogPosition | null;
    readonly signal: AbortSignal;
  },
): Promise<LogPosition> {
  const { search, from, signal } = options;
  let { tail: left, end } = options;
  while (left > 0 && !signal.aborted && (from === null || isEarlier(from, end))) {
    const start = await log.tail(BACK_LINES, end);
    if (!isEarlier(start, end)) return end;
    const found: LogPosition[] = [];
    for (let at = start; ; ) {
      const { lines, starts, next } = await log.read(at, end);
      if (lines.length === 0) break;
      for (const [index, line] of lines.entries())
        if (contains(line, search)) found.push({ file: next.file, byte: starts[index] ?? 0 });
      at = next;
    }
    if (found.length >= left) return found[found.length - left] ?? start;
    left -= found.length;
    end = start;
  }
  return end;
}

const isEarlier = (one: LogPosition, other: LogPosition): boolean =>
  one.file < other.file || (one.file === other.file && one.byte < other.byte);
const earlier = (one: LogPosition, other: LogPosition): LogPosition => (isEarlier(one, other) ? one : other);

/** The mark of where reading begins: a position of a file that was removed is the first that is kept. */
async function firstMark(log: MachineLog, { file, byte }: LogPosition): Promise<LogMark> {
  const { position, isTrimmed } = await log.start();
  const edge = isTrimmed ? "trimmed" : "start";
  if (file < position.file) return { next: textOf(position), edge, ...(isTrimmed ? { isCut: true } : {}) };
  return { next: textOf({ file, byte }), ...(file === position.file && byte === 0 ? { edge } : {}) };
}

const contains = ({ text }: LogLine, search: string): boolean => search === "" || text.toLowerCase().includes(search);

type Piece = Awaited<ReturnType<MachineLog["read"]>>;

class LogAnswer {
  readonly #response: ServerResponse;
  readonly #wanted: LogsRequest;
  readonly #signal: AbortSignal;
  /** Lines that may still be sent. */
  #left: number;
  #unmarkedLines = 0;

  constructor(response: ServerResponse, wanted: LogsRequest, signal: AbortSignal) {
    this.#response = response;
    this.#wanted = wanted;
    this.#signal = signal;
    this.#left = wanted.limit;
  }

  /** Sends the requested lines of a piece. Whether the limit is reached. */
  async add({ lines, starts, next, isCut }: Piece): Promise<boolean> {
    const { search, hasMarks } = this.#wanted;
    const messages: LogMessage[] = [];
    let after = next;
    for (const [index, line] of lines.entries()) {
      if (!contains(line, search)) continue;
      const from = { file: next.file, byte: starts[index] ?? 0 };
      if (this.#left === 0) {
        after = from;
        break;
      }
      messages.push(hasMarks ? { ...line, from: textOf(from) } : line);
      this.#left -= 1;
    }
    this.#unmarkedLines += lines.length;
    const isFull = this.#left === 0;
    if (messages.length > 0 || isFull || isCut || this.#unmarkedLines >= MARK_LINES) {
      this.#unmarkedLines = 0;
      // A mark comes before the lines only where some are missing.
      const cut: readonly LogMark[] =
        isCut && hasMarks ? [{ next: `${next.file}:${starts[0] ?? 0}`, edge: "trimmed", isCut }] : [];
      await this.send([...cut, ...messages, { next: textOf(after) }]);
    }
    return isFull;
  }

  end(position: LogPosition, isEndOfLog: boolean): void {
    if (!this.#wanted.hasMarks || this.#signal.aborted) return;
    void this.send([{ next: textOf(position), ...(isEndOfLog ? { edge: "end" } : {}) }]);
  }

  async send(messages: readonly LogMessage[]): Promise<void> {
    const text = messages.map((message) => `${JSON.stringify(message)}\n`).join("");
    const signal = this.#signal;
    if (!this.#response.write(text)) await once(this.#response, "drain", { signal }).catch(() => undefined);
  }
}

const textOf = ({ file, byte }: LogPosition): string => `${file}:${byte}`;

/** Begins before the log is read, so that no change is missed. */
function nextChange(log: MachineLog, signal: AbortSignal): { readonly promise: Promise<void>; forget(): void } {
  const { promise, resolve } = Promise.withResolvers<void>();
  const stopListening = log.listen(() => forget());
  const forget = (): void => {
    stopListening();
    signal.removeEventListener("abort", forget);
    resolve();
  };
  signal.addEventListener("abort", forget, { once: true });
  if (signal.aborted) forget();
  return { promise, forget };
}
