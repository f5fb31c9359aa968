/**
 * Which of several hosts is the primary.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { hostsOf } from "./hosts.ts";
import { choosePrimary, type HostState } from "./primary.ts";

const [first, second] = hostsOf({ connectionString: "postgres://u@a,b/flotilla" });
const STANDBY = { standby: true, timeline: 0 };
const SILENT = { reason: "no answer" };
const primary = (timeline: number): HostState => ({ standby: false, timeline });

function choose(seen: readonly [HostState, HostState], timeline: number, current: "a" | "b" | null): string | null {
  if (second === undefined) throw new Error("there are two hosts");
  const hosts = new Map([
    [first, seen[0]],
    [second, seen[1]],
  ]);
  const chosen = choosePrimary(hosts, { timeline, current: current === "b" ? second : current === "a" ? first : null });
  return chosen?.name ?? null;
}

test("the host that is not a standby is the primary, and without one there is none", () => {
  assert.equal(choose([primary(1), STANDBY], 1, null), "a");
  assert.equal(choose([STANDBY, primary(1)], 1, "a"), "b");
  assert.equal(choose([STANDBY, STANDBY], 1, "a"), null);
  assert.equal(choose([SILENT, STANDBY], 1, "a"), null);
});

test("of two primaries the one with the newer timeline is used, and the other not even alone", () => {
  assert.equal(choose([primary(1), primary(2)], 2, "a"), "b");
  assert.equal(choose([primary(1), SILENT], 2, "b"), null);
  assert.equal(choose([primary(1), STANDBY], 2, "b"), null);
  assert.equal(choose([primary(3), STANDBY], 3, null), "a", "it was promoted again");
});

test("of two primaries with one timeline the current one stays", () => {
  assert.equal(choose([primary(1), primary(1)], 1, "b"), "b");
  assert.equal(choose([primary(1), primary(1)], 1, null), "a");
});
