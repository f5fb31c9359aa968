/**
 * Waiting connections are bounded, expire, and are used for nothing but the boot and port that they were made
 * for.
 */
import assert from "node:assert/strict";
import { PassThrough } from "node:stream";
import { test } from "node:test";
import { AnswerFrame } from "./answer-frame.ts";
import type { GuestConnection } from "./guest-connection.ts";
import type { GuestPort } from "./guest-port.ts";
import { IdleConnections } from "./idle-connections.ts";

/** A clock that the test sets. */
class Time {
  now = 0;
  #timers: { readonly at: number; readonly callback: () => void }[] = [];

  monotonic(): number {
    return this.now;
  }

  timer(ms: number, callback: () => void) {
    const timer = { at: this.now + ms, callback };
    this.#timers.push(timer);
    return { cancel: () => void (this.#timers = this.#timers.filter((each) => each !== timer)) };
  }

  pass(ms: number): void {
    this.now += ms;
    const due = this.#timers.filter(({ at }) => at <= this.now);
    this.#timers = this.#timers.filter(({ at }) => at > this.now);
    for (const { callback } of due) callback();
  }
}

const PORT: GuestPort = {
  tenantId: "tenant-1",
  machineId: "mach-1",
  bootId: "boot-1",
  port: 80,
  node: { nodeId: "node-1", address: "unix:/node" },
  locate: () => Promise.reject(new Error("it is not looked for")),
};

function connection(answer = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"): GuestConnection {
  const frame = new AnswerFrame();
  frame.begin("GET");
  frame.take(Buffer.from(answer));
  return { socket: new PassThrough(), frame, isReused: false };
}

function opened(max = 10): { time: Time; idle: IdleConnections } {
  const time = new Time();
  return { time, idle: new IdleConnections(time, max) };
}

test("the connection that was used last is used first, and none is given twice", () => {
  const { idle } = opened();
  const [one, two] = [connection(), connection()];
  idle.keep(PORT, one);
  idle.keep(PORT, two);
  assert.equal(idle.take(PORT)?.socket, two.socket);
  const again = idle.take(PORT);
  assert.equal(again?.socket, one.socket);
  assert.equal(again?.isReused, true);
  assert.equal(idle.take(PORT), undefined);
  assert.equal(idle.size, 0);
});

test("another machine, boot, port or node gets none of it", () => {
  const { idle } = opened();
  idle.keep(PORT, connection());
  const others: readonly GuestPort[] = [
    { ...PORT, machineId: "mach-2", tenantId: "tenant-2" },
    { ...PORT, bootId: "boot-2" },
    { ...PORT, port: 81 },
    { ...PORT, node: { nodeId: "node-1", address: "unix:/other" } },
  ];
  for (const other of others) assert.equal(idle.take(other), undefined);
  assert.equal(idle.size, 1);
});

test("a connection that has waited too long is not used, and is closed", () => {
  const { time, idle } = opened();
  const [late, swept] = [connection(), connection()];
  idle.keep(PORT, late);
  time.now = 4_000;
  assert.equal(idle.take(PORT), undefined);
  assert.ok(late.socket.destroyed);
  idle.keep(PORT, swept);
  for (let second = 0; second < 6; second += 1) time.pass(1_000);
  assert.ok(swept.socket.destroyed);
  assert.equal(idle.size, 0);
});

test("a guest that closes sooner is believed", () => {
  const { time, idle } = opened();
  idle.keep(PORT, connection("HTTP/1.1 200 OK\r\nkeep-alive: timeout=2, max=5\r\ncontent-length: 0\r\n\r\n"));
  time.now = 1_000;
  assert.equal(idle.take(PORT), undefined);
});

test("a machine has a bounded number of them, and so have all together", () => {
  const { idle } = opened(40);
  const ofOne = Array.from({ length: 33 }, () => connection());
  for (const each of ofOne) idle.keep(PORT, each);
  assert.equal(idle.size, 32);
  assert.ok(ofOne.at(-1)?.socket.destroyed);
  for (let machine = 0; machine < 20; machine += 1)
    idle.keep({ ...PORT, machineId: `mach-other-${machine}` }, connection());
  assert.equal(idle.size, 40);
  assert.ok(ofOne[0]?.socket.destroyed, "the one that waited longest makes room");
  assert.ok(!ofOne[31]?.socket.destroyed);
});

test("an answer that did not end exactly, and a connection that is closed, are not kept", () => {
  const { idle } = opened();
  const unclear = connection("HTTP/1.1 200 OK\r\n\r\n");
  idle.keep(PORT, unclear);
  assert.ok(unclear.socket.destroyed);
  const closed = connection();
  closed.socket.destroy();
  idle.keep(PORT, closed);
  assert.equal(idle.size, 0);
});

test("a byte or an end on a waiting connection closes it", async () => {
  const { idle } = opened();
  for (const act of [(socket: PassThrough) => socket.write("x"), (socket: PassThrough) => socket.end()]) {
    const { socket, frame, isReused } = connection();
    idle.keep(PORT, { socket, frame, isReused });
    act(socket as PassThrough);
    await new Promise((resolve) => socket.once("close", resolve));
    assert.equal(idle.size, 0);
    assert.equal(idle.take(PORT), undefined);
  }
});

test("while a new connection waits long for its answer, none of its port is kept", () => {
  const { time, idle } = opened();
  const [waiting, later, other] = [connection(), connection(), connection()];
  idle.keep(PORT, waiting);
  idle.keep({ ...PORT, port: 81 }, other);
  const answered = idle.waits(PORT);
  time.pass(249);
  assert.ok(!waiting.socket.destroyed);
  time.pass(1);
  assert.ok(waiting.socket.destroyed);
  idle.keep(PORT, later);
  assert.ok(later.socket.destroyed);
  assert.ok(!other.socket.destroyed);
  answered();
  idle.keep(PORT, connection());
  assert.equal(idle.size, 2);
});

test("after the end none is kept", () => {
  const { idle } = opened();
  const [before, after] = [connection(), connection()];
  idle.keep(PORT, before);
  idle.close();
  idle.keep(PORT, after);
  assert.ok(before.socket.destroyed);
  assert.ok(after.socket.destroyed);
});
