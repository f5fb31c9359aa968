/**
 * Machines that run on their new node before their disk is there, with the fake driver, while programs are killed: the disk is the one
 * that the machine had, one node at most runs the machine, and the former node keeps its copy until all of it has arrived.
 *
 * test/vm/following-moves.test.ts has real machines, which read what is missing.
 */
import assert from "node:assert/strict";
import { open, readFile, stat } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { sharedDatabaseUrl } from "../support/database.ts";
import { type Flotilla, runningBoots, startFlotilla } from "../support/flotilla.ts";
import { until } from "../support/until.ts";

const PATIENT = { deadlineMs: 40_000, everyMs: 20 };
const DISK_BYTES = 256 * 1024 * 1024;
const MARK_EVERY = 1024 * 1024 + 64 * 1024;

interface MovedMachine {
  readonly id: string;
  readonly from: number;
  readonly to: number;
}

const placeOf = (flotilla: Flotilla, node: number, id: string): string =>
  join(flotilla.nodeDirectory(node), "machines", id);
const isThere = (path: string): Promise<boolean> =>
  stat(path).then(
    () => true,
    () => false,
  );

/** A machine with a large sparse disk that has numbers in it. */
async function machineWithDisk(flotilla: Flotilla, isRunning: boolean): Promise<MovedMachine> {
  const { id } = await flotilla.create();
  const { nodeId } = await flotilla.start(id);
  await flotilla.stop(id);
  const from = Number((nodeId ?? "").slice("node-".length));
  await using file = await open(join(placeOf(flotilla, from, id), "disk"), "r+");
  await file.truncate(DISK_BYTES);
  for (let at = 4096; at < DISK_BYTES; at += MARK_EVERY) await file.write(mark(at), 0, 8, at);
  if (isRunning) await flotilla.start(id);
  return { id, from, to: 1 - from };
}

function mark(at: number): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(BigInt(at));
  return bytes;
}

async function assertDisk(path: string): Promise<void> {
  await using file = await open(path, "r");
  assert.equal((await file.stat()).size, DISK_BYTES);
  for (let at = 4096; at < DISK_BYTES; at += MARK_EVERY) {
    const { buffer } = await file.read(Buffer.alloc(8), 0, 8, at);
    assert.ok(buffer.equals(mark(at)), `the disk differs at ${at}`);
  }
}

async function moved(flotilla: Flotilla, { id, to }: MovedMachine) {
  const asked = await flotilla.client().post(`/v1/machines/${id}/move`, { nodeId: `node-${to}`, diskFollows: true });
  assert.equal(asked.status, 202, asked.text);
  const done = await until(
    async () => {
      const { json } = await flotilla.client().get(`/v1/operations/${asked.json.id}`);
      return json !== undefined && json.status !== "running" && json;
    },
    { ...PATIENT, what: "the move to end" },
  );
  assert.equal(done.status, "succeeded", `${done.error} ${JSON.stringify(done.steps)}`);
  assert.match(done.steps[3].message, /its disk follows from node node-\d$/);
}

/** How many parts have arrived. */
async function arrived(flotilla: Flotilla, { id, to }: MovedMachine): Promise<number> {
  const map = await readFile(join(placeOf(flotilla, to, id), "disk.far.map")).catch(() => Buffer.alloc(0));
  return map.filter((isHere) => isHere === 1).length;
}

const untilArrived = (flotilla: Flotilla, { id }: MovedMachine) =>
  until(async () => (await flotilla.events(id)).some((text) => text.startsWith("all of its disk has arrived")), {
    ...PATIENT,
    what: "the disk to arrive",
  });

async function kill(flotilla: Flotilla, victim: "server" | "source" | "target", { from, to }: MovedMachine) {
  const node = victim === "source" ? from : to;
  if (victim === "server") {
    await flotilla.servers[0]?.kill();
    return () => flotilla.startServer();
  }
  await flotilla.nodes[node]?.kill();
  return () => flotilla.startNode(node);
}

