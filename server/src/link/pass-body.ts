/**
 * Passes a caller's body on to a writer, no faster than the writer accepts it, in the turns of its tenant,
 * and with small pieces together.
 */
import { finished, type Readable } from "node:stream";
import { joinSmall } from "@flotilla/base/pieces";
import type { Turn } from "../fairness/turns.ts";

/** Where a body goes; a Writable is one. */
export interface BodySink {
  /** Accepts a piece. false: wait for `drain` before the next one. */
  write(chunk: Buffer): boolean;
  once(event: "drain" | "close", listener: () => void): unknown;
  off(event: "drain" | "close", listener: () => void): unknown;
  readonly destroyed: boolean;
}

export interface Passing {
  /** Resolves when all of the body was written; rejects when the body broke off. */
  readonly all: Promise<void>;
  /** Stops writing; discards what still arrives, so that the caller can read its answer. */
  stop(): void;
}

export function passBody(body: Readable, sink: BodySink, turn: Turn): Passing {
  let pieces: Buffer[] = [];
  /** While a piece waits for its turn, or for room. */
  let waiting: Promise<void> | null = null;
  const pass = (): void => {
    if (waiting !== null) return;
    const next = joinSmall(pieces) as readonly Buffer[];
    pieces = [];
    for (const [at, piece] of next.entries()) {
      let room: Promise<void> | undefined;
      const written = turn(() => {
        if (sink.destroyed || sink.write(piece)) return true;
        // At once: `drain` may come before the next promise.
        room = roomOf(sink);
        return false;
      });
      if (written === true) continue;
      body.pause();
      pieces = next.slice(at + 1);
      waiting = Promise.resolve(written)
        .then(() => room)
        .then(() => {
          waiting = null;
          pass();
          if (waiting === null) body.resume();
        });
      return;
    }
  };
  const onData = (chunk: Buffer): void => {
    // What comes in one turn of the event loop is passed together: each chunk of one byte would be an object
    // until it is sent.
    if (pieces.length === 0 && waiting === null) process.nextTick(pass);
    pieces.push(chunk);
  };
  // The body may have ended with pieces that wait.
  const passAll = async (): Promise<void> => {
    pass();
    while (waiting !== null) await waiting;
  };
  const all = new Promise<void>((resolve, reject) => {
    finished(body, { writable: false }, (error) => {
      if (error !== undefined && error !== null) reject(error);
      else resolve(passAll());
    });
  });
  all.catch(() => undefined);
  body.on("data", onData);
  return {
    all,
    stop: () => {
      body.off("data", onData);
      pieces = [];
      body.resume();
    },
  };
}

const roomOf = (sink: BodySink): Promise<void> =>
  new Promise((resolve) => {
    if (sink.destroyed) return resolve();
    const done = (): void => {
      sink.off("drain", done);
      sink.off("close", done);
      resolve();
    };
    sink.once("drain", done);
    sink.once("close", done);
  });
