/**
 * How tenants share the event loop: on a clock that the test moves, with rounds as long as the test says.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { AtWork } from "./at-work.ts";

function scene() {
  let now = 0;
  const timers: (() => void)[] = [];
  const clock = {
    monotonic: () => now,
    timer: (_ms: number, callback: () => void) => {
      timers.push(callback);
      return { cancel: () => undefined };
    },
  };
  const atWork = new AtWork(clock);
  const pass = (ms: number): void => {
    now += ms;
    for (const callback of timers.splice(0)) callback();
  };
  /** A request of each of the names, in a round of the loop that is long. */
  const busyRound = async (...names: string[]): Promise<void> => {
    const ends = await Promise.all(names.map(async (name) => await atWork.begin(name)));
    now += 5;
    await new Promise<void>((resolve) => void setImmediate(resolve));
    for (const end of ends) end();
  };
  /** The same, in which so much is used for streams of a tenant. */
  const streamRound = async (names: readonly string[], of: string, ms: number): Promise<void> => {
    const ends = await Promise.all(names.map(async (name) => await atWork.begin(name)));
    now += ms;
    atWork.used(of, ms);
    now += 0.1;
    await new Promise<void>((resolve) => void setImmediate(resolve));
    for (const end of ends) end();
  };
  return { atWork, pass, busyRound, streamRound };
}

/** Begins so many requests, and notes which ones may begin. */
function ask(atWork: AtWork, name: string, count: number) {
  const ends: (() => void)[] = [];
  for (let index = 0; index < count; index += 1) {
    const beginning = atWork.begin(name);
    if (beginning instanceof Promise) void beginning.then((end) => ends.push(end));
    else ends.push(beginning);
  }
  return ends;
}

const settled = () => new Promise<void>((resolve) => void setImmediate(resolve));

test("a tenant that asks alone never waits, however long rounds are", async () => {
  const { atWork, busyRound } = scene();
  await busyRound("a", "a");
  assert.equal(ask(atWork, "a", 100).length, 100);
});

test("while rounds are short nothing waits, however many ask", async () => {
  const { atWork } = scene();
  assert.equal(ask(atWork, "a", 50).length, 50);
  await settled();
  assert.equal(ask(atWork, "b", 50).length, 50);
  await settled();
  assert.equal(ask(atWork, "a", 50).length, 50);
});

test("when rounds are long, a tenant with many requests waits and one with few does not", async () => {
  const { atWork, busyRound } = scene();
  await busyRound("a", "a", "a", "b");
  const many = ask(atWork, "a", 20);
  assert.ok(many.length < 5);
  assert.equal(ask(atWork, "b", 10).length, 10);
});

test("a tenant does not wait because another one's streams make rounds long, and that one does", async () => {
  const { atWork, busyRound, streamRound } = scene();
  await busyRound("streams", "calls");
  for (let index = 0; index < 50; index += 1) await streamRound(["calls"], "streams", 5);
  assert.equal(ask(atWork, "calls", 30).length, 30);
  assert.ok(ask(atWork, "streams", 30).length < 5);
});

test("streams of a tenant that has not called lately count for nobody", async () => {
  const { atWork, busyRound, streamRound } = scene();
  await busyRound("a", "b");
  for (let index = 0; index < 400; index += 1) await streamRound(["a", "b", "b"], "unknown", 5);
  const [a, b] = [ask(atWork, "a", 30), ask(atWork, "b", 30)];
  assert.equal(a.length, 30);
  assert.ok(b.length < 5, "what is left of the rounds is divided as before");
});

test("every request begins in the end, and those of one tenant in their order", async () => {
  const { atWork, busyRound } = scene();
  await busyRound("a", "b", "c", "d", "e", "f");
  const begun: string[] = [];
  const all = ["a", "b", "c", "d", "e", "f"].flatMap((name) =>
    Array.from({ length: 10 }, async (_, index) => {
      const end = await atWork.begin(name);
      begun.push(`${name}${index}`);
      await settled();
      end();
    }),
  );
  await Promise.all(all);
  assert.equal(begun.length, 60);
  for (const name of ["a", "f"]) {
    const own = begun.filter((request) => request.startsWith(name));
    assert.deepEqual(
      own,
      Array.from({ length: 10 }, (_, index) => `${name}${index}`),
    );
  }
});

test("a request that takes long counts no longer, so others of its tenant begin", async () => {
  const { atWork, pass, busyRound } = scene();
  await busyRound("a", "a", "a", "b");
  const begun = ask(atWork, "a", 6);
  const first = begun.length;
  assert.ok(first < 6);
  pass(45);
  await settled();
  assert.ok(begun.length > first);
  pass(45);
  await settled();
  assert.equal(begun.length, 6);
  for (const end of begun) end();
});

test("a request counts for several rounds, however long rounds are: otherwise longer rounds would begin more", async () => {
  const { atWork, pass, busyRound } = scene();
  // Rounds of 5 ms.
  await busyRound("a", "a", "a", "b");
  const begun = ask(atWork, "a", 6);
  const first = begun.length;
  pass(20);
  await settled();
  assert.equal(begun.length, first);
  for (const end of begun) end();
});

test("a tenant's streams see the calls of others until they end or take long, and no visits", () => {
  const { atWork, pass } = scene();
  const [own] = ask(atWork, "a", 1);
  assert.equal(atWork.hasOthers("a"), false);
  assert.equal(atWork.hasOthers("b"), true);
  own?.();
  assert.equal(atWork.hasOthers("b"), false);
  void atWork.begin("address 192.0.2.1", "address");
  assert.equal(atWork.hasOthers("b"), false);
  ask(atWork, "a", 1);
  assert.equal(atWork.hasOthers("b"), true);
  pass(25);
  assert.equal(atWork.hasOthers("b"), false);
});
