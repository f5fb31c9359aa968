/**
 * The access table answers from memory, and never with what was known before a change.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { endOfTurn } from "@flotilla/base/clock";
import type { Channel, Database } from "../db/database.ts";
import type { ListenCallbacks } from "../db/listener.ts";
import { AccessTable } from "./access.ts";
import type { Access } from "./access-store.ts";

const WEB = { kind: "machine", id: "mach-1" } as const;

const MACHINE: Access = {
  ...WEB,
  tenantId: "tenant-1",
  hostName: "web",
  isPublic: true,
  isSuspended: false,
  shareHash: null,
  requestsPerSecond: 1,
  burst: 1,
};

/** A database whose answers and notifications the test sends, and a clock that it sets. */
class Script {
  isConnected = true;
  now = 0;
  readonly queries: ((found: Access | undefined) => void)[] = [];
  readonly #sleepers: { readonly until: number; readonly wake: () => void }[] = [];
  readonly #callbacks: { readonly channel: Channel; readonly callbacks: ListenCallbacks }[] = [];

  table(): AccessTable {
    const db = {
      queryOne: () => new Promise((resolve) => this.queries.push(resolve)),
      listen: (channel: Channel, callbacks: ListenCallbacks) => {
        this.#callbacks.push({ channel, callbacks });
        return () => undefined;
      },
      isListening: () => this.isConnected,
    } as unknown as Database;
    return new AccessTable({ db, clock: { monotonic: () => this.now, sleep: (ms) => this.#sleep(ms) } });
  }

  /** Ends the sleeps that are due at this time. */
  async setTime(now: number): Promise<void> {
    this.now = now;
    for (const sleeper of this.#sleepers.filter(({ until }) => until <= now)) sleeper.wake();
    await endOfTurn();
  }

  #sleep(ms: number): Promise<void> {
    return new Promise((wake) => this.#sleepers.push({ until: this.now + ms, wake }));
  }

  notify(channel: Channel, payload: string): void {
    for (const each of this.#callbacks) if (each.channel === channel) each.callbacks.onPayload(payload);
  }

  answer(found: Access | undefined): void {
    this.queries.shift()?.(found);
  }
}

async function known(): Promise<{ script: Script; table: AccessTable }> {
  const script = new Script();
  const table = script.table();
  const finding = table.find(WEB);
  script.answer(MACHINE);
  assert.deepEqual(await finding, MACHINE);
  return { script, table };
}

test("a caller whom it refuses is judged by a query that began after the call, many of them by the same", async () => {
  const { script, table } = await known();
  const newer = { ...MACHINE, isPublic: false };
  const [one, other] = [table.findNewer(WEB), table.findNewer(WEB)];
  await script.setTime(49);
  assert.equal(script.queries.length, 0, "it was asked for less than 50 ms ago");
  await script.setTime(50);
  assert.equal(script.queries.length, 1);
  script.answer(newer);
  assert.deepEqual([await one, await other], [newer, newer]);
  await script.setTime(99);
  const later = table.findNewer(WEB);
  assert.equal(script.queries.length, 0);
  await script.setTime(100);
  script.answer(MACHINE);
  assert.deepEqual(await later, MACHINE);
});

test("a query that began before the call does not judge a caller whom it refuses", async () => {
  const script = new Script();
  const table = script.table();
  const before = table.find(WEB);
  const newer = table.findNewer(WEB);
  script.answer(MACHINE);
  assert.deepEqual(await before, MACHINE);
  await script.setTime(50);
  script.answer({ ...MACHINE, isPublic: false });
  assert.equal((await newer)?.isPublic, false);
});

test("a known machine is found without waiting for half a second, and then asked for again", async () => {
  const { script, table } = await known();
  script.now = 500;
  assert.deepEqual(table.find(WEB), MACHINE);
  script.now = 501;
  assert.ok(table.find(WEB) instanceof Promise);
  assert.equal(script.queries.length, 1);
});

test("a machine that is asked for all the time is asked of the database once before its entry is too old", async () => {
  const { script, table } = await known();
  script.now = 349;
  table.known(WEB);
  assert.equal(script.queries.length, 0);
  script.now = 350;
  for (let request = 0; request < 3; request += 1) assert.deepEqual(table.known(WEB), MACHINE);
  assert.equal(script.queries.length, 1);
  script.answer({ ...MACHINE, isPublic: false });
  await endOfTurn();
  script.now = 850;
  assert.equal(table.known(WEB)?.isPublic, false);
  assert.equal(script.queries.length, 1, "the next one");
});

for (const [channel, payload] of [
  ["machines", "mach-1:7"],
  ["shares", "mach-1"],
  ["tenants", "tenant-1"],
  ["tenants", "plan-1"],
] as const) {
  test(`a change of ${payload} notified on ${channel} takes effect on the next request`, async () => {
    const { script, table } = await known();
    script.notify(channel, payload);
    const finding = table.find(WEB);
    script.answer({ ...MACHINE, isPublic: false });
    assert.equal((await finding)?.isPublic, false);
  });
}

test("a change of another machine leaves what is known", async () => {
  const { script, table } = await known();
  script.notify("machines", "mach-2:1");
  assert.deepEqual(table.find(WEB), MACHINE);
});

test("requests at the same time share one query, but not one that began before a change", async () => {
  const script = new Script();
  const table = script.table();
  const before = [table.find(WEB), table.find(WEB)];
  assert.equal(script.queries.length, 1);
  script.notify("shares", "mach-1");
  const after = table.find(WEB);
  assert.equal(script.queries.length, 2);
  script.answer(MACHINE);
  for (const found of before) assert.deepEqual(await found, MACHINE);
  assert.ok(table.find(WEB) instanceof Promise, "what was read before the change is not kept");
  script.answer({ ...MACHINE, isPublic: false });
  assert.equal((await after)?.isPublic, false);
});

test("a query that takes longer than half a second is not shared with later requests", async () => {
  const script = new Script();
  const table = script.table();
  void table.find(WEB);
  script.now = 501;
  void table.find(WEB);
  assert.equal(script.queries.length, 2);
});

test("while no notifications arrive every request waits for a query", async () => {
  const script = new Script();
  script.isConnected = false;
  const table = script.table();
  for (let round = 0; round < 3; round += 1) {
    const finding = table.find(WEB);
    assert.equal(script.queries.length, 1);
    script.answer(MACHINE);
    assert.deepEqual(await finding, MACHINE);
  }
});

test("the id of nothing is not kept", async () => {
  const script = new Script();
  const table = script.table();
  const finding = table.find(WEB);
  script.answer(undefined);
  assert.equal(await finding, undefined);
  assert.ok(table.find(WEB) instanceof Promise);
});
