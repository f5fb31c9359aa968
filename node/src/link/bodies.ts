/**
 * Reads the bodies of requests on the link, bounded: how long a message is and takes, how long an upload is
 * silent, how much of the disk it takes, and how much longer a body is read whose request was answered.
 */
import { createWriteStream } from "node:fs";
import type { IncomingMessage, ServerResponse } from "node:http";
import { dirname } from "node:path";
import { finished } from "node:stream/promises";
import type { Clock, Timer } from "@flotilla/base/clock";
import { InvalidMessage } from "@flotilla/contract/link/read";
import { watchSpace } from "../images/space.ts";

/**
 * A specification holds at most an environment of half a MiB and a command; in JSON that is a few times as
 * much.
 */
const MESSAGE_BYTES_MAX = 8 * 1024 * 1024;
/** Servers send a message at once, so this is much longer than one takes. */
export const MESSAGE_MS = 60_000;
/** Longer than a server lets its own caller be silent. */
const UPLOAD_SILENCE_MS = 120_000;
/** Enough for a caller to read the answer and to stop. */
const LEFTOVER_MS = 10_000;
/**
 * A caller that sends no more than this in that time has not read the answer yet, because its own caller is
 * slow: it ends the body of a terminal when it has. It is waited for as long as a server waits for a caller.
 */
const LEFTOVER_BYTES_MAX = 64 * 1024;
const UNREAD_MS_MAX = 60 * 60_000;

export const lateMessage = (): InvalidMessage =>
  new InvalidMessage("message", `all of it within ${MESSAGE_MS / 1000} s`);

/** A body that is one JSON value. Throws InvalidMessage or SyntaxError. */
export function readJson(request: IncomingMessage, clock: Clock): Promise<unknown> {
  const { promise, resolve, reject } = Promise.withResolvers<Buffer>();
  const chunks: Buffer[] = [];
  let bytes = 0;
  const take = (chunk: Buffer): void => {
    bytes += chunk.byteLength;
    chunks.push(chunk);
    if (bytes > MESSAGE_BYTES_MAX) reject(new InvalidMessage("message", `at most ${MESSAGE_BYTES_MAX} bytes`));
  };
  const end = (): void => resolve(Buffer.concat(chunks));
  const broken = (): void => reject(new InvalidMessage("message", "all of it"));
  const late = clock.timer(MESSAGE_MS, () => reject(lateMessage()));
  request.on("data", take).once("end", end).once("close", broken).once("error", broken);
  const stop = (): void => {
    late.cancel();
    request.off("data", take).off("end", end).off("close", broken);
    chunks.length = 0;
  };
  return promise.then((whole) => JSON.parse(whole.toString("utf8")) as unknown).finally(stop);
}

export interface Upload {
  readonly clock: Clock;
  /** Aborted when the caller has gone. */
  readonly signal: AbortSignal;
}

/**
 * Writes a body to a new file. Throws DiskFull before it takes the space that images leave to machines; the
 * request can still be answered then. Breaks the connection when nothing arrives for UPLOAD_SILENCE_MS.
 */
export async function receiveFile(request: IncomingMessage, path: string, { clock, signal }: Upload): Promise<void> {
  using _silence = endWhenSilent(request, clock);
  using space = watchSpace(dirname(path), clock, signal);
  const file = createWriteStream(path, { mode: 0o600, signal: space.signal });
  try {
    await finished(request.pipe(file));
  } catch (error) {
    throw space.signal.aborted ? space.signal.reason : error;
  } finally {
    request.unpipe(file);
    // The rest is discarded, so that the caller reads the answer.
    request.resume();
  }
}

/** Breaks the connection when nothing arrives for `silenceMs` milliseconds. */
export function endWhenSilent(request: IncomingMessage, clock: Clock, silenceMs = UPLOAD_SILENCE_MS): Disposable {
  const { socket } = request;
  let seen = -1;
  let timer: Timer | null = null;
  const look = (): void => {
    if (socket.bytesRead === seen) return void socket.destroy();
    seen = socket.bytesRead;
    timer = clock.timer(silenceMs, look);
  };
  look();
  return { [Symbol.dispose]: () => timer?.cancel() };
}

/**
 * Breaks the connection when its caller still sends a body LEFTOVER_MS after the answer, or has not ended it
 * after UNREAD_MS_MAX. After that other requests use the connection, whether somebody has read the body or
 * not. Call it before the answer begins.
 */
export function boundLeftover(request: IncomingMessage, response: ServerResponse, clock: Clock): void {
  response.once("finish", () => {
    const { socket } = request;
    if (request.complete || socket.destroyed) return;
    const until = clock.monotonic() + UNREAD_MS_MAX;
    let seen = socket.bytesRead;
    const look = (): void => {
      if (request.complete) return;
      if (socket.bytesRead - seen > LEFTOVER_BYTES_MAX || clock.monotonic() >= until) return void socket.destroy();
      seen = socket.bytesRead;
      late = clock.timer(LEFTOVER_MS, look);
    };
    let late = clock.timer(LEFTOVER_MS, look);
    const over = (): void => late.cancel();
    request.once("end", over).once("close", over);
  });
}
