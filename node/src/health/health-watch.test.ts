/**
 * When checks are made, and what is reported of their results: by a clock that the test advances.
 */
import assert from "node:assert/strict";
import { type Duplex, duplexPair } from "node:stream";
import { test } from "node:test";
import { type Clock, endOfTurn } from "@flotilla/base/clock";
import type { MachineHealth, MachineHealthCheck } from "@flotilla/contract/link/link";
import type { GuestExec } from "../guest/guest.ts";
import { HealthWatch, type WatchedBoot } from "./health-watch.ts";

const CHECK: MachineHealthCheck = {
  ...{ type: "tcp", path: null, port: 80, command: null, host: null },
  ...{ intervalMs: 10_000, timeoutMs: 5_000, retries: 3 },
};

/** A clock that moves only when it is advanced, from one sleeper to the next. Timers do not fire. */
class SteppedClock implements Clock {
  #now = 1_000_000;
  readonly #sleeping: { readonly at: number; readonly wake: () => void }[] = [];
  readonly pauses: number[] = [];
  readonly boottime = (): number => this.#now;
  readonly now = (): number => this.#now;
  readonly monotonic = (): number => this.#now;
  readonly timer: Clock["timer"] = () => ({ cancel: () => undefined });

  sleep(ms: number, signal?: AbortSignal): Promise<void> {
    this.pauses.push(ms);
    return new Promise((resolve) => {
      this.#sleeping.push({ at: this.#now + ms, wake: resolve });
      signal?.addEventListener("abort", () => resolve(), { once: true });
    });
  }

  /** Wakes the sleepers one after the other, for so long. */
  async advance(ms: number): Promise<void> {
    const until = this.#now + ms;
    await endOfTurn();
    for (let next = this.#next(until); next !== undefined; next = this.#next(until)) {
      this.#now = next.at;
      next.wake();
      await endOfTurn();
    }
    this.#now = until;
  }

  #next(until: number) {
    const first = this.#sleeping.toSorted((a, b) => a.at - b.at).at(0);
    if (first === undefined || first.at > until) return undefined;
    return this.#sleeping.splice(this.#sleeping.indexOf(first), 1).at(0);
  }
}

interface World {
  readonly clock: SteppedClock;
  readonly watch: HealthWatch;
  /** How often its port was dialled, and each health that was reported. */
  dials: number;
  readonly reported: MachineHealth["status"][];
  isListening: boolean;
  boot(more?: Partial<WatchedBoot>): WatchedBoot;
  health(): MachineHealth;
}

function world(random = 0.5): World {
  const clock = new SteppedClock();
  const exec = (): GuestExec => assert.fail("no command");
  const dial = (): Promise<Duplex> => {
    own.dials += 1;
    if (own.isListening) return Promise.resolve(duplexPair()[0]);
    return Promise.reject(Object.assign(new Error(), { code: "ECONNREFUSED" }));
  };
  const watch = new HealthWatch({
    clock,
    random: () => random,
    onChange: () => void own.reported.push(own.health().status),
  });
  const guest = { exec };
  const own: World = {
    ...{ clock, watch, dials: 0, reported: [], isListening: false },
    boot: (more = {}) => ({ bootId: "boot-1", check: CHECK, guest, network: { dial }, ...more }),
    health: () => watch.healthOf("boot-1"),
  };
  return own;
}

test("the first check is made at once, and one success makes a machine healthy", async () => {
  const own = world();
  own.isListening = true;
  assert.deepEqual(own.health(), { status: "unknown", since: null, reason: null });
  own.watch.watch(own.boot());
  await own.clock.advance(0);
  assert.deepEqual([own.dials, own.reported], [1, ["healthy"]]);
  assert.deepEqual(own.health(), { status: "healthy", since: own.clock.now(), reason: null });
});

test("a machine is healthy soon after its port takes connections, and nothing is reported before", async () => {
  for (const startsAfterMs of [50, 400, 2_000, 6_000]) {
    const own = world();
    own.watch.watch(own.boot());
    await own.clock.advance(startsAfterMs);
    assert.deepEqual([own.reported, own.health().status], [[], "unknown"]);
    own.isListening = true;
    await own.clock.advance(Math.max(20, startsAfterMs * 0.06));
    assert.equal(own.health().status, "healthy", `${startsAfterMs} ms`);
    assert.ok(own.dials < 120, `${own.dials} checks in ${startsAfterMs} ms`);
  }
});

test("a machine that never answers says why after an interval, and is unhealthy after as many as any other", async () => {
  const own = world();
  own.watch.watch(own.boot());
  await own.clock.advance(12_000);
  assert.deepEqual(own.health(), { status: "unknown", since: null, reason: "nothing listens on port 80" });
  assert.deepEqual(own.reported, ["unknown"]);
  await own.clock.advance(25_000);
  assert.equal(own.health().status, "unhealthy");
  assert.deepEqual(own.reported, ["unknown", "unhealthy"]);
});

test("after a success a machine is checked once in an interval, a flap is not reported, and three failures are", async () => {
  const own = world();
  own.isListening = true;
  own.watch.watch(own.boot());
  await own.clock.advance(30_000);
  assert.equal(own.dials, 4, "at 0, 10, 20 and 30 s");
  own.isListening = false;
  await own.clock.advance(20_000);
  own.isListening = true;
  await own.clock.advance(10_000);
  assert.deepEqual([own.reported, own.dials], [["healthy"], 7]);
  own.isListening = false;
  await own.clock.advance(30_000);
  assert.equal(own.health().status, "unhealthy");
  own.isListening = true;
  await own.clock.advance(10_000);
  assert.deepEqual(own.reported, ["healthy", "unhealthy", "healthy"]);
});

test("intervals are a tenth shorter or longer at most, as chance says", async () => {
  const pauses = await Promise.all(
    [0, 0.5, 1].map(async (random) => {
      const own = world(random);
      own.isListening = true;
      own.watch.watch(own.boot());
      await own.clock.advance(0);
      return Math.round(own.clock.pauses.at(-1) ?? 0);
    }),
  );
  assert.deepEqual(pauses, [9_000, 10_000, 11_000]);
});

test("nothing is checked without a target, the result of a check under way is dropped, and what is known stays", async () => {
  const own = world();
  own.isListening = true;
  own.watch.watch(own.boot());
  await own.clock.advance(0);
  const dialled = Promise.withResolvers<Duplex>();
  let dials = 0;
  const network = {
    dial: () => {
      dials += 1;
      return dialled.promise;
    },
  };
  own.watch.watch(null);
  await own.clock.advance(60_000);
  assert.deepEqual([own.dials, own.health().status], [1, "healthy"]);
  own.watch.watch(own.boot({ network }));
  own.watch.watch(own.boot({ network }));
  await own.clock.advance(0);
  assert.equal(dials, 1, "it is the same target: there is one check at a time");
  own.watch.watch(null);
  dialled.reject(new Error("late"));
  await own.clock.advance(60_000);
  assert.deepEqual([own.health().status, own.reported], ["healthy", ["healthy"]]);
});

test("another boot begins with nothing, and the same boot in another VMM does not", async () => {
  const own = world();
  own.isListening = true;
  own.watch.watch(own.boot());
  await own.clock.advance(0);
  const next = { exec: (): GuestExec => assert.fail("no command") };
  own.watch.watch(own.boot({ guest: next }));
  assert.equal(own.health().status, "healthy");
  own.isListening = false;
  own.watch.watch(own.boot({ bootId: "boot-2" }));
  await own.clock.advance(0);
  assert.deepEqual([own.watch.healthOf("boot-2").status, own.health().status], ["unknown", "unknown"]);
});
