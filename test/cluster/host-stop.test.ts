/**
 * An operator suspends the machines of a host before it goes down, with the command line: what the server
 * shows meanwhile, and that they run again with the next agent.
 */
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { runCli } from "../../cli/test/run-cli.ts";
import { sharedDatabaseUrl } from "../support/database.ts";
import { runningBoots, startFlotilla } from "../support/flotilla.ts";
import { until } from "../support/until.ts";

test("machines of a host that goes down are suspended as their owners say, stay as they are for them, and run again", async (t) => {
  await using flotilla = await startFlotilla({ databaseUrl: await sharedDatabaseUrl() });
  const client = flotilla.client();
  const [kept, cold] = [await flotilla.create(), await flotilla.create()];
  for (const { id } of [kept, cold]) await flotilla.start(id);
  // The owner changes it while the machine runs; the server sends it to the node.
  assert.equal((await client.patch(`/v1/machines/${cold.id}`, { disruption: "restart" })).status, 200);
  await flotilla.exec(kept.id, "echo kept >/tmp/file");
  const directory = flotilla.nodes[0]?.directory ?? "";
  const cli = (...argv: readonly string[]) => runCli(t, ["node", ...argv, "--data-dir", directory]);

  const journal = join(flotilla.nodeDirectory(), "machines", cold.id, "journal.json");
  const isKnown = async () => (await readFile(journal, "utf8")).includes('"disruption":"restart"');
  await until(isKnown, { what: "the node to know the owner's choice" });
  const ran = await cli("suspend", "--json", "--deadline", "60s");
  assert.equal(ran.code, 0, ran.errors);
  assert.deepEqual(JSON.parse(ran.output.toString()), { suspended: [kept.id], stopped: [cold.id], running: [] });
  assert.deepEqual([...(await runningBoots(flotilla)).values()], [0, 0]);
  const isReported = async () =>
    (await flotilla.events(kept.id)).some((message) => message.startsWith("suspended, because"));
  await until(isReported, { what: "the event" });
  for (const { id } of [kept, cold]) assert.equal((await flotilla.get(id)).state, "started");

  await flotilla.nodes[0]?.stop();
  const away = await cli("suspend");
  assert.deepEqual([away.code, /no node agent answers at .*: start it/.test(away.errors)], [1, true], away.errors);
  await flotilla.startNode();
  const isBack = async (id: string) => (await runningBoots(flotilla)).get(id) === 1;
  for (const { id } of [kept, cold]) await until(() => isBack(id), { what: `machine ${id} to run again` });
  assert.equal(await flotilla.exec(kept.id, "cat /tmp/file"), "kept\n");
  assert.equal((await flotilla.untilState(cold.id, "started")).error, null);
  const events = await flotilla.events(cold.id);
  assert.ok(
    events.some((message) => message.startsWith("its host was about to go down")),
    events.join("\n"),
  );
});
