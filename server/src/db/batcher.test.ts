/**
 * Callers that come together share a statement, fail alone, and are served in order.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { endOfTurn, systemClock } from "@flotilla/base/clock";
import { DatabaseUnavailable } from "./database.ts";
import { Batcher } from "./batcher.ts";

type Item = readonly [key: string, value: number];

/** A clock that stays where it is until a sleep moves it, and statements that the test ends. */
function rig({ statementsMax = 1, itemsMax = 10, gatherMs = 0, isRead = false } = {}) {
  let now = 0;
  const begun: { items: readonly Item[]; isAlone: boolean; done: PromiseWithResolvers<ReadonlyMap<string, number>> }[] =
    [];
  const sleeps: number[] = [];
  const clock = {
    ...systemClock,
    monotonic: () => now,
    sleep: async (ms: number) => {
      sleeps.push(ms);
      await endOfTurn();
      now += ms;
    },
  };
  const batcher = new Batcher<Item, number>({
    ...{ clock, statementsMax, itemsMax, gatherMs, isRead },
    keyOf: ([key]) => key,
    work(items, isAlone) {
      const done = Promise.withResolvers<ReadonlyMap<string, number>>();
      begun.push({ items, isAlone, done });
      return done.promise;
    },
  });
  const end = async (at: number): Promise<void> => {
    begun[at]?.done.resolve(new Map(begun[at].items));
    for (let turn = 0; turn < 4; turn += 1) await endOfTurn();
  };
  return { batcher, begun, sleeps, end, turn: endOfTurn };
}

test("those of one turn share a statement, and those that come meanwhile the next one", async () => {
  const { batcher, begun, end, turn } = rig();
  const first = [batcher.do(["a", 1]), batcher.do(["b", 2])];
  assert.equal(begun.length, 0);
  await turn();
  const next = [batcher.do(["c", 3]), batcher.do(["d", 4])];
  await turn();
  assert.deepEqual(
    begun.map(({ items }) => items),
    [
      [
        ["a", 1],
        ["b", 2],
      ],
    ],
  );
  await end(0);
  assert.deepEqual(await Promise.all(first), [1, 2]);
  await end(1);
  assert.deepEqual(await Promise.all(next), [3, 4]);
  assert.equal(begun.length, 2);
});

test("a statement has a key once, and the next of that key begins when it has ended, also beside others", async () => {
  const { batcher, begun, end, turn } = rig({ statementsMax: 2 });
  const all = [batcher.do(["a", 1]), batcher.do(["a", 2]), batcher.do(["b", 3])];
  await turn();
  await turn();
  assert.deepEqual(
    begun.map(({ items }) => items),
    [
      [
        ["a", 1],
        ["b", 3],
      ],
    ],
  );
  await end(0);
  await end(1);
  assert.deepEqual(await Promise.all(all), [1, 2, 3]);
});

test("reads of one key share a statement", async () => {
  const { batcher, begun, end, turn } = rig({ isRead: true });
  const all = [batcher.do(["a", 1]), batcher.do(["a", 1])];
  await turn();
  await end(0);
  assert.deepEqual(await Promise.all(all), [1, 1]);
  assert.equal(begun.length, 1);
});

test("a statement begins some time after the one before, and the first of a quiet time at once", async () => {
  const { batcher, sleeps, end, turn } = rig({ gatherMs: 20 });
  const first = batcher.do(["a", 1]);
  await turn();
  await end(0);
  assert.equal(await first, 1);
  assert.deepEqual(sleeps, []);
  const second = batcher.do(["b", 2]);
  await turn();
  await turn();
  await end(1);
  assert.equal(await second, 2);
  assert.deepEqual(sleeps, [20]);
});

test("what fails is done again alone, and its caller alone fails", async () => {
  const { batcher, begun, end, turn } = rig();
  const all = Promise.allSettled([batcher.do(["a", 1]), batcher.do(["b", 2])]);
  await turn();
  begun[0]?.done.reject(new Error("one of them"));
  await turn();
  assert.deepEqual(
    begun.slice(1).map(({ items, isAlone }) => [items, isAlone]),
    [
      [[["a", 1]], true],
      [[["b", 2]], true],
    ],
  );
  begun[1]?.done.reject(new Error("its own"));
  await end(2);
  const [a, b] = await all;
  assert.match(String((a as PromiseRejectedResult).reason), /its own/);
  assert.deepEqual(b, { status: "fulfilled", value: 2 });
  const again = batcher.do(["a", 5]);
  await turn();
  await end(3);
  assert.equal(await again, 5);
});

test("an unavailable database fails for all, and nothing is tried again", async () => {
  const { batcher, begun, turn } = rig({ itemsMax: 2 });
  const all = Promise.allSettled([batcher.do(["a", 1]), batcher.do(["b", 2]), batcher.do(["c", 3])]);
  await turn();
  for (const at of [0, 1]) {
    begun[at]?.done.reject(new DatabaseUnavailable(new Error("gone")));
    for (let count = 0; count < 4; count += 1) await turn();
  }
  assert.ok((await all).every(({ status }) => status === "rejected"));
  assert.equal(begun.length, 2);
});
