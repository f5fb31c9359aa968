/**
 * The bugs that the simulated cluster must find can be planted: the source that each replaces is there, once.
 */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { BUGS } from "../simulation/planted.ts";

const ROOT = new URL("../../", import.meta.url);

test("the seeds that found planted bugs are those of the bugs that there are", () => {
  const seeds = JSON.parse(readFileSync(new URL("test/simulation/planted-seeds.json", ROOT), "utf8")) as object;
  assert.deepEqual(Object.keys(seeds).toSorted(), Object.keys(BUGS).toSorted());
});

for (const [bug, { changes }] of Object.entries(BUGS))
  test(`it can be planted: ${bug}`, () => {
    for (const { file, from } of changes) {
      const count = readFileSync(new URL(file, ROOT), "utf8").split(from).length - 1;
      assert.equal(count, 1, `${file} has ${count} times: ${from}; change test/simulation/planted.ts with it`);
    }
  });
