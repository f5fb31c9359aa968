/**
 * Parked connections, with the other end played by the test.
 */
import assert from "node:assert/strict";
import { Duplex } from "node:stream";
import { test } from "node:test";
import { type Clock, systemClock } from "@flotilla/base/clock";
import { CLAIM, PING } from "@flotilla/contract/link/fleet";
import { ParkedConnections } from "./parked.ts";

/** Deadlines pass a hundred times sooner. */
const clock: Clock = { ...systemClock, timer: (ms, callback) => systemClock.timer(ms / 100, callback) };

/** One end of a connection. `answer` plays the other: what it gets, and what it sends back. */
class End extends Duplex {
  readonly received: number[] = [];
  readonly #answer: (byte: number) => readonly number[];

  constructor(answer: (byte: number) => readonly number[]) {
    super();
    this.#answer = answer;
  }

  override _read(): void {}

  override _write(chunk: Buffer, _: BufferEncoding, done: () => void): void {
    for (const byte of chunk) {
      this.received.push(byte);
      const answer = this.#answer(byte);
      if (answer.length > 0) this.push(Buffer.from(answer));
    }
    done();
  }
}

const willing = (): End => new End((byte) => (byte === CLAIM ? [CLAIM] : []));
const dead = (): End => new End(() => []);
const rounds = async (): Promise<void> => {
  for (let round = 0; round < 5; round += 1) await new Promise((resolve) => setImmediate(resolve));
};

test("a call gets the most recently parked connection, each once, after its node has agreed", async () => {
  const parked = new ParkedConnections(clock);
  const ends = [willing(), willing()];
  for (const end of ends) parked.park("a", end);
  assert.equal(await parked.take("a"), ends[1]);
  assert.equal(await parked.take("a"), ends[0]);
  assert.equal(parked.countOf("a"), 0);
  await assert.rejects(parked.take("a"), /node a has no connection open to this server/);
  parked.close();
});

test("closed connections are discarded, and the call gets one that works", async () => {
  const parked = new ParkedConnections(clock);
  const good = willing();
  parked.park("a", good);
  const closed = [willing(), willing()];
  for (const end of closed) parked.park("a", end);
  for (const end of closed) end.destroy();
  assert.equal(await parked.take("a"), good);
  assert.equal(good.destroyed, false);
  parked.close();
});

test("after one silent connection the others that were silent too are discarded, and the call gets the next that is parked", async () => {
  const parked = new ParkedConnections(clock);
  const silent = Array.from({ length: 32 }, dead);
  for (const end of silent) parked.park("a", end);
  const taking = parked.take("a");
  const next = willing();
  // The node opens another connection when it sees that one was closed.
  silent[0]?.once("close", () => parked.park("a", next));
  assert.equal(await taking, next);
  assert.ok(silent.every(({ destroyed }) => destroyed));
  parked.close();
});

test("a call does not wait longer for a node that parks one connection after another and agrees on none", async () => {
  let elapsedMs = 0;
  const parked = new ParkedConnections({ ...clock, monotonic: () => (elapsedMs += 100) });
  let count = 0;
  const park = (): void => {
    count += 1;
    const end = new End((byte) => (byte === CLAIM ? [0] : []));
    if (count < 2_000) end.once("close", park);
    parked.park("a", end);
  };
  for (let n = 0; n < 8; n += 1) park();
  await assert.rejects(parked.take("a"), /node a has no connection/);
  assert.ok(count < 200, `it parked ${count}`);
  parked.close();
});

test("a call waits for a node that is about to park one, and not for another node's", async () => {
  const parked = new ParkedConnections(clock);
  const taking = parked.take("a");
  parked.park("b", willing());
  const own = willing();
  parked.park("a", own);
  assert.equal(await taking, own);
  assert.equal(parked.countOf("b"), 1);
  parked.close();
});

test("a ping is answered, also one that crosses the claim, and anything else ends the connection", async () => {
  const parked = new ParkedConnections(clock);
  const end = new End((byte) => (byte === CLAIM ? [PING, CLAIM] : []));
  parked.park("a", end);
  end.push(Buffer.from([PING]));
  await rounds();
  assert.deepEqual(end.received, [PING]);
  assert.equal(await parked.take("a"), end);
  const garbage = willing();
  parked.park("a", garbage);
  garbage.push("GET / HTTP/1.1\r\n\r\n");
  await rounds();
  assert.equal(garbage.destroyed, true);
  parked.close();
});

test("a node that pings without an end and reads no answer is owed one", async () => {
  const parked = new ParkedConnections(clock);
  // Its other end never takes what is written.
  const end = new Duplex({ read: () => undefined, write: () => undefined });
  parked.park("a", end);
  for (let ping = 0; ping < 100; ping += 1) {
    end.push(Buffer.from([PING]));
    await rounds();
  }
  assert.equal(end.writableLength, 1);
  assert.equal(parked.countOf("a"), 1);
  parked.close();
});

test("a node has a bounded number of parked connections, and closing ends them and the calls that wait", async () => {
  const parked = new ParkedConnections(clock);
  const ends = Array.from({ length: 70 }, willing);
  for (const end of ends) parked.park("a", end);
  assert.equal(parked.countOf("a"), 64);
  assert.equal(ends.filter(({ destroyed }) => destroyed).length, 6);
  const waiting = assert.rejects(parked.take("b"), /stopping/);
  parked.close();
  await waiting;
  assert.ok(ends.every(({ destroyed }) => destroyed));
});
