/**
 * How tenants share the event loop: on a clock that the test moves, with rounds as long and a thread as busy as the test says.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { AtWork, addressCaller, type Caller, tenantCaller, visitorsOf } from "./at-work.ts";

function scene({ use = 1 } = {}) {
  let now = 0;
  let threadUse = use;
  const timers: (() => void)[] = [];
  const clock = {
    monotonic: () => now,
    timer: (_ms: number, callback: () => void) => {
      timers.push(callback);
      return { cancel: () => undefined };
    },
  };
  const atWork = new AtWork(clock, () => threadUse);
  const pass = (ms: number): void => {
    now += ms;
    for (const callback of timers.splice(0)) callback();
  };
  /** A request of each of them, in a round of the loop that is long. */
  const busyRound = async (...callers: Caller[]): Promise<void> => {
    const ends = await Promise.all(callers.map(async (caller) => await atWork.begin(caller)));
    now += 5;
    await settled();
    for (const end of ends) end();
  };
  const useThread = (part: number): void => void (threadUse = part);
  return { atWork, pass, busyRound, useThread };
}

const [A, B, C] = [tenantCaller("a"), tenantCaller("b"), tenantCaller("c")];

/** Begins so many requests, and notes which ones may begin. */
function ask(atWork: AtWork, caller: Caller, count: number) {
  const ends: (() => void)[] = [];
  for (let index = 0; index < count; index += 1) {
    const beginning = atWork.begin(caller);
    if (beginning instanceof Promise) void beginning.then((end) => ends.push(end));
    else ends.push(beginning);
  }
  return ends;
}

const isPaced = (atWork: AtWork, tenantId: string): boolean => atWork.paceOf(tenantId) > 0;

const settled = () => new Promise<void>((resolve) => void setImmediate(resolve));

test("a tenant that asks alone never waits, nor do its visitors, however busy the thread is", async () => {
  const { atWork, busyRound } = scene();
  await busyRound(A, A, visitorsOf("a"), addressCaller("192.0.2.1"));
  assert.equal(ask(atWork, A, 100).length, 100);
  assert.equal(ask(atWork, visitorsOf("a"), 100).length, 100);
});

test("while the thread is busy for less than 35 % of the time nothing waits, however many ask", async () => {
  const { atWork, busyRound } = scene({ use: 0.34 });
  await busyRound(A, B);
  assert.equal(ask(atWork, A, 50).length, 50);
  await settled();
  assert.equal(ask(atWork, B, 50).length, 50);
  await settled();
  assert.equal(ask(atWork, A, 50).length, 50);
  const busy = scene({ use: 0.36 });
  // Each measurement counts as much as all before it.
  for (let count = 0; count < 8; count += 1) {
    busy.pass(20);
    await busy.busyRound(A, B);
  }
  assert.equal(ask(busy.atWork, A, 50).length, 6);
});

test("when the thread is busy, tenants have equal shares, and no less than four requests at work", async () => {
  const two = scene();
  await two.busyRound(A, B);
  assert.equal(ask(two.atWork, A, 50).length, 6);
  assert.equal(ask(two.atWork, B, 50).length, 6);
  const five = scene();
  await five.busyRound(A, B, C, tenantCaller("d"), tenantCaller("e"));
  assert.equal(ask(five.atWork, A, 50).length, 4);
  assert.equal(ask(five.atWork, B, 3).length, 3);
});

test("a tenant's visitors have half as much as a tenant, and an address with unknown callers has two requests", async () => {
  const { atWork, busyRound } = scene();
  const visitors = visitorsOf("a");
  const stranger = addressCaller("192.0.2.1");
  await busyRound(A, B, visitors, stranger);
  assert.equal(ask(atWork, visitors, 50).length, 3);
  assert.equal(ask(atWork, stranger, 50).length, 2);
  assert.equal(ask(atWork, A, 50).length, 6, "its visitors do not make its own requests wait");
  assert.equal(ask(atWork, B, 50).length, 6);
});

