/**
 * How tenants share the one thread: by what each piece of work takes, on a clock that the test moves.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { Turns } from "./turns.ts";

/** A piece of work takes as long as is said, and is noted. */
function scene() {
  let now = 0;
  const done: string[] = [];
  const turns = new Turns({ monotonic: () => now });
  const work = (tenantId: string, ms = 5): string | Promise<string> =>
    turns.run(tenantId, () => {
      now += ms;
      done.push(tenantId);
      return tenantId;
    });
  return { turns, work, done };
}

const round = () => new Promise<void>((resolve) => void setImmediate(resolve));

test("work is done at once as long as a round has time for it", () => {
  const { work, done } = scene();
  for (let piece = 0; piece < 4; piece += 1) assert.equal(work("a", 0.2), "a");
  assert.deepEqual(done, ["a", "a", "a", "a"]);
});

test("work beyond a round's time waits for the next ones, and everything else comes in between", async () => {
  const { work, done } = scene();
  void work("a");
  const waiting = [work("a"), work("a")];
  assert.ok(waiting.every((turn) => turn instanceof Promise));
  assert.equal(done.length, 1);
  await round();
  assert.equal(done.length, 2, "one piece that is longer than a round is one round's work");
  assert.deepEqual(await Promise.all(waiting.map((turn) => Promise.resolve(turn))), ["a", "a"]);
});

test("a tenant with much work waiting delays another's by one piece", async () => {
  const { work, done } = scene();
  void work("a");
  const all = [work("a"), work("a"), work("a"), work("a"), work("b")];
  await Promise.all(all.map((turn) => Promise.resolve(turn)));
  assert.deepEqual(done, ["a", "a", "b", "a", "a", "a"]);
});

test("a tenant's work is done in the order in which it came, also when a round has time again", async () => {
  const { turns } = scene();
  const done: number[] = [];
  let now = 0;
  const own = new Turns({ monotonic: () => now });
  const piece = (index: number) =>
    own.run("a", () => {
      now += 5;
      done.push(index);
    });
  const all = [piece(0), piece(1), piece(2)];
  await round();
  all.push(piece(3));
  await Promise.all(all.map((turn) => Promise.resolve(turn)));
  assert.deepEqual(done, [0, 1, 2, 3]);
  assert.equal(
    turns.run("a", () => 1),
    1,
  );
});

test("what a piece of work throws reaches who asked for the turn, now or later, and the next has its turn", async () => {
  const { turns, work } = scene();
  const fail = () => {
    throw new Error("broken");
  };
  assert.throws(() => turns.run("a", fail), /broken/);
  void work("a");
  const later = turns.run("a", fail);
  const after = work("a");
  await assert.rejects(Promise.resolve(later), /broken/);
  assert.equal(await after, "a");
});

test("a tenant's first piece does not wait behind a flood, because the end of a short command is one", () => {
  const { work, done } = scene();
  void work("flood", 1);
  void work("flood", 1);
  assert.equal(work("quiet", 0.1), "quiet");
  assert.deepEqual(done, ["flood", "quiet"]);
});

test("a tenant's short pieces do not wait for another one's long ones", async () => {
  const { work, done } = scene();
  void work("a", 2);
  const waiting = [work("a", 2), work("a", 2)];
  for (let piece = 0; piece < 3; piece += 1) assert.equal(work("b", 0.1), "b");
  assert.ok(work("b", 0.1) instanceof Promise, "what is its own of the round is used");
  await round();
  await Promise.all(waiting.map((turn) => Promise.resolve(turn)));
  assert.deepEqual(done, ["a", "b", "b", "b", "a", "b", "a"]);
});

test("a tenant's turn is several short pieces or one long one", async () => {
  const { work, done } = scene();
  void work("a", 4);
  const waiting = [work("a", 0.5), ...Array.from({ length: 4 }, () => work("b", 0.1)), work("a", 0.5)];
  await Promise.all(waiting.map((turn) => Promise.resolve(turn)));
  assert.deepEqual(done, ["a", "a", "b", "b", "b", "a", "b"]);
});
