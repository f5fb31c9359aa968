/**
 * Reads the streams of the API: the output of a running command, as events or as binary frames, and any other
 * `text/event-stream`.
 *
 * Always:
 * - An event is yielded as soon as it is complete, a piece of a frame as it arrives.
 * - Nothing is fetched ahead of the reader, so a slow reader slows the sender and no memory is held.
 * - Ending the iteration early (`break`, `return`) ends the call, and with it the command.
 * - Lines end at `\n` alone: a `\r` is part of the data.
 */
import { FlotillaError, type NoAnswerCode } from "./errors.ts";
import { EXEC_FRAMES_TYPE, FrameReader } from "./exec-frames.ts";
import type { FollowedChange, TenantEvent } from "./generated.ts";

export interface StreamEvent {
  /** `message` when the stream names none. */
  readonly event: string;
  readonly data: string;
}

/** The events of a streamed command; `exit` is the last. */
export type ExecEvent =
  | { readonly kind: "stdout" | "stderr"; readonly bytes: Uint8Array<ArrayBuffer> }
  | { readonly kind: "exit"; readonly exitCode: number };

/** The events of an answer, one by one. Throws what reading the answer's body throws. */
export async function* readEvents(answer: Response): AsyncGenerator<StreamEvent, void, undefined> {
  if (answer.body === null) return;
  const reader = (answer.body as ReadableStream<Uint8Array>).getReader();
  const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  let event = "message";
  let data: string[] = [];
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const lines = (rest + decoder.decode(value, { stream: true })).split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines) {
        if (line === "") {
          if (data.length > 0) yield { event, data: data.join("\n") };
          event = "message";
          data = [];
        } else if (line.startsWith("data:")) data.push(valueOf(line, "data:"));
        else if (line.startsWith("event:")) event = valueOf(line, "event:");
      }
    }
  } finally {
    // Has no effect on a stream that has ended.
    await reader.cancel().catch(() => undefined);
  }
}

const valueOf = (line: string, name: string): string =>
  line.startsWith(" ", name.length) ? line.slice(name.length + 1) : line.slice(name.length);

/**
 * The events of an answer to `execStream`, of binary frames or of events with query `output: "b64"`: bytes as
 * the command wrote them, then its exit code. Throws a FlotillaError when the command's end is unknown: code
 * `unreachable` when the stream broke, `aborted` when `signal`, the call's own, was, `exec_failed` when the
 * server gives a reason.
 */
export function readExecEvents(answer: Response, signal?: AbortSignal): AsyncGenerator<ExecEvent, void, undefined> {
  const events = execEvents(answer, signal);
  // A generator that was not begun ends without running any of its code, and the command would run on.
  const end = events.return.bind(events);
  events.return = async (value) => {
    if (answer.body?.locked === false) await answer.body.cancel().catch(() => undefined);
    return end(value);
  };
  return events;
}

async function* execEvents(
  answer: Response,
  signal: AbortSignal | undefined,
): AsyncGenerator<ExecEvent, void, undefined> {
  const hasFrames = answer.headers.get("content-type")?.startsWith(EXEC_FRAMES_TYPE) === true;
  try {
    for await (const event of hasFrames ? readFramed(answer) : readBase64(answer)) {
      yield event;
      if (event.kind === "exit") return;
    }
  } catch (error) {
    if (error instanceof FlotillaError) throw error;
    const [code, what] = howItBroke(signal);
    throw failure(answer, code, `${what} while the command ran; its result is unknown`, { cause: error });
  }
  throw failure(answer, "unreachable", "the stream ended before the command's exit; its result is unknown");
}

async function* readBase64(answer: Response): AsyncGenerator<ExecEvent, void, undefined> {
  for await (const { event, data } of readEvents(answer)) {
    if (event === "stdout" || event === "stderr") yield { kind: event, bytes: bytesOf(data) };
    else if (event === "error") throw failure(answer, "exec_failed", data);
    else if (event === "exit") yield exitOf(data);
  }
}

async function* readFramed(answer: Response): AsyncGenerator<ExecEvent, void, undefined> {
  if (answer.body === null) return;
  const reader = (answer.body as ReadableStream<Uint8Array<ArrayBuffer>>).getReader();
  const frames = new FrameReader();
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      for (const piece of frames.push(value)) {
        if (piece.kind === "exit") yield exitOf(piece.text);
        else if (piece.kind === "error") throw failure(answer, "exec_failed", messageOf(piece.text));
        else yield piece;
      }
    }
  } finally {
    // Has no effect on a stream that has ended.
    await reader.cancel().catch(() => undefined);
  }
}

