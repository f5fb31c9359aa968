/**
 * Whose turn is next.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { FairTurns } from "./turns.ts";

/** Pieces of work that run until they are told to end; `started` has their names in order. */
function scripted(limits: ConstructorParameters<typeof FairTurns>[0]) {
  const turns = new FairTurns(limits);
  const started: string[] = [];
  const gates = new Map<string, PromiseWithResolvers<void>>();
  const run = (owner: string, name: string, signal = new AbortController().signal): Promise<void> => {
    const gate = Promise.withResolvers<void>();
    gates.set(name, gate);
    return turns.run(owner, signal, async () => {
      started.push(name);
      await gate.promise;
    });
  };
  const end = async (name: string): Promise<void> => {
    gates.get(name)?.resolve();
    await new Promise(setImmediate);
  };
  return { started, run, end, gates };
}

test("what one owner queues does not keep another's first piece waiting", async () => {
  const { started, run, end } = scripted({ atOnce: 2, atOncePerOwner: 1 });
  const all = ["a1", "a2", "a3", "a4"].map((name) => run("a", name));
  all.push(run("b", "b1"));
  await new Promise(setImmediate);
  assert.deepEqual(started, ["a1", "b1"]);
  all.push(run("c", "c1"), run("b", "b2"));
  for (const name of ["a1", "b1", "a2", "c1", "b2", "a3", "a4"]) await end(name);
  await Promise.all(all);
  assert.deepEqual(started, ["a1", "b1", "a2", "c1", "b2", "a3", "a4"]);
});

test("a failure gives its turn back, and who gives up leaves the queue", async () => {
  const { started, run, end, gates } = scripted({ atOnce: 1, atOncePerOwner: 1 });
  const leaving = new AbortController();
  const first = run("a", "a1");
  const gone = run("b", "b1", leaving.signal);
  const last = run("c", "c1");
  leaving.abort(new Error("changed my mind"));
  await assert.rejects(gone, /changed my mind/);
  gates.get("a1")?.reject(new Error("broken"));
  await assert.rejects(first, /broken/);
  await end("c1");
  await last;
  assert.deepEqual(started, ["a1", "c1"]);
});

test("an owner alone has no more at once than its share", async () => {
  const { started, run, end } = scripted({ atOnce: Number.POSITIVE_INFINITY, atOncePerOwner: 2 });
  const all = ["a1", "a2", "a3"].map((name) => run("a", name));
  await new Promise(setImmediate);
  assert.deepEqual(started, ["a1", "a2"]);
  for (const name of ["a1", "a2", "a3"]) await end(name);
  await Promise.all(all);
});
