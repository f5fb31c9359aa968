/**
 * The access table answers from memory, and never with what was known before a change.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Channel, Database } from "../db/database.ts";
import type { ListenCallbacks } from "../db/listener.ts";
import { AccessTable } from "./access.ts";
import type { MachineAccess } from "./access-store.ts";

const MACHINE: MachineAccess = {
  id: "mach-1",
  tenantId: "tenant-1",
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
  readonly queries: ((found: MachineAccess | undefined) => void)[] = [];
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
    return new AccessTable({ db, clock: { monotonic: () => this.now } });
  }

  notify(channel: Channel, payload: string): void {
    for (const each of this.#callbacks) if (each.channel === channel) each.callbacks.onPayload(payload);
  }

  answer(found: MachineAccess | undefined): void {
    this.queries.shift()?.(found);
  }
}

async function known(): Promise<{ script: Script; table: AccessTable }> {
  const script = new Script();
  const table = script.table();
  const finding = table.find("web");
  script.answer(MACHINE);
  assert.deepEqual(await finding, MACHINE);
  return { script, table };
}

test("what is known is asked for again for a caller whom it refuses, but not for each of many", async () => {
  const { script, table } = await known();
  const newer = { ...MACHINE, isPublic: false };
  script.now = 60;
  const [one, other] = [table.findNewer("web"), table.findNewer("web")];
  assert.equal(script.queries.length, 1);
  script.answer(newer);
  assert.deepEqual([await one, await other], [newer, newer]);
  script.now = 100;
  assert.deepEqual(table.findNewer("web"), newer);
  assert.equal(script.queries.length, 0);
});

test("a known machine is found without a query for half a second, and then asked for again", async () => {
  const { script, table } = await known();
  script.now = 500;
  assert.deepEqual(table.find("web"), MACHINE);
  script.now = 501;
  assert.ok(table.find("web") instanceof Promise);
  assert.equal(script.queries.length, 1);
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
    const finding = table.find("web");
    script.answer({ ...MACHINE, isPublic: false });
    assert.equal((await finding)?.isPublic, false);
  });
}

test("a change of another machine leaves what is known", async () => {
  const { script, table } = await known();
  script.notify("machines", "mach-2:1");
  assert.deepEqual(table.find("web"), MACHINE);
});

test("requests at the same time share one query, but not one that began before a change", async () => {
  const script = new Script();
  const table = script.table();
  const before = [table.find("web"), table.find("web")];
  assert.equal(script.queries.length, 1);
  script.notify("shares", "mach-1");
  const after = table.find("web");
  assert.equal(script.queries.length, 2);
  script.answer(MACHINE);
  for (const found of before) assert.deepEqual(await found, MACHINE);
  assert.ok(table.find("web") instanceof Promise, "what was read before the change is not kept");
  script.answer({ ...MACHINE, isPublic: false });
  assert.equal((await after)?.isPublic, false);
});

test("a query that takes longer than half a second is not shared with later requests", async () => {
  const script = new Script();
  const table = script.table();
  void table.find("web");
  script.now = 501;
  void table.find("web");
  assert.equal(script.queries.length, 2);
});

test("while no notifications arrive every request waits for a query", async () => {
  const script = new Script();
  script.isConnected = false;
  const table = script.table();
  for (let round = 0; round < 3; round += 1) {
    const finding = table.find("web");
    assert.equal(script.queries.length, 1);
    script.answer(MACHINE);
    assert.deepEqual(await finding, MACHINE);
  }
});

test("a name without a machine is not kept", async () => {
  const script = new Script();
  const table = script.table();
  const finding = table.find("nowhere");
  script.answer(undefined);
  assert.equal(await finding, undefined);
  assert.ok(table.find("nowhere") instanceof Promise);
});