/** A line of the log of a machine or an app. */
export interface LogRecord {
  /** When its node received it, in RFC 3339. */
  readonly timestamp: string;
  readonly level: string;
  readonly message: string;
  /** `node`: a line of the node's, such as how the workload ended. */
  readonly source: "workload" | "node";
  /** In the log of an app: whose line it is. */
  readonly instanceId?: string;
  /** The place before it, with query `cursors: true`: for `after` and `before`. */
  readonly cursor?: string;
}

/** A place in a log, between lines of an answer with query `cursors: true`. */
export interface LogMark {
  readonly cursor: string;
  /** The log's `start`, where earlier lines were removed (`trimmed`), or its present `end`. */
  readonly edge?: "start" | "trimmed" | "end";
  /** Lines before it that were requested were removed. */
  readonly isCut?: true;
}

/**
 * The lines of an answer to `listMachineLogs` or `listAppLogs` with query `format: "json"`, as they arrive;
 * with `follow` until the machine or the app is deleted. Throws a FlotillaError with code `unreachable` when
 * the stream broke, and with `aborted` when `signal`, the call's own, was.
 */
export async function* readLogRecords(
  answer: Response,
  signal?: AbortSignal,
): AsyncGenerator<LogRecord, void, undefined> {
  for await (const message of readLogMessages(answer, signal)) if ("message" in message) yield message;
}

/** As `readLogRecords`, with the places that an answer with query `cursors: true` has between its lines. */
export async function* readLogMessages(
  answer: Response,
  signal?: AbortSignal,
): AsyncGenerator<LogRecord | LogMark, void, undefined> {
  try {
    for await (const { data } of readEvents(answer)) yield JSON.parse(data) as LogRecord | LogMark;
  } catch (error) {
    const [code, what] = howItBroke(signal);
    const text = `${what} while the log was read; there may be more`;
    throw failure(answer, code, text, { cause: error, call: "GET logs" });
  }
}

/**
 * The events of a followed list of them; an `error` event is thrown. `onChange` is called with what the
 * stream says of things that have no events, if it was asked to (query `changes`).
 */
export async function* readTenantEvents(
  answer: Response,
  signal?: AbortSignal,
  onChange?: (change: FollowedChange) => void,
): AsyncGenerator<TenantEvent, void, undefined> {
  const call = "GET /v1/events";
  try {
    for await (const { event, data } of readEvents(answer)) {
      if (event === "error") throw failure(answer, "unavailable", data, { call });
      if (event === "changed") onChange?.(JSON.parse(data) as FollowedChange);
      else yield JSON.parse(data) as TenantEvent;
    }
  } catch (error) {
    if (error instanceof FlotillaError) throw error;
    const [code, what] = howItBroke(signal);
    throw failure(answer, code, `${what} while events were followed`, { cause: error, call });
  }
}

/** Browsers and Node both have `atob`. */
function bytesOf(b64: string): Uint8Array<ArrayBuffer> {
  const binary = atob(b64);
  const bytes = new Uint8Array(binary.length);
  for (let at = 0; at < binary.length; at++) bytes[at] = binary.charCodeAt(at);
  return bytes;
}

const messageOf = (text: string): string => (JSON.parse(text) as { message: string }).message;

function exitOf(data: string): ExecEvent {
  const { exitCode } = JSON.parse(data) as { exitCode: number };
  return { kind: "exit", exitCode };
}

const howItBroke = (signal: AbortSignal | undefined): readonly [code: NoAnswerCode, what: string] =>
  signal?.aborted === true ? ["aborted", "its caller cancelled the call"] : ["unreachable", "the connection broke"];

interface FailureFacts {
  readonly cause?: unknown;
  readonly call?: string;
}

function failure(
  answer: Response,
  code: string,
  text: string,
  { cause, call = "POST exec/stream" }: FailureFacts = {},
): FlotillaError {
  const requestId = answer.headers.get("x-request-id");
  return new FlotillaError(
    { status: answer.status, code, text, requestId, call },
    cause === undefined ? {} : { cause },
  );
}
