/**
 * Jobs begin the longest first, and only as many as keep the processors busy.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Layer } from "./layers.ts";
import { jobsOf, longestFirst, nextJob } from "./schedule.ts";

const LAYER: Layer = { name: "any", holds: "files", fits: () => true, load: 0.7, fileTimeoutMs: 1000 };
const job = (name: string, load: number, ms = 1000) => ({ layer: LAYER, files: [name], ms, load });
const nameOf = (found: ReturnType<typeof nextJob>): string | undefined => found?.files[0];

test("a job that waits a lot begins beside ones that compute, before a longer one for which there is no room", () => {
  const waiting = [job("computes", 1), job("waits", 0.1)];
  assert.equal(nameOf(nextJob(waiting, [], 2)), "computes");
  assert.equal(nameOf(nextJob(waiting, [job("a", 1)], 2)), "computes");
  assert.equal(nameOf(nextJob(waiting, [job("a", 1), job("b", 1)], 2)), "waits");
  assert.equal(nextJob([job("computes", 1)], [job("a", 1), job("b", 1)], 2), undefined);
});

test("a job that keeps more processors busy than there are runs alone", () => {
  const greedy = job("greedy", Number.POSITIVE_INFINITY);
  assert.equal(nextJob([greedy], [job("a", 0)], 2), undefined);
  assert.equal(nextJob([greedy], [], 2), greedy);
  assert.equal(nextJob([job("a", 0)], [greedy], 2), undefined);
});

test("jobs that only wait are not without number", () => {
  const running = Array.from({ length: 6 }, (_, at) => job(String(at), 0));
  assert.equal(nextJob([job("a", 0)], running, 2), undefined);
});

test("the load of a file is what its last run kept busy, or that of its layer if that is more, and a file that was never recorded begins before others", () => {
  const durations = new Map([
    ["short", { ms: 1000, cpuMs: 500 }],
    ["long", { ms: 20_000, cpuMs: 30_000 }],
  ]);
  const jobs = longestFirst(jobsOf(LAYER, ["short", "long", "new"], durations));
  assert.deepEqual(
    jobs.map(({ files, load }) => [...files, load]),
    [
      ["new", 0.7],
      ["long", 1.5],
      ["short", 0.7],
    ],
  );
  const alone = jobsOf({ ...LAYER, isAlone: true }, ["short"], durations);
  assert.equal(alone[0]?.load, Number.POSITIVE_INFINITY);
});

test("files that share processes are dealt out so that the processes take the same time", () => {
  const files = ["a", "b", "c", "d"];
  const durations = new Map(files.map((file, at) => [file, { ms: [90, 10, 50, 60][at] ?? 0, cpuMs: 1 }]));
  const jobs = jobsOf({ ...LAYER, processes: 2 }, files, durations);
  assert.deepEqual(
    jobs.map((each) => [each.files, each.ms]),
    [
      [["a", "b"], 100],
      [["d", "c"], 110],
    ],
  );
  assert.equal(jobsOf({ ...LAYER, processes: 8 }, files, durations).length, 4);
});
