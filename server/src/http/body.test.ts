/**
 * A body whose last piece waits for its round, while the request has already ended.
 */
import assert from "node:assert/strict";
import type { IncomingMessage } from "node:http";
import { Readable } from "node:stream";
import { test } from "node:test";
import { systemClock } from "@flotilla/base/clock";
import { BodyShare, type Rounds, readBody } from "./body.ts";
import { BodyWatch } from "./body-watch.ts";
import { Budget } from "./budget.ts";

/** Each piece waits for a later round. */
const later: Rounds = {
  run: (_, work) => new Promise((resolve) => setImmediate(() => resolve(work()))),
};

function incomingOf(pieces: readonly string[]): IncomingMessage {
  const stream = new Readable({ read: () => undefined });
  for (const piece of pieces) stream.push(piece);
  stream.push(null);
  const headers = { "content-length": String(pieces.join("").length) };
  return Object.assign(stream, { headers, complete: true, socket: { bytesRead: 0 } }) as never;
}

for (const pieces of [["whole"], ["first ", "second"]])
  test(`a body of ${pieces.length} pieces is whole when its end comes before its last round`, async () => {
    const share = new BodyShare(new Budget({ all: 1000, perHolder: 1000 }), "tenant");
    const watch = new BodyWatch(systemClock);
    const read = await readBody(incomingOf(pieces), { maxBytes: 100, share, watch, rounds: later });
    assert.equal(Buffer.concat(read).toString(), pieces.join(""));
  });
