/**
 * Places that guests must not reach: which are closed, and when the host's rules are replaced.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { type Clock, systemClock } from "@flotilla/base/clock";
import type { Log } from "@flotilla/base/log";
import { blockOf } from "./addresses.ts";
import { ClosedDestinations } from "./closed.ts";

const silent = (): void => undefined;
const log: Log = { debug: silent, info: silent, warn: silent, error: silent, child: () => log };

function recorded(names: Record<string, readonly string[]> = {}) {
  const applied: string[] = [];
  let now = 0;
  const clock: Clock = { ...systemClock, monotonic: () => now };
  const state = { fails: false };
  const closed = new ClosedDestinations({
    ...{ block: blockOf(1), clock, log },
    apply: async (rules) => {
      if (state.fails) throw new Error("nft failed");
      applied.push(/elements = \{ (.*?) \}/.exec(rules)?.[1] ?? "");
    },
    resolve: async (name) => names[name] ?? Promise.reject(new Error("no such name")),
  });
  return { closed, applied, state, pass: (ms: number) => void (now += ms) };
}

test("addresses and what names mean now are closed, with their ports; IPv6 and nonsense are left out", async () => {
  const { closed, applied } = recorded({ "db.lan": ["10.0.0.5", "10.0.0.6"] });
  await closed.close([
    "10.0.0.1:8443",
    "db.lan:5432",
    "[fd00::1]:8443",
    "gone.lan:1",
    "10.0.0.2",
    "10.0.0.3:99999",
    "",
  ]);
  assert.deepEqual(applied, ["10.0.0.1 . 8443, 10.0.0.5 . 5432, 10.0.0.6 . 5432"]);
});

test("rules are replaced when places change, or what a name means, and not otherwise", async () => {
  const names: Record<string, readonly string[]> = { "db.lan": ["10.0.0.5"] };
  const { closed, applied, pass } = recorded(names);
  for (let count = 0; count < 3; count += 1) await closed.close(["db.lan:5432"]);
  assert.equal(applied.length, 1);
  names["db.lan"] = ["10.0.0.6"];
  await closed.close(["db.lan:5432"]);
  assert.equal(applied.length, 1, "it was resolved a moment ago");
  pass(60_000);
  await closed.close(["db.lan:5432"]);
  assert.deepEqual(applied, ["10.0.0.5 . 5432", "10.0.0.6 . 5432"]);
  await closed.close([]);
  assert.equal(applied.at(-1), "");
});

test("a name that cannot be resolved keeps its addresses as long as it is named", async () => {
  const names: Record<string, readonly string[]> = { "db.lan": ["10.0.0.5"] };
  const { closed, applied, pass } = recorded(names);
  await closed.close(["db.lan:5432"]);
  delete names["db.lan"];
  for (let count = 0; count < 3; count += 1) {
    pass(60_000);
    await closed.close(["db.lan:5432", `10.0.0.${count}:1`]);
  }
  assert.equal(applied.at(-1), "10.0.0.2 . 1, 10.0.0.5 . 5432");
  await closed.close([]);
  await closed.close(["db.lan:5432"]);
  assert.equal(applied.at(-1), "");
});

test("what fails is tried again with the next heartbeat", async () => {
  const { closed, applied, state } = recorded();
  state.fails = true;
  await closed.close(["10.0.0.1:8443"]);
  state.fails = false;
  await closed.close(["10.0.0.1:8443"]);
  assert.deepEqual(applied, ["10.0.0.1 . 8443"]);
});
