/**
 * How many connections a pool opens, and when: its clients open when the test says so, on a clock that it
 * moves.
 */
import assert from "node:assert/strict";
import { EventEmitter } from "node:events";
import { test } from "node:test";
import { endOfTurn } from "@flotilla/base/clock";
import pg from "pg";
import { Connections } from "./connections.ts";

function scene() {
  const opening: ((error?: Error) => void)[] = [];
  /** What a pool needs of a client. */
  class Client extends EventEmitter {
    readonly _queryable = true;
    connect(done: (error?: Error) => void): void {
      opening.push(done);
    }
    end(done?: () => void): void {
      done?.();
    }
  }
  const timers = new Set<() => void>();
  const clock = {
    timer: (_ms: number, callback: () => void) => {
      timers.add(callback);
      return { cancel: () => void timers.delete(callback) };
    },
  };
  const pool = new pg.Pool({ Client: Client as unknown as new () => pg.ClientBase, max: 4, idleTimeoutMillis: 0 });
  const connections = new Connections(pool, 4, clock);
  const taken: { readonly name: string; readonly client: pg.PoolClient }[] = [];
  const failed: string[] = [];
  const take = (...names: readonly string[]): void => {
    for (const name of names)
      connections.take().then(
        (client) => taken.push({ name, client }),
        () => failed.push(name),
      );
  };
  const open = async (error?: Error): Promise<void> => {
    opening.shift()?.(error);
    await endOfTurn();
  };
  const end = async (): Promise<void> => {
    const one = taken.shift();
    if (one !== undefined) connections.giveBack(one.client);
    await endOfTurn();
  };
  const pass = (): void => {
    for (const callback of [...timers]) if (timers.delete(callback)) callback();
  };
  return {
    opening,
    open,
    end,
    pass,
    take,
    failed,
    total: () => pool.totalCount,
    names: () => taken.map(({ name }) => name),
  };
}

test("those that begin together wait for one that is being opened, and take the one that is free sooner", async () => {
  const { take, open, opening, end, names, total } = scene();
  take("a", "b", "c", "d");
  assert.equal(opening.length, 1);
  await open();
  assert.deepEqual([names(), opening.length], [["a"], 1], "one more is opened for the next");
  await end();
  assert.deepEqual(names(), ["c"]);
  await end();
  assert.deepEqual([names(), opening.length, total()], [["d"], 1, 2]);
  await open();
  assert.deepEqual([names(), opening.length], [["d", "b"], 0]);
});

test("while all that are open are in use, more are opened one after the other, and then those that end are waited for", async () => {
  const { take, open, opening, end, names, total } = scene();
  take("a", "b", "c", "d", "e");
  for (let count = 0; count < 4; count += 1) await open();
  assert.deepEqual([names(), opening.length, total()], [["a", "b", "c", "d"], 0, 4]);
  await end();
  assert.deepEqual(names(), ["b", "c", "d", "e"]);
});

test("one that takes long to open, or cannot be opened, keeps no others waiting", async () => {
  const { take, open, opening, pass, names, failed } = scene();
  take("a", "b", "c");
  pass();
  assert.equal(opening.length, 2);
  await open(new Error("refused"));
  assert.deepEqual([failed, opening.length], [["a"], 1]);
  await open();
  assert.deepEqual([names(), opening.length], [["b"], 1]);
  await open();
  assert.deepEqual(names(), ["b", "c"]);
});
