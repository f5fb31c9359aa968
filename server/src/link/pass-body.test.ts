/**
 * A body that is passed on in small pieces, to a writer that has no room and in turns that come later.
 */
import assert from "node:assert/strict";
import { Readable, Writable } from "node:stream";
import { test } from "node:test";
import { endOfTurn } from "@flotilla/base/clock";
import { passBody } from "./pass-body.ts";

const now = <T>(work: () => T): T => work();
const later = (work: () => boolean): Promise<boolean> => endOfTurn().then(work);

/** A writer that takes one piece for each call of `take`. */
function slowWriter() {
  const got: Buffer[] = [];
  const waiting: (() => void)[] = [];
  const sink = new Writable({
    highWaterMark: 1,
    write: (piece: Buffer, _encoding, done) => {
      got.push(piece);
      waiting.push(done);
    },
  });
  return { sink, got, take: () => waiting.shift()?.() };
}

for (const [name, turn] of [
  ["at once", now],
  ["later", later],
] as const)
  test(`a body whose turns come ${name} arrives complete and in order, however it is cut`, async () => {
    const body = new Readable({ read: () => undefined });
    const { sink, got, take } = slowWriter();
    const { all } = passBody(body, sink, turn);
    const given: Buffer[] = [];
    for (const size of [1, 1, 1, 5_000, 1, 9_000, 2, 2]) {
      const piece = Buffer.alloc(size, given.length);
      given.push(piece);
      body.push(piece);
      if (given.length === 5) await endOfTurn();
    }
    body.push(null);
    let isOver = false;
    void all.then(() => (isOver = true));
    while (!isOver || sink.writableLength > 0) {
      take();
      await endOfTurn();
    }
    assert.ok(Buffer.concat(got).equals(Buffer.concat(given)));
    // Small ones of one turn came together.
    assert.ok(got.length < given.length, `${got.length} pieces`);
  });

test("single bytes that come together are passed together, and none after the end", async () => {
  const body = new Readable({ read: () => undefined });
  const { sink, got, take } = slowWriter();
  const passing = passBody(body, sink, now);
  for (let count = 0; count < 10_000; count += 1) body.push("x");
  await endOfTurn();
  take();
  assert.deepEqual(got, [Buffer.alloc(10_000, "x")]);
  body.push("more");
  passing.stop();
  await endOfTurn();
  assert.equal(got.length, 1);
});
