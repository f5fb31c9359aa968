/**
 * Passes a caller's body on to a writer, no faster than the writer accepts it and in the turns of its tenant.
 */
import { finished, type Readable } from "node:stream";
import type { Turn } from "./turns.ts";

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
  let waiting: Promise<void> | undefined;
  const onData = (chunk: Buffer): void => {
    const written = turn(() => sink.destroyed || sink.write(chunk));
    if (written === true) return;
    body.pause();
    // The body may have ended with this piece.
    waiting = Promise.resolve(written)
      .then((hasRoom) => (hasRoom ? undefined : roomOf(sink)))
      .then(() => void body.resume());
  };
  const all = new Promise<void>((resolve, reject) => {
    finished(body, { writable: false }, (error) => {
      if (error !== undefined && error !== null) reject(error);
      else resolve(waiting);
    });
  });
  all.catch(() => undefined);
  body.on("data", onData);
  return {
    all,
    stop: () => {
      body.off("data", onData);
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