test("the caller whose requests have waited the longest gives way while others ask; another's queue is served as its requests end", async () => {
  const { atWork, pass, busyRound } = scene();
  await busyRound(A, B);
  const a = ask(atWork, A, 30);
  const b = ask(atWork, B, 100);
  for (let turn = 0; turn < 4; turn += 1) {
    for (const end of [...a.slice(-6), ...b.slice(-6)]) end();
    await settled();
  }
  assert.deepEqual([a.length, b.length], [30, 6]);
  pass(9);
  await settled();
  assert.equal(b.length, 7);
});

test("a tenant of which many calls wait after a stall gives way to no flood of few for long, whichever came first", async () => {
  for (const isFloodFirst of [true, false]) {
    const { atWork, pass, busyRound } = scene();
    await busyRound(A, B);
    let isOver = false;
    const ended = { a: 0, b: 0 };
    const call = async (caller: Caller, name: "a" | "b"): Promise<void> => {
      const end = await atWork.begin(caller);
      await settled();
      end();
      ended[name] += 1;
    };
    const flood = async (): Promise<void> => {
      while (!isOver) await call(B, "b");
    };
    const beginFlood = (): void => Array.from({ length: 20 }, flood).forEach((flooding) => void flooding);
    if (isFloodFirst) beginFlood();
    let calls = 100;
    for (let count = 0; count < calls; count += 1) void call(A, "a");
    if (!isFloodFirst) beginFlood();
    let endedOfFlood = 0;
    for (let ms = 0; ms < 1_000; ms += 1) {
      if (ms === 500) endedOfFlood = ended.b;
      if (ms % 4 === 0) {
        void call(A, "a");
        calls += 1;
      }
      pass(1);
      await settled();
    }
    isOver = true;
    assert.ok(calls - ended.a < 10, `${calls - ended.a} calls wait a second later`);
    assert.ok(ended.b - endedOfFlood < 50, `${ended.b - endedOfFlood} of the flood ended in half a second`);
  }
});

test("an address whose callers are not known gives way while a tenant's requests wait, however long those have waited", async () => {
  const { atWork, pass, busyRound } = scene();
  const stranger = addressCaller("192.0.2.1");
  await busyRound(A, B, stranger);
  const [a, unknown] = [ask(atWork, A, 1_000), ask(atWork, stranger, 1_000)];
  for (let ms = 0; ms < 500; ms += 1) {
    for (const end of [...ask(atWork, B, 1), ...a, ...unknown]) end();
    pass(1);
    await settled();
  }
  assert.equal(a.length, 1_000);
  assert.ok(unknown.length < 100, `${unknown.length} of the address have begun`);
});

test("a request gives way for a second at most, however many come", async () => {
  const { atWork, pass, busyRound } = scene();
  await busyRound(A, B);
  let [now, longestMs, ended] = [0, 0, 0];
  const call = async (): Promise<void> => {
    const since = now;
    const end = await atWork.begin(A);
    longestMs = Math.max(longestMs, now - since);
    await settled();
    end();
    ended += 1;
  };
  for (let count = 0; count < 100; count += 1) void call();
  for (; now < 4_000; now += 1) {
    // The other tenant's calls never wait.
    for (const end of ask(atWork, B, 1)) end();
    if (now % 4 === 0) void call();
    pass(1);
    await settled();
  }
  assert.ok(longestMs > 900 && longestMs < 1_100, `${longestMs} ms`);
  assert.ok(ended > 800, `${ended} of 1,100 have ended`);
});

test("who gives way begins 50 requests a second while the thread stays busy, and 1,000 when it was idle for a while", async () => {
  const { atWork, pass, busyRound, useThread } = scene();
  await busyRound(A, B);
  const b = ask(atWork, B, 1000);
  /** Ends each request at once, and counts those that begin. */
  const begunIn = async (ms: number): Promise<number> => {
    const before = b.length;
    for (let passed = 0; passed < ms; passed += 1) {
      for (const end of b) end();
      // Another tenant calls all the time.
      for (const end of ask(atWork, A, 1)) end();
      pass(1);
      await settled();
    }
    return b.length - before;
  };
  await begunIn(300);
  assert.equal(await begunIn(200), 10);
  useThread(0);
  await begunIn(300);
  assert.equal(await begunIn(50), 50);
});

