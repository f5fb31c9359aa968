/**
 * The order in which queued work runs.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { FairQueue } from "./fair-queue.ts";

/** Pieces of work that run until released; `started` lists their names in order. */
function scripted(limits: ConstructorParameters<typeof FairQueue>[0]) {
  const turns = new FairQueue(limits);
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

test("one owner's long queue does not delay another owner's first piece", async () => {
  const { started, run, end } = scripted({ concurrencyMax: 2, concurrencyPerOwnerMax: 1 });
  const all = ["a1", "a2", "a3", "a4"].map((name) => run("a", name));
  all.push(run("b", "b1"));
  await new Promise(setImmediate);
  assert.deepEqual(started, ["a1", "b1"]);
  all.push(run("c", "c1"), run("b", "b2"));
  for (const name of ["a1", "b1", "a2", "c1", "b2", "a3", "a4"]) await end(name);
  await Promise.all(all);
  assert.deepEqual(started, ["a1", "b1", "a2", "c1", "b2", "a3", "a4"]);
});

test("a failed piece frees its slot, and a cancelled one leaves the queue", async () => {
  const { started, run, end, gates } = scripted({ concurrencyMax: 1, concurrencyPerOwnerMax: 1 });
  const leaving = new AbortController();
  const first = run("a", "a1");
  const gone = run("b", "b1", leaving.signal);
  const last = run("c", "c1");
  leaving.abort(new Error("cancelled"));
  await assert.rejects(gone, /cancelled/);
  gates.get("a1")?.reject(new Error("broken"));
  await assert.rejects(first, /broken/);
  await end("c1");
  await last;
  assert.deepEqual(started, ["a1", "c1"]);
});

test("a single owner runs no more at once than its limit", async () => {
  const { started, run, end } = scripted({ concurrencyMax: Number.POSITIVE_INFINITY, concurrencyPerOwnerMax: 2 });
  const all = ["a1", "a2", "a3"].map((name) => run("a", name));
  await new Promise(setImmediate);
  assert.deepEqual(started, ["a1", "a2"]);
  for (const name of ["a1", "a2", "a3"]) await end(name);
  await Promise.all(all);
});
