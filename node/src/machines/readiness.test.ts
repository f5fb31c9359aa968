/**
 * When a machine counts as ready: the first port that takes a connection, and how often that is looked at.
 */
import assert from "node:assert/strict";
import { type Duplex, duplexPair } from "node:stream";
import { test } from "node:test";
import { endOfTurn, systemClock } from "@flotilla/base/clock";
import fc from "fast-check";
import type { VmNetwork } from "../network/vm-network.ts";
import { pauseAfter, Readiness } from "./readiness.ts";

const hurried = {
  ...systemClock,
  sleep: (ms: number, signal?: AbortSignal) => systemClock.sleep(ms / 100, signal),
};

function networkOf(dial: (port: number, signal?: AbortSignal) => Promise<Duplex>): VmNetwork {
  const countOn = () => ({ bytes: () => 0, close: () => undefined });
  return { address: null, nameservers: [], hostPorts: [], sentBytes: () => 0, countOn, dial };
}

test("one port of several is enough, and its connection is closed", async () => {
  const opened: Duplex[] = [];
  const network = networkOf(async (port) => {
    if (port !== 2) throw new Error("ECONNREFUSED");
    const [connection] = duplexPair();
    opened.push(connection);
    return connection;
  });
  await new Promise<void>((resolve) => new Readiness(hurried).begin(network, [1, 2], resolve));
  assert.deepEqual(
    opened.map(({ destroyed }) => destroyed),
    [true],
  );
});

test("it is looked again and again until something listens", async () => {
  let looks = 0;
  const network = networkOf(async () => {
    looks += 1;
    if (looks < 5) throw new Error("ECONNREFUSED");
    return duplexPair()[0];
  });
  await new Promise<void>((resolve) => new Readiness(hurried).begin(network, [80], resolve));
  assert.equal(looks, 5);
});

test("after the end nothing is probed and there is no callback", async () => {
  const readiness = new Readiness(systemClock);
  let looks = 0;
  const asked = Promise.withResolvers<AbortSignal | undefined>();
  const network = networkOf((_port, signal) => {
    looks += 1;
    asked.resolve(signal);
    return new Promise((resolve) => signal?.addEventListener("abort", () => resolve(duplexPair()[0])));
  });
  readiness.begin(network, [80], () => assert.fail("it called back"));
  const signal = await asked.promise;
  readiness.end();
  assert.equal(signal?.aborted, true);
  await endOfTurn();
  assert.equal(looks, 1);
});

test("the pause is a tenth of the time that has passed, within bounds", () => {
  fc.assert(
    fc.property(fc.integer({ min: 0, max: 10_000_000 }), (waitedMs) => {
      const pauseMs = pauseAfter(waitedMs);
      return pauseMs >= 100 && pauseMs <= 5_000 && (pauseMs <= waitedMs / 10 || pauseMs === 100);
    }),
  );
});
