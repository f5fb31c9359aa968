/**
 * Moves of machines between nodes with the fake driver, while programs are killed: what was on the disk is on
 * the new node, the machine's processes continue there, and one node at most runs the machine.
 */
import assert from "node:assert/strict";
import { open, readdir, readFile, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { sharedDatabaseUrl } from "../support/database.ts";
import { drawn } from "../support/drawn.ts";
import { type Flotilla, runningBoots, startFlotilla } from "../support/flotilla.ts";
import { until } from "../support/until.ts";

const PATIENT = { deadlineMs: 60_000 };
const DISK_BYTES = 48 * 1024 * 1024;

interface MovedMachine {
  readonly id: string;
  readonly from: number;
  readonly to: number;
  readonly content: Buffer;
}

const diskOf = (flotilla: Flotilla, node: number, id: string): string =>
  join(flotilla.nodeDirectory(node), "machines", id, "disk");

/** A machine with a disk of some size, on one of two nodes. */
async function machineWithDisk(flotilla: Flotilla, isRunning: boolean): Promise<MovedMachine> {
  const { id } = await flotilla.create({ env: { FAKE_SUSPEND_MS: "500" } });
  const { nodeId } = await flotilla.start(id);
  await flotilla.stop(id);
  const from = Number((nodeId ?? "").slice("node-".length));
  const path = diskOf(flotilla, from, id);
  const content = Buffer.concat([await readFile(path), Buffer.alloc(DISK_BYTES)]);
  for (let at = 4096; at < content.byteLength; at += 64 * 1024) content.writeUInt32LE(at, at);
  await writeFile(path, content);
  if (isRunning) await flotilla.start(id);
  return { id, from, to: 1 - from, content };
}

const move = async (flotilla: Flotilla, { id, to }: MovedMachine): Promise<string> => {
  const answer = await flotilla.client().post(`/v1/machines/${id}/move`, { nodeId: `node-${to}` });
  assert.equal(answer.status, 202, answer.text);
  return answer.json.id;
};

async function ended(flotilla: Flotilla, id: string) {
  return await until(
    async () => {
      const { json } = await flotilla.client().get(`/v1/operations/${id}`);
      return json !== undefined && json.status !== "running" && json;
    },
    { ...PATIENT, deadlineMs: 120_000 },
  );
}

async function untilStep(flotilla: Flotilla, id: string, index: number): Promise<void> {
  await until(
    async () => (await flotilla.client().get(`/v1/operations/${id}`)).json.steps[index].status !== "pending",
    { ...PATIENT, everyMs: 20 },
  );
}

/** Where the machine is: its files on one node only, unchanged, and one boot at most. */
async function assertOnlyOn(flotilla: Flotilla, { id, content }: MovedMachine, node: number): Promise<void> {
  assert.equal((await flotilla.get(id)).nodeId, `node-${node}`);
  assert.ok((await readFile(diskOf(flotilla, node, id))).equals(content), "the disk has another content");
  const other = join(flotilla.nodeDirectory(1 - node), "machines", id);
  const isGone = async (): Promise<boolean> =>
    stat(other).then(
      () => false,
      () => true,
    );
  await until(isGone, { ...PATIENT, what: "the other node's copy to be gone" });
  const incoming = async () => (await readdir(join(flotilla.nodeDirectory(1 - node), "incoming"))).length === 0;
  await until(incoming, { ...PATIENT, what: "the parts of the copy to be gone" });
  const boots = async (on: number): Promise<number> => (await runningBoots(flotilla, on)).get(id) ?? 0;
  assert.ok((await boots(0)) + (await boots(1)) <= 1);
}

const KILLS = [
  { step: 0, victim: "server", what: "while its files are sent and it runs" },
  { step: 0, victim: "source", what: "while its files are sent and it runs" },
  { step: 0, victim: "target", what: "while its files are sent and it runs" },
  { step: 1, victim: "server", what: "while its memory is saved" },
  { step: 1, victim: "source", what: "while its memory is saved" },
  { step: 2, victim: "server", what: "while its disk is copied" },
  { step: 2, victim: "source", what: "while its disk is copied" },
  { step: 2, victim: "target", what: "while its disk is copied" },
  { step: 3, victim: "target", what: "while it is handed over" },
  { step: 4, victim: "target", what: "while it resumes" },
] as const;
const KILLS_PER_RUN = 3;

test("a machine moves with its disk and its memory, while the server, its node or the target is killed", async (t) => {
  await using flotilla = await startFlotilla({ nodes: 2, databaseUrl: await sharedDatabaseUrl() });
  for (const { step, victim, what } of drawn(KILLS, KILLS_PER_RUN)) {
    await t.test(`the ${victim} is killed ${what}`, async () => {
      const machine = await machineWithDisk(flotilla, true);
      const operation = await move(flotilla, machine);
      await untilStep(flotilla, operation, step);
      const node = victim === "source" ? machine.from : machine.to;
      if (victim === "server") {
        await flotilla.servers[0]?.kill();
        await flotilla.startServer();
      } else {
        await flotilla.nodes[node]?.kill();
        await flotilla.startNode(node);
      }
      const done = await ended(flotilla, operation);
      assert.equal(done.status, "succeeded", `${done.error} ${JSON.stringify(done.steps)}`);
      assert.match(done.steps[1].message, /^it was paused, |; it was not handed over while it ran: ./);
      assert.match(done.steps[4].message, /its processes continued after a pause of \d+ ms$/);
      await flotilla.untilState(machine.id, "started", 60_000);
      await assertOnlyOn(flotilla, machine, machine.to);
      await flotilla.remove(machine.id);
    });
  }
  await t.test(
    "what a machine writes while its disk is sent arrives, and not all of it is left for the pause",
    async () => {
      const machine = await machineWithDisk(flotilla, true);
      const { id, from, content } = machine;
      const path = diskOf(flotilla, from, id);
      const operation = await move(flotilla, machine);
      await using file = await open(path, "r+");
      let written = 0;
      const isRunning = async () => (await flotilla.client().get(`/v1/operations/${operation}`)).json.steps[1].status;
      // The fake driver takes FAKE_SUSPEND_MS until it looks at the disk for the last time. Meanwhile a
      // quarter can be written.
      for (let at = 8; (await isRunning()) === "pending"; at = (at + 5 * 64 * 1024) % (DISK_BYTES / 4)) {
        content.writeUInt32LE((written += 1), at);
        await file.write(content, at, 4, at);
      }
      assert.ok(written > 3, `${written}`);
      const done = await ended(flotilla, operation);
      assert.equal(done.status, "succeeded", `${done.error} ${JSON.stringify(done.steps)}`);
      const [, late, early] =
        /^([\d.]+) MB were copied, after ([\d.]+) MB while it ran$/.exec(done.steps[2].message) ?? [];
      assert.ok(Number(early) > 0 && Number(late) < DISK_BYTES / 2 / 1e6, done.steps[2].message);
      await assertOnlyOn(flotilla, machine, machine.to);
      await flotilla.remove(id);
    },
  );
});

test("a drain moves all machines of its node, stopped and running, while the server is killed", async () => {
  await using flotilla = await startFlotilla({ nodes: 2, databaseUrl: await sharedDatabaseUrl() });
  const client = flotilla.client();
  await client.post("/v1/nodes/node-1/cordon");
  const machines = [
    await machineWithDisk(flotilla, true),
    await machineWithDisk(flotilla, false),
    await machineWithDisk(flotilla, true),
  ];
  await client.post("/v1/nodes/node-1/uncordon");
  const { operationId } = (await client.post("/v1/nodes/node-0/drain")).json;
  const moves = async () =>
    ((await client.get("/v1/operations")).json as { kind: string; steps: { status: string }[] }[]).filter(
      ({ kind }) => kind === "machine move",
    );
  const copies = async () => (await moves()).some(({ steps }) => (steps[2]?.status ?? "pending") !== "pending");
  await until(copies, { ...PATIENT, everyMs: 20 });
  await flotilla.servers[0]?.kill();
  await flotilla.startServer();
  const done = await ended(flotilla, operationId);
  assert.equal(done.status, "succeeded", `${done.error} ${JSON.stringify(done.steps)}`);
  assert.equal(done.steps[1].message, "3 of 3 machines moved; none runs there");
  assert.equal((await moves()).length, 3, "each is moved once");
  for (const machine of machines) await assertOnlyOn(flotilla, machine, 1);
  await flotilla.untilState(machines[0]?.id ?? "", "started", 60_000);
  assert.equal((await flotilla.get(machines[1]?.id ?? "")).state, "stopped");
  assert.equal((await client.delete("/v1/nodes/node-0")).status, 204, "nothing keeps it in the fleet");
});

test("memory that moved is loaded only with the disk that moved with it", async () => {
  await using flotilla = await startFlotilla({ nodes: 2, databaseUrl: await sharedDatabaseUrl() });
  const machine = await machineWithDisk(flotilla, true);
  const { id } = machine;
  assert.equal((await flotilla.client().post(`/v1/machines/${id}/stop?keepMemory=true`)).status, 200);
  const done = await ended(flotilla, await move(flotilla, machine));
  assert.equal(done.status, "succeeded", done.error);
  await until(async () => (await flotilla.client().get(`/v1/machines/${id}`)).json.suspendedAt !== null, PATIENT);
  await writeFile(diskOf(flotilla, machine.to, id), machine.content);
  await flotilla.start(id);
  const isSaid = async () =>
    (await flotilla.events(id)).some((message) => message.endsWith("and it boots: the machine's disk has changed"));
  await until(isSaid, PATIENT);
});
