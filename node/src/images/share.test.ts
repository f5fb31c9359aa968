/**
 * Shared work: start, cancellation and progress.
 */
import assert from "node:assert/strict";
import { it } from "node:test";
import { SharedWork } from "./share.ts";

/** Work that ends when the test releases it; counts its starts. */
function scripted() {
  const runs: { signal: AbortSignal; report: (text: string) => void; ended: PromiseWithResolvers<string> }[] = [];
  const start = (signal: AbortSignal, report: (text: string) => void): Promise<string> => {
    const ended = Promise.withResolvers<string>();
    runs.push({ signal, report, ended });
    return ended.promise;
  };
  return { runs, start };
}

it("concurrent callers start the work once and get the same result", async () => {
  const { runs, start } = scripted();
  const work = new SharedWork<string, string>();
  const answers = Promise.all(Array.from({ length: 50 }, () => work.run("a", {}, start)));
  runs[0]?.ended.resolve("done");
  assert.deepEqual([...new Set(await answers)], ["done"]);
  assert.equal(runs.length, 1);
});

it("a caller that cancels leaves alone, and the last one to leave cancels the work", async () => {
  const { runs, start } = scripted();
  const work = new SharedWork<string, string>();
  const [first, second] = [new AbortController(), new AbortController()];
  const one = work.run("a", { signal: first.signal }, start);
  const two = work.run("a", { signal: second.signal }, start);
  first.abort(new Error("first left"));
  await assert.rejects(one, /first left/);
  assert.equal(runs[0]?.signal.aborted, false);
  second.abort(new Error("second left"));
  await assert.rejects(two, /second left/);
  assert.equal(runs[0]?.signal.aborted, true);
});

it("cancelled work ends before the same work starts again", async () => {
  const { runs, start } = scripted();
  const work = new SharedWork<string, string>();
  const leaving = new AbortController();
  const one = work.run("a", { signal: leaving.signal }, start);
  leaving.abort(new Error("left"));
  await assert.rejects(one, /left/);
  const two = work.run("a", {}, start);
  assert.equal(runs.length, 1);
  runs[0]?.ended.reject(new Error("cleaned up"));
  await new Promise(setImmediate);
  assert.equal(runs.length, 2);
  runs[1]?.ended.resolve("again");
  assert.equal(await two, "again");
});

it("a failure reaches all callers, and the next call starts again", async () => {
  const { runs, start } = scripted();
  const work = new SharedWork<string, string>();
  const both = Promise.allSettled([work.run("a", {}, start), work.run("a", {}, start)]);
  runs[0]?.ended.reject(new Error("broken"));
  assert.deepEqual(
    (await both).map(({ status }) => status),
    ["rejected", "rejected"],
  );
  const next = work.run("a", {}, start);
  runs[1]?.ended.resolve("fine");
  assert.equal(await next, "fine");
});

it("progress reaches all callers, including one that joins late", async () => {
  const { runs, start } = scripted();
  const work = new SharedWork<string, string>();
  const received: string[] = [];
  const one = work.run("a", { onProgress: (text) => received.push(`one ${text}`) }, start);
  runs[0]?.report("1 %");
  const two = work.run("a", { onProgress: (text) => received.push(`two ${text}`) }, start);
  runs[0]?.report("2 %");
  runs[0]?.ended.resolve("done");
  await Promise.all([one, two]);
  assert.deepEqual(received, ["one 1 %", "two 1 %", "one 2 %", "two 2 %"]);
});
