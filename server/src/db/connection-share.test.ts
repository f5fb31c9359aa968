/**
 * How tenants share the database's connections: which statements are under way, on a clock that the test
 * moves.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { ConnectionShare } from "./connection-share.ts";
import { DatabaseUnavailable } from "./database.ts";
import { forAll, forHolder } from "./holder.ts";

const CONNECTIONS = 20;

function scene() {
  let now = 0;
  const timers = new Set<{ readonly at: number; readonly callback: () => void }>();
  const clock = {
    monotonic: () => now,
    timer: (ms: number, callback: () => void) => {
      const timer = { at: now + ms, callback };
      timers.add(timer);
      return { cancel: () => void timers.delete(timer) };
    },
  };
  const pass = (ms: number): void => {
    now += ms;
    for (const timer of timers) if (timer.at <= now && timers.delete(timer)) timer.callback();
  };
  const share = new ConnectionShare(clock, CONNECTIONS);
  /** What is under way, in the order in which it began. */
  const running: { readonly name: string; readonly end: () => void }[] = [];
  const begin = (name: string): Promise<void> =>
    share.run(async () => {
      const { promise, resolve } = Promise.withResolvers<void>();
      running.push({ name, end: resolve });
      await promise;
    });
  const asked: Promise<void>[] = [];
  const ask = (holder: string, count = 1): void => {
    for (let index = 0; index < count; index += 1) asked.push(forHolder(holder, () => begin(holder)));
  };
  const askForAll = (): Promise<void> => begin("server");
  const namesOf = (): string => running.map(({ name }) => name).join(" ");
  const end = async (count = 1): Promise<void> => {
    for (const one of running.splice(0, count)) one.end();
    await settled();
  };
  return { share, pass, ask, asked, askForAll, namesOf, end, running };
}

const settled = () => new Promise<void>((resolve) => void setImmediate(resolve));

test("a tenant that asks alone has all connections but a few, which are left for the server and for others' first statements", () => {
  const { ask, namesOf, running } = scene();
  ask("a", 30);
  assert.equal(running.length, 14);
  for (const name of ["b", "c", "d", "e", "f"]) ask(name, 2);
  assert.equal(namesOf(), `${"a ".repeat(14)}b c d e`);
});

test("while another tenant asks, a tenant with many statements has two of them under way", async () => {
  const { ask, namesOf, end } = scene();
  ask("b");
  await end();
  ask("a", 30);
  ask("b");
  assert.equal(namesOf(), "a a b");
  await end();
  assert.equal(namesOf(), "a b a");
});

test("a tenant that had all connections to itself begins no more until it has less than its share", async () => {
  const { ask, namesOf, end } = scene();
  ask("a", 30);
  ask("b");
  await end(12);
  assert.equal(namesOf(), "a a b");
  await end();
  assert.equal(namesOf(), "a b a");
});

test("a second later the tenant is alone again, and what waits begins with the next end", async () => {
  const { ask, pass, namesOf, end } = scene();
  ask("b");
  await end();
  ask("a", 10);
  assert.equal(namesOf(), "a a");
  pass(1_000);
  await end();
  assert.equal(namesOf(), "a a a a a a a a a");
});

test("the server's own work never waits, whatever tenants do", async () => {
  const { ask, askForAll, running } = scene();
  for (let tenant = 0; tenant < 30; tenant += 1) ask(`t${tenant}`, 10);
  assert.equal(running.length, 18);
  void askForAll();
  assert.equal(running.at(-1)?.name, "server");
});

test("when many tenants ask, they take turns", async () => {
  const { ask, namesOf, end } = scene();
  for (const name of ["a", "b", "c", "d", "e", "f", "g", "h"]) ask(name, 4);
  assert.equal(namesOf(), "a a a a b b c c d d e e f f g h");
  await end(5);
  assert.equal(namesOf(), "b c c d d e e f f g h g h b");
});

test("what a statement's work asks within it does not wait again: else two transactions would wait for each other", async () => {
  const { share, ask, end } = scene();
  ask("b");
  await end();
  const nested = Array.from({ length: 2 }, () => forHolder("a", () => share.run(() => share.run(async () => "done"))));
  assert.deepEqual(await Promise.all(nested), ["done", "done"]);
});

test("a wait of five seconds fails as one for a connection of the pool does", async () => {
  const { ask, asked, pass, end, running } = scene();
  ask("b");
  await end();
  ask("a", 4);
  const late = asked.slice(-2).map((one) => assert.rejects(one, DatabaseUnavailable));
  pass(5_000);
  await Promise.all(late);
  await end(2);
  assert.equal(running.length, 0);
});

test("work that several callers wait for counts for none, and neither does what is left when its caller was answered", async () => {
  const { share, ask, end, running } = scene();
  ask("b");
  await end();
  ask("a", 2);
  const { promise: later, resolve } = Promise.withResolvers<void>();
  const began: string[] = [];
  forHolder("a", () => void forAll(() => share.run(async () => void began.push("shared"))));
  forHolder("a", () => void later.then(() => share.run(async () => void began.push("left"))));
  resolve();
  await settled();
  assert.deepEqual(began, ["shared", "left"]);
  assert.equal(running.length, 2);
});
