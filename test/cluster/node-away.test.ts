/**
 * Node agents and servers that die and come back, with the fake driver: machines run on, and everybody finds together
 * again.
 */
import assert from "node:assert/strict";
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import fc from "fast-check";
import { type Flotilla, Program, startFlotilla } from "../support/flotilla.ts";
import { pause, until } from "../support/until.ts";

/** Boots that the fake driver's files say are running, by machine. */
async function runningBoots(flotilla: Flotilla, node = 0): Promise<ReadonlyMap<string, number>> {
  const machines = join(flotilla.nodeDirectory(node), "machines");
  const found = new Map<string, number>();
  for (const machineId of await readdir(machines)) {
    const files = await readdir(join(machines, machineId), { recursive: true });
    found.set(machineId, files.filter((file) => file.endsWith("vm.json")).length);
  }
  return found;
}

test("machines run on while the server is away, and it finds them as they are when it is back", async () => {
  await using flotilla = await startFlotilla();
  const kept = await flotilla.create();
  const ending = await flotilla.create({ env: { FAKE_CRASH_AFTER_MS: "1500" } });
  await flotilla.start(kept.id);
  await flotilla.start(ending.id);
  await flotilla.servers[0]?.kill();
  const isGone = async (): Promise<boolean> => (await runningBoots(flotilla)).get(ending.id) === 0;
  await until(isGone, { what: "the crash, while no server listens" });
  await flotilla.startServer();
  const failed = await flotilla.untilState(ending.id, "error");
  assert.match(failed.error ?? "", /crashed/);
  assert.equal((await flotilla.get(kept.id)).state, "started");
  assert.equal(await flotilla.exec(kept.id, "echo still here"), "still here\n");
});

test("a node that is away makes its machines say so, and they are back with it", async () => {
  await using flotilla = await startFlotilla();
  const { id } = await flotilla.create();
  await flotilla.start(id);
  await flotilla.nodes[0]?.kill();
  const away = await flotilla.untilState(id, "error", 60_000);
  assert.match(away.error ?? "", /node-0/);
  await flotilla.startNode();
  await flotilla.untilState(id, "started");
  assert.equal(await flotilla.exec(id, "echo back"), "back\n");
  assert.equal((await runningBoots(flotilla)).get(id), 1);
});

test("a second agent on the same directory is refused, and the first runs on", async () => {
  await using flotilla = await startFlotilla();
  const { id } = await flotilla.create();
  await flotilla.start(id);
  const directory = flotilla.nodes[0]?.directory ?? "";
  const second = new Program("second", "node/src/main.ts", directory, {
    FLOTILLA_DATA_DIR: directory,
    FLOTILLA_DRIVER: "fake",
  });
  await second.start();
  await until(() => !second.isRunning, { what: "the second agent to give up" });
  assert.match(await second.log(), /in use by another node agent/);
  assert.equal(await flotilla.exec(id, "echo first"), "first\n");
});

test("an agent killed again and again at any moment runs nothing twice, loses nothing and leaves nothing", async () => {
  await using flotilla = await startFlotilla();
  const machines = await Promise.all(Array.from({ length: 8 }, () => flotilla.create({ env: { FAKE_BOOT_MS: "60" } })));
  const seed = fc.sample(fc.infiniteStream(fc.nat(400)), 1)[0] as Iterator<number>;
  const random = (): number => seed.next().value as number;
  const isOver = { value: false };
  const counts = { kills: 0, wishes: 0, refused: 0 };
  const users = machines.map(async ({ id }) => {
    while (!isOver.value) {
      const verb = random() % 2 === 0 ? "start" : "stop";
      const answer = await flotilla.client().post(`/v1/machines/${id}/${verb}`);
      counts.wishes += 1;
      if (answer.status !== 200) counts.refused += 1;
      await pause(random());
    }
  });
  for (; counts.kills < 8; counts.kills += 1) {
    await pause(random());
    await flotilla.nodes[0]?.kill();
    await flotilla.startNode();
  }
  isOver.value = true;
  await Promise.all(users);
  for (const { id } of machines) await flotilla.start(id);
  const boots = await runningBoots(flotilla);
  assert.deepEqual(
    [...boots.values()],
    machines.map(() => 1),
  );
  for (const { id } of machines) assert.equal(await flotilla.exec(id, "echo alive"), "alive\n");
  assert.doesNotMatch((await flotilla.nodes[0]?.log()) ?? "", /run twice/);
  await Promise.all(machines.map(({ id }) => flotilla.remove(id)));
  const directory = join(flotilla.nodeDirectory(), "machines");
  await until(async () => (await readdir(directory)).length === 0, { what: "all files to go" });
  process.stdout.write(`${counts.kills} kills among ${counts.wishes} wishes, ${counts.refused} refused meanwhile\n`);
});
