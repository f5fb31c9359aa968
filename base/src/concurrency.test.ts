/**
 * Work on many items: how many are under way, in which order results come, and what follows an error.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { mapAtMost } from "./concurrency.ts";

/** Work that ends when the test says so. */
function makeWork() {
  const underWay = new Map<number, PromiseWithResolvers<string>>();
  const work = (item: number): Promise<string> => {
    const end = Promise.withResolvers<string>();
    underWay.set(item, end);
    return end.promise.finally(() => underWay.delete(item));
  };
  const end = async (item: number, error?: Error): Promise<void> => {
    if (error === undefined) underWay.get(item)?.resolve(`result ${item}`);
    else underWay.get(item)?.reject(error);
    await new Promise(setImmediate);
  };
  return { work, end, present: () => [...underWay.keys()] };
}

test("at most so many items are under way, and the results have the order of the items", async () => {
  const { work, end, present } = makeWork();
  const all = mapAtMost(2, [0, 1, 2, 3], work);
  assert.deepEqual(present(), [0, 1]);
  await end(1);
  assert.deepEqual(present(), [0, 2]);
  await end(2);
  await end(3);
  assert.deepEqual(present(), [0]);
  await end(0);
  assert.deepEqual(await all, ["result 0", "result 1", "result 2", "result 3"]);
  assert.deepEqual(await mapAtMost(2, [], work), []);
});

test("after an error nothing begins, and what is under way is waited for", async () => {
  const { work, end, present } = makeWork();
  let isSettled = false;
  const all = mapAtMost(2, [0, 1, 2, 3], work).finally(() => {
    isSettled = true;
  });
  const refused = assert.rejects(all, /^Error: broken$/);
  await end(0, new Error("broken"));
  assert.deepEqual([present(), isSettled], [[1], false]);
  await end(1, new Error("a later one"));
  await refused;
  assert.deepEqual(present(), []);
});