test("who has the most waiting requests no longer gives way when no other tenant asks", async () => {
  const { atWork, pass, busyRound } = scene();
  await busyRound(A, B);
  const b = ask(atWork, B, 100);
  assert.equal(b.length, 6);
  pass(10);
  for (const end of b.slice()) end();
  await settled();
  assert.equal(b.length, 12);
});

test("every request begins in the end, and those of one tenant in their order", async () => {
  const { atWork, pass, busyRound } = scene();
  await busyRound(...["a", "b", "c", "d", "e", "f"].map(tenantCaller));
  const begun: string[] = [];
  const all = ["a", "b", "c", "d", "e", "f"].flatMap((name) =>
    Array.from({ length: 10 }, async (_, index) => {
      const end = await atWork.begin(tenantCaller(name));
      begun.push(`${name}${index}`);
      await settled();
      end();
    }),
  );
  for (let turn = 0; turn < 100 && begun.length < 60; turn += 1) {
    pass(10);
    await settled();
  }
  assert.equal(begun.length, 60);
  await Promise.all(all);
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
  await busyRound(A, B);
  const begun = ask(atWork, A, 12);
  assert.equal(begun.length, 6);
  pass(45);
  await settled();
  assert.equal(begun.length, 12);
  for (const end of begun) end();
});

test("a request counts for several rounds, however long rounds are: otherwise longer rounds would begin more", async () => {
  const { atWork, pass, busyRound } = scene();
  // Rounds of 5 ms.
  await busyRound(A, B);
  const begun = ask(atWork, A, 12);
  const first = begun.length;
  pass(20);
  await settled();
  assert.equal(begun.length, first);
  for (const end of begun) end();
});

test("a tenant's streams see the calls of others, and visits of their machines, until a moment after they end or take long", () => {
  const { atWork, pass } = scene();
  const [own] = ask(atWork, A, 1);
  assert.equal(atWork.paceOf("a"), 0);
  assert.equal(isPaced(atWork, "b"), true);
  pass(5);
  own?.();
  assert.equal(isPaced(atWork, "b"), true, "its next call comes soon");
  pass(10);
  assert.equal(isPaced(atWork, "b"), false);
  ask(atWork, addressCaller("192.0.2.1"), 1);
  assert.equal(isPaced(atWork, "b"), false, "whom an address visits is not known yet");
  ask(atWork, visitorsOf("a"), 1);
  assert.equal(isPaced(atWork, "a"), false);
  assert.equal(isPaced(atWork, "b"), true);
  pass(25);
  assert.equal(isPaced(atWork, "b"), false);
});

test("of two tenants that call in turns each has others, and a third one has them as well", () => {
  const { atWork } = scene();
  for (const end of [...ask(atWork, A, 1), ...ask(atWork, A, 1)]) end();
  assert.equal(isPaced(atWork, "a"), false, "its own calls are not another tenant's");
  for (const caller of [A, B, A, A]) for (const end of ask(atWork, caller, 1)) end();
  for (const tenantId of ["a", "b", "c"]) assert.equal(isPaced(atWork, tenantId), true);
});

test("the busier the thread, the slower are streams beside calls: up to 20 ms between two pieces", () => {
  const { atWork, pass, useThread } = scene();
  const paceAfter = (ms: number): number => {
    for (let passed = 0; passed < ms; passed += 5) {
      pass(5);
      for (const end of ask(atWork, A, 1)) end();
    }
    return atWork.paceOf("b");
  };
  assert.equal(paceAfter(500), 20);
  useThread(0);
  assert.equal(paceAfter(500), 1);
});
