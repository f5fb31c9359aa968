/**
 * Sends a stream as the body of an answer.
 *
 * Always:
 * - What the stream gives in one turn of the event loop is one chunk of the answer and one write, so that a small head before
 *   its payload costs its reader nothing. Small pieces are written together: a guest may answer in chunks of one byte, each of which
 *   would be some objects of 60 to 100 bytes until the reader has it.
 * - The stream is paused while HELD_BYTES or more wait for the reader. Node asks for a pause at each piece of 64 KiB, also when
 *   the kernel takes it at once, and pausing and resuming costs more than the piece.
 * - A stream that fails breaks the connection, and a connection that breaks destroys the stream.
 */
import type { ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { Readable } from "node:stream";

/** More than the socket's own high-water mark, so that a `drain` follows. */
const HELD_BYTES = 128 * 1024;

/**
 * Whether the whole stream was handed to the network; false when it failed, or the reader has disconnected. The answer's head
 * was sent before.
 */
export function pour(body: Readable, response: ServerResponse): Promise<boolean> {
  const { promise, resolve } = Promise.withResolvers<boolean>();
  let turn: Piece[] = [];
  let turnBytes = 0;
  const endTurn = (): void => {
    const pieces = together(turn);
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
    // It waits for the answer to an earlier request of the connection. All of it is then written into the socket at once.
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
  body.on("end", () => {
    endTurn();
    response.end();
  });
  const fail = (): void => {
    body.destroy();
    response.destroy();
    resolve(false);
  };
  body.on("error", fail);
  body.on("close", () => (body.readableEnded ? undefined : fail()));
  response.on("error", fail);
  response.on("finish", () => resolve(true));
  response.on("close", () => (response.writableFinished ? undefined : fail()));
  if (response.destroyed || body.destroyed) fail();
  return promise;
}

type Piece = Buffer | string;

/** A larger piece is written as it is; a copy would cost more than another buffer to write. */
const SMALL_BYTES_MAX = 4096;

/** The same bytes in order, with small pieces that follow each other in one. Pure. */
export function together(pieces: readonly Piece[]): readonly Piece[] {
  if (pieces.length <= 1) return pieces;
  const result: Piece[] = [];
  for (let at = 0; at < pieces.length; ) {
    const first = pieces[at] ?? "";
    let end = at + 1;
    if (isSmall(first)) while (end < pieces.length && isAlike(first, pieces[end])) end += 1;
    const alike = pieces.slice(at, end);
    if (alike.length === 1) result.push(first);
    else result.push(typeof first === "string" ? alike.join("") : Buffer.concat(alike as Buffer[]));
    at = end;
  }
  return result;
}

const isSmall = (piece: Piece): boolean => piece.length < SMALL_BYTES_MAX;
const isAlike = (first: Piece, next: Piece | undefined): boolean =>
  next !== undefined && typeof next === typeof first && isSmall(next);