test("a disk follows its machine, while the server, its former node or its new node is killed", async (t) => {
  await using flotilla = await startFlotilla({ nodes: 2, databaseUrl: await sharedDatabaseUrl() });
  for (const victim of ["server", "source", "target"] as const)
    await t.test(`the ${victim} is killed`, async () => {
      const machine = await machineWithDisk(flotilla, true);
      const { id, from, to } = machine;
      await moved(flotilla, machine);
      await until(async () => (await arrived(flotilla, machine)) > 8, PATIENT);
      const restart = await kill(flotilla, victim, machine);
      const reached = await arrived(flotilla, machine);
      assert.ok(reached < DISK_BYTES / 2 ** 20, "it was killed too late to test anything");
      assert.ok(await isThere(join(placeOf(flotilla, from, id), "disk")), "the former node has kept the disk");
      await restart();
      await until(async () => (await arrived(flotilla, machine)) >= reached, PATIENT);
      await untilArrived(flotilla, machine);
      await flotilla.untilState(id, "started", 60_000);
      const isGone = async () => !(await isThere(placeOf(flotilla, from, id)));
      await until(isGone, { ...PATIENT, what: "the former copy to be removed" });
      assert.equal((await runningBoots(flotilla, from)).get(id) ?? 0, 0);
      assert.equal((await runningBoots(flotilla, to)).get(id), 1);
      await flotilla.stop(id);
      const isOneFile = async () => !(await isThere(join(placeOf(flotilla, to, id), "disk.far")));
      await until(isOneFile, { ...PATIENT, what: "the disk to be one file" });
      await assertDisk(join(placeOf(flotilla, to, id), "disk"));
      await flotilla.start(id);
      await flotilla.remove(id);
    });
  await t.test("it is stopped, and started again, while its disk arrives", async () => {
    const machine = await machineWithDisk(flotilla, false);
    const { id, to } = machine;
    await moved(flotilla, machine);
    await flotilla.start(id);
    await flotilla.stop(id);
    assert.equal(await isThere(join(placeOf(flotilla, to, id), "disk")), false);
    await untilArrived(flotilla, machine);
    await until(() => isThere(join(placeOf(flotilla, to, id), "disk")), PATIENT);
    await assertDisk(join(placeOf(flotilla, to, id), "disk"));
    await flotilla.remove(id);
  });
  await t.test("its former node stays away: what needs its disk is refused, and nothing of it is removed", async () => {
    const machine = await machineWithDisk(flotilla, true);
    const { id, from } = machine;
    await moved(flotilla, machine);
    const restart = await kill(flotilla, "source", machine);
    const isSaid = async () =>
      (await flotilla.events(id)).some((text) => text.startsWith(`its disk does not arrive from node node-${from}`));
    await until(isSaid, { ...PATIENT, what: "the timeline to say so" });
    const client = flotilla.client();
    const again = await client.post(`/v1/machines/${id}/move`);
    assert.equal(again.status, 409, again.text);
    assert.match(again.text, /still follows it from node/);
    const removed = await client.delete(`/v1/nodes/node-${from}`);
    assert.equal(removed.status, 409, removed.text);
    assert.match(removed.text, /still come from node/);
    const suspended = await client.post(`/v1/machines/${id}/stop?keepMemory=true`);
    assert.equal(suspended.status, 409, suspended.text);
    assert.equal((await flotilla.get(id)).state, "started");
    assert.ok(await isThere(join(placeOf(flotilla, from, id), "disk")));
    await restart();
    await untilArrived(flotilla, machine);
    assert.ok((await flotilla.events(id)).includes("its disk arrives again"));
    await flotilla.remove(id);
  });
  await t.test("it is deleted while its disk arrives", async () => {
    const machine = await machineWithDisk(flotilla, true);
    const { id, from, to } = machine;
    await moved(flotilla, machine);
    await flotilla.remove(id);
    for (const node of [from, to])
      await until(async () => !(await isThere(placeOf(flotilla, node, id))), {
        ...PATIENT,
        what: `node ${node} to have nothing of it`,
      });
  });
  await t.test("a drain of its former node waits until its disk has arrived, and says so", async () => {
    const machine = await machineWithDisk(flotilla, true);
    const { id, from, to } = machine;
    await moved(flotilla, machine);
    // A disk that comes as fast as it can is there before the drain begins.
    await kill(flotilla, "target", machine);
    const client = flotilla.client();
    const { operationId } = (await client.post(`/v1/nodes/node-${from}/drain`)).json;
    const drain = async () => (await client.get(`/v1/operations/${operationId}`)).json;
    const isSaid = async () => {
      const now = await drain();
      assert.equal(now.status, "running", JSON.stringify(now));
      return /sending the disk of 1 machine that left before/.test(now.steps[1].message);
    };
    await until(isSaid, { ...PATIENT, what: "the drain to say what it waits for" });
    await flotilla.startNode(to);
    await until(async () => (await drain()).status !== "running", { ...PATIENT, what: "the drain to end" });
    const { status, steps } = await drain();
    assert.equal(status, "succeeded");
    assert.match(steps.at(-1).message, /has no machine's disk/);
    // What a node or a loop notes is written with other notes, soon.
    const isNoted = async () =>
      (await flotilla.events(id)).some((text) => text.startsWith("all of its disk has arrived"));
    await until(isNoted, { ...PATIENT, what: "the arrival to be noted" });
    await flotilla.remove(id);
  });
});
