/**
 * How tenants share what is at work, on a clock that the test moves.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { addressCaller, type Caller, FairSemaphore, tenantCaller, visitorsOf } from "./semaphore.ts";

function scene(...askedLately: Caller[]) {
  let now = 0;
  const timers: (() => void)[] = [];
  const semaphore = new FairSemaphore({
    monotonic: () => now,
    timer: (_ms, callback) => {
      timers.push(callback);
      return { cancel: () => undefined };
    },
  });
  const pass = async (ms: number): Promise<void> => {
    now += ms;
    for (const callback of timers.splice(0)) callback();
    await settled();
  };
  /** Begins so many requests; returns the ends of those that have begun. */
  const ask = (caller: Caller, count: number): (() => void)[] => {
    const ends: (() => void)[] = [];
    for (let index = 0; index < count; index += 1) {
      const beginning = semaphore.begin(caller);
      if (beginning instanceof Promise) void beginning.then((end) => ends.push(end));
      else ends.push(beginning);
    }
    return ends;
  };
  for (const caller of askedLately) for (const end of ask(caller, 1)) end();
  return { semaphore, ask, pass };
}

const [A, B, C] = [tenantCaller("a"), tenantCaller("b"), tenantCaller("c")];
const VISITORS = visitorsOf("a");
const ADDRESS = addressCaller("192.0.2.1");

const settled = () => new Promise<void>((resolve) => void setImmediate(resolve));

test("a tenant that asks alone never waits, nor do its visitors", () => {
  const { ask } = scene(A, VISITORS, ADDRESS);
  assert.equal(ask(A, 100).length, 100);
  assert.equal(ask(VISITORS, 100).length, 100);
});

test("tenants have equal shares, and no less than four requests at work", () => {
  const two = scene(A, B);
  assert.equal(two.ask(A, 50).length, 6);
  assert.equal(two.ask(B, 50).length, 6);
  const five = scene(A, B, C, tenantCaller("d"), tenantCaller("e"));
  assert.equal(five.ask(A, 50).length, 4);
  assert.equal(five.ask(B, 3).length, 3);
});

test("a tenant's visitors have half as much in addition, and an address with unknown callers has two requests", () => {
  const { ask } = scene(A, B, VISITORS, ADDRESS);
  assert.equal(ask(VISITORS, 50).length, 3);
  assert.equal(ask(ADDRESS, 50).length, 2);
  assert.equal(ask(A, 50).length, 6, "its visitors do not make its own requests wait");
  assert.equal(ask(B, 50).length, 6);
});

test("as a request ends the next one of its caller begins, and an end counts once", async () => {
  const { ask } = scene(A, B);
  const begun = ask(A, 8);
  const [first] = begun;
  first?.();
  first?.();
  await settled();
  assert.equal(begun.length, 7);
});

test("a flood leaves another tenant's share free, however many of its requests wait", () => {
  const { ask } = scene(A, B);
  ask(B, 10_000);
  assert.equal(ask(A, 6).length, 6);
});

test("callers whose requests wait take turns, and those of one begin in their order", async () => {
  const { semaphore, pass } = scene(A, B, C);
  const begun: string[] = [];
  for (const caller of [A, A, A, A, B, B, B, B]) await semaphore.begin(caller);
  for (const [caller, number] of [
    [A, 1],
    [A, 2],
    [A, 3],
    [B, 1],
    [B, 2],
  ] as const)
    void Promise.resolve(semaphore.begin(caller)).then(() => begun.push(`${caller.name}${number}`));
  assert.deepEqual(begun, []);
  await pass(10);
  assert.deepEqual(begun, ["a1", "b1", "a2", "b2", "a3"]);
});

test("a request that takes long counts no longer, so others of its caller begin", async () => {
  const { ask, pass } = scene(A, B);
  const begun = ask(A, 12);
  await pass(9);
  assert.equal(begun.length, 6);
  await pass(1);
  assert.equal(begun.length, 12);
  for (const end of begun) end();
  await settled();
  assert.equal(ask(A, 50).length, 6, "its end frees no second place");
});

test("a tenant that has not asked for a second leaves its share to the others", async () => {
  const { ask, pass } = scene(A, B);
  await pass(999);
  const begun = ask(A, 50);
  assert.equal(begun.length, 6);
  await pass(1);
  assert.equal(begun.length, 50);
});

test("every request begins in the end, also while none ends", async () => {
  const callers = ["a", "b", "c", "d", "e", "f"].map(tenantCaller);
  const { ask, pass } = scene(...callers);
  const begun = callers.map((caller) => ask(caller, 40));
  for (let turn = 0; turn < 10; turn += 1) await pass(10);
  assert.deepEqual(
    begun.map(({ length }) => length),
    callers.map(() => 40),
  );
});
