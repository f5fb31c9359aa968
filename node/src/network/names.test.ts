/**
 * How many names of a machine are tracked, and how often each is resolved, on a clock that the test moves.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { systemClock } from "@flotilla/base/clock";
import { makeLog } from "../log.ts";
import { NAME_PERIODS, TrackedNames } from "./names.ts";

const NAMES = 512;
const MINUTE_MS = 60_000;
const nameOf = (index: number): string => `n${index}.example.com`;

function scene(hosts: readonly string[], ttlSeconds = 300) {
  const time = { now: 0 };
  const resolved: string[] = [];
  const held: number[] = [];
  const names = new TrackedNames({
    hosts,
    upstream: {
      resolve: async (name) => {
        resolved.push(name);
        return { addresses: ["192.0.2.1"], ttlSeconds };
      },
    },
    allow: async (_, holdMs) => void held.push(holdMs),
    clock: { ...systemClock, monotonic: () => time.now },
    log: makeLog({ level: "silent", clock: systemClock }),
    periods: NAME_PERIODS,
  });
  return { time, resolved, held, names };
}

test("a name below a wildcard takes the place of one that was not queried for minutes, and of no listed one", async () => {
  const { time, names } = scene(["example.com", "*.example.com"]);
  for (let index = 1; index < NAMES; index += 1) assert.deepEqual(await names.lookup(nameOf(index)), ["192.0.2.1"]);
  time.now = 4 * MINUTE_MS;
  assert.equal(await names.lookup("new.example.com"), null, "all were queried a short time ago");
  for (let index = 3; index < NAMES; index += 1) await names.lookup(nameOf(index));
  time.now = 6 * MINUTE_MS;
  for (const name of ["new.example.com", "another.example.com"])
    assert.deepEqual(await names.lookup(name), ["192.0.2.1"], name);
  assert.equal(await names.lookup(nameOf(1)), null, "its place was taken");
  for (const name of ["example.com", nameOf(3), "new.example.com"])
    assert.deepEqual(await names.lookup(name), ["192.0.2.1"], name);
});

test("a machine that queries one name after another has no more of them resolved than are tracked", async () => {
  const { time, resolved, names } = scene(["*.example.com"]);
  for (let index = 0; index < 3 * NAMES; index += 1) {
    time.now += 10;
    await names.lookup(nameOf(index));
  }
  assert.equal(resolved.length, NAMES);
});

for (const [ttlSeconds, seconds] of [
  [0, 15],
  [60, 60],
  [86_400, 300],
] as const)
  test(`a name whose answer may be kept for ${ttlSeconds} s is resolved each ${seconds} s, and its addresses are allowed a minute longer`, async () => {
    const { time, resolved, held, names } = scene(["example.com"], ttlSeconds);
    await names.lookup("example.com");
    assert.equal(names.ttlSeconds("example.com"), seconds);
    time.now = seconds * 1000 - 1;
    await names.lookup("example.com");
    assert.equal(names.ttlSeconds("example.com"), 1);
    assert.equal(resolved.length, 1);
    time.now += 1;
    await names.lookup("example.com");
    assert.equal(resolved.length, 2);
    assert.deepEqual(held, [seconds * 1000 + MINUTE_MS, seconds * 1000 + MINUTE_MS]);
  });
