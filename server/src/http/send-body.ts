/**
 * Sends a stream as the body of an answer.
 *
 * Always:
 * - What the stream gives in one turn of the event loop is one chunk of the answer and one write, so that a
 *   small head before its payload costs its reader nothing. Small pieces are written together: a guest may
 *   answer in chunks of one byte, each of which would be several objects until the reader has it.
 * - The stream is paused while HELD_BYTES or more wait for the reader. Node asks for a pause at each piece of
 *   64 KiB, also when the kernel takes it at once, and pausing and resuming costs more than the piece.
 * - A stream that fails breaks the connection, and a connection that breaks destroys the stream.
 * - A stream that is ended early ends the answer as its own end does.
 */
import type { ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { Readable } from "node:stream";
import { type Piece, joinSmall } from "@flotilla/base/pieces";

/** More than the socket's own high-water mark, so that a `drain` follows. */
const HELD_BYTES = 128 * 1024;

/** Fields after a body, each a name and a value. */
export type Trailers = readonly [string, string][];

interface SendBodyOptions {
  /** What follows the stream, asked at its end; a body with a length has none. */
  readonly trailersOf?: () => Trailers;
  /** Aborted when what has come is to be the whole. */
  readonly early?: AbortSignal | undefined;
}

/**
 * Whether the whole stream was handed to the network; false when it failed, or the reader has disconnected.
 * The answer's head was sent before.
 */
export function sendBody(
  body: Readable,
  response: ServerResponse,
  { trailersOf = () => [], early }: SendBodyOptions = {},
): Promise<boolean> {
  const { promise, resolve } = Promise.withResolvers<boolean>();
  let turn: Piece[] = [];
  let turnBytes = 0;
  const endTurn = (): void => {
    const pieces = joinSmall(turn);
    turn = [];
    turnBytes = 0;
    if (pieces.length === 0 || response.destroyed) return;
    // uncork() of a response writes each part of a chunk separately (Node 24).
    const { socket } = response;
    socket?.cork();
    response.cork();
    for (const piece of pieces) response.write(piece);
    response.uncork();
    socket?.uncork();
    // A corked response that was full emits no `drain` when its bytes then fit into the socket (Node 24).
    if (!body.isPaused()) return;
    if (response.writableLength < HELD_BYTES) body.resume();
    // A response emits `drain` only if a single chunk was large, whatever waits in its socket (Node 24).
    else if (socket !== null) socket.once("drain", resume);
    // It waits for the answer to an earlier request of the connection. All of it is then written into the
    // socket at once.
    else response.once("socket", (given: Socket) => given.once("drain", resume));
  };
  const resume = (): void => void body.resume();
  body.on("data", (piece: Piece) => {
    if (turn.length === 0) process.nextTick(endTurn);
    turn.push(piece);
    turnBytes += piece.length;
    if (response.writableLength + turnBytes >= HELD_BYTES) body.pause();
  });
  response.on("drain", resume);
  const end = (): void => {
    endTurn();
    const trailers = trailersOf();
    if (trailers.length > 0) response.addTrailers(trailers);
    response.end();
  };
  body.on("end", end);
  const endEarly = (): void => {
    end();
    body.destroy();
  };
  const fail = (): void => {
    body.destroy();
    // HTTP/1.0 has no chunks: the end of the connection is that of the answer, and only a reset says that it
    // broke.
    if (response.req.httpVersionMinor === 0) response.socket?.resetAndDestroy();
    response.destroy();
    resolve(false);
  };
  const failUnlessEnded = (): void => (response.writableEnded ? undefined : fail());
  body.on("error", failUnlessEnded);
  body.on("close", failUnlessEnded);
  response.on("error", fail);
  response.on("finish", () => resolve(true));
  response.on("close", () => {
    early?.removeEventListener("abort", endEarly);
    if (!response.writableFinished) fail();
  });
  if (response.destroyed || body.destroyed) fail();
  else if (early?.aborted) endEarly();
  else early?.addEventListener("abort", endEarly, { once: true });
  return promise;
}
