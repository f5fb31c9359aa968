/**
 * The node agent is killed repeatedly while machines are started and stopped, with the fake driver: many
 * kills in little time. node-qemu.test.ts does the same with real VMs.
 */
import assert from "node:assert/strict";
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import fc from "fast-check";
import { runningBoots, startFlotilla } from "../support/flotilla.ts";
import { pause, until } from "../support/until.ts";

test("an agent killed repeatedly at any moment runs nothing twice, loses nothing and leaves nothing", async () => {
  await using flotilla = await startFlotilla();
  const machines = await Promise.all(Array.from({ length: 8 }, () => flotilla.create({ env: { FAKE_BOOT_MS: "60" } })));
  const seed = fc.sample(fc.infiniteStream(fc.nat(400)), 1)[0] as Iterator<number>;
  const random = (): number => seed.next().value as number;
  const isOver = { value: false };
  const counts = { kills: 0, requests: 0, refused: 0 };
  const users = machines.map(async ({ id }) => {
    while (!isOver.value) {
      const verb = random() % 2 === 0 ? "start" : "stop";
      const answer = await flotilla.client().post(`/v1/machines/${id}/${verb}`);
      counts.requests += 1;
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
  process.stdout.write(
    `${counts.kills} kills during ${counts.requests} requests, of which ${counts.refused} were refused\n`,
  );
});
