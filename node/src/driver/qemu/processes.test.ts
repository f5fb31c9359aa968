/**
 * Looking for VMMs among the host's processes.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { type FoundVmm, processorTimeOf, VmmFinder } from "./processes.ts";

const foundAs = (bootId: string): FoundVmm => ({ bootId, pid: 1, startTime: 1, machineId: "mach-a", uid: 1 });

test("all who ask while the processes are looked at share the next look, which begins after that", async () => {
  const looks: PromiseWithResolvers<readonly FoundVmm[]>[] = [];
  const finder = new VmmFinder(() => {
    const look = Promise.withResolvers<readonly FoundVmm[]>();
    looks.push(look);
    return look.promise;
  });
  const first = finder.find();
  await Promise.resolve();
  const others = Array.from({ length: 100 }, () => finder.find());
  assert.equal(looks.length, 1);
  looks[0]?.resolve([foundAs("boot-1")]);
  assert.deepEqual(await first, [foundAs("boot-1")]);
  await Promise.resolve();
  assert.equal(looks.length, 2);
  looks[1]?.resolve([foundAs("boot-2")]);
  assert.deepEqual(new Set((await Promise.all(others)).flat()), new Set([foundAs("boot-2")]));
});

test("a look that fails is that of those who asked for it", async () => {
  let looks = 0;
  const finder = new VmmFinder(async () => {
    looks += 1;
    if (looks === 1) throw new Error("no file can be opened");
    return [];
  });
  await assert.rejects(finder.find(), /no file/);
  assert.deepEqual(await finder.find(), []);
});

test("the processor time of a process grows while it computes, and of one that has ended nothing is known", () => {
  const before = processorTimeOf(process.pid);
  const until = performance.now() + 30;
  while (performance.now() < until);
  const after = processorTimeOf(process.pid);
  assert.ok(before.ranMs > 0 && after.ranMs > before.ranMs, JSON.stringify({ before, after }));
  assert.ok(after.waitedMs >= before.waitedMs);
  // No process has this number.
  assert.deepEqual(processorTimeOf(2 ** 30), { ranMs: 0, waitedMs: 0 });
});
