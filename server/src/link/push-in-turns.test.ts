/**
 * A stream that is passed on in turns loses nothing and has at most one piece that waits, however often its
 * reader asks.
 */
import assert from "node:assert/strict";
import { PassThrough, Readable } from "node:stream";
import { test } from "node:test";
import { endOfTurn } from "@flotilla/base/clock";
import { pushInTurns } from "./push-in-turns.ts";

const PIECES = 200;
const PIECE_BYTES = 1024;

test("at most one piece waits for its turn while the reader asks for more, and the end comes last", async () => {
  const source = new PassThrough({ highWaterMark: 1 });
  const waiting: (() => void)[] = [];
  let most = 0;
  // Every second piece waits.
  let pieces = 0;
  const turn = (work: () => boolean): boolean | Promise<boolean> => {
    pieces += 1;
    if (pieces % 2 === 0) return work();
    return new Promise((resolve) => {
      waiting.push(() => resolve(work()));
      most = Math.max(most, waiting.length);
    });
  };
  let more = (): void => undefined;
  const stream = new Readable({ read: () => more() });
  more = pushInTurns(source, stream, turn);
  for (let index = 0; index < PIECES; index += 1) source.write(Buffer.alloc(PIECE_BYTES, index));
  source.end();
  const received: Buffer[] = [];
  stream.on("data", (piece: Buffer) => received.push(piece));
  while (!stream.readableEnded) {
    // The reader asks, and asks again, before the piece has its turn.
    more();
    await endOfTurn();
    more();
    await endOfTurn();
    waiting.shift()?.();
    await endOfTurn();
  }
  assert.equal(most, 1);
  assert.equal(Buffer.concat(received).byteLength, PIECES * PIECE_BYTES);
  assert.deepEqual(
    received.map(([first]) => first),
    Array.from({ length: PIECES }, (_, index) => index),
  );
});
