/**
 * Two servers on one PostgreSQL, two nodes: each server sees what the other did, and continues what it left.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { sharedDatabaseUrl } from "../support/database.ts";
import { type Flotilla, startFlotilla } from "../support/flotilla.ts";
import { onThisHost, until } from "../support/until.ts";

async function startTwo(): Promise<Flotilla> {
  return await startFlotilla({ servers: 2, nodes: 2, databaseUrl: await sharedDatabaseUrl() });
}

test("a machine may be created, started, used, stopped and deleted through any server", async () => {
  await using flotilla = await startTwo();
  const { id } = await flotilla.create();
  const shows = (server: number, state: string) =>
    until(async () => (await flotilla.get(id, server)).state === state, { what: `${state} at server ${server}` });
  for (let round = 0; round < 3; round += 1) {
    assert.equal((await flotilla.start(id, 1)).state, "started");
    await shows(0, "started");
    assert.equal(await flotilla.exec(id, `echo ${round}`, round % 2), `${round}\n`);
    assert.equal((await flotilla.stop(id, 0)).state, "stopped");
    await shows(1, "stopped");
  }
  await flotilla.remove(id, 1);
  const isGone = async () => (await flotilla.client(0).get(`/v1/machines/${id}`)).status === 404;
  await until(isGone, { what: "the deletion, at the other server" });
});

test("concurrent starts and stops of one machine through both servers end in one of the two, running at most once", async () => {
  await using flotilla = await startTwo();
  const { id } = await flotilla.create({ env: { FAKE_BOOT_MS: "40" } });
  for (let round = 0; round < 5; round += 1) {
    const verbs = ["start", "stop", "start", "start"] as const;
    const answers = await Promise.all(
      verbs.map((verb, index) => flotilla.client(index % 2).post(`/v1/machines/${id}/${verb}`)),
    );
    for (const { status, text } of answers) assert.ok(status < 500 || status === 503, `${status}: ${text}`);
  }
  assert.equal((await flotilla.start(id)).state, "started");
  assert.equal(await flotilla.exec(id, "echo once", 1), "once\n");
  for (const node of flotilla.nodes) assert.doesNotMatch(await node.log(), /run twice/);
});

test("a fetch whose server dies during it is finished by the other", async () => {
  await using flotilla = await startTwo();
  const deadlineMs = 60_000;
  // Server 1 works on it then.
  await flotilla.servers[0]?.kill();
  const asked = await flotilla.client(1).post("/v1/images/pull", { reference: `team/slow-${onThisHost(2_000)}` });
  const read = async (server: number) => (await flotilla.client(server).get(`/v1/operations/${asked.json.id}`)).json;
  const isPulling = async () => (await read(1)).steps[0].message?.startsWith("pulling layer");
  await until(isPulling, { what: "the fetch", deadlineMs });
  await flotilla.servers[1]?.kill();
  await flotilla.startServer(0);
  assert.equal((await read(0)).status, "running");
  const isOver = async () => (await read(0)).status !== "running";
  await until(isOver, { what: "its end", deadlineMs });
  const { status, error, steps } = await read(0);
  assert.equal(status, "succeeded", error);
  assert.deepEqual(
    steps.map((step: { status: string }) => step.status),
    ["succeeded", "succeeded"],
  );
  assert.match((await flotilla.servers[0]?.log()) ?? "", /a loop repaired something/);
});

test("a start whose server dies during it is finished by the other", async () => {
  await using flotilla = await startTwo();
  const { id } = await flotilla.create({ env: { FAKE_BOOT_MS: String(onThisHost(1_000)) } });
  const cut = flotilla.start(id, 1).then(
    () => "answered",
    () => "cut",
  );
  await until(async () => (await flotilla.get(id)).state === "creating", { what: "the start to begin" });
  await flotilla.servers[1]?.kill();
  assert.equal(await cut, "cut");
  assert.notEqual((await flotilla.get(id)).state, "stopped");
  await flotilla.untilState(id, "started");
  assert.equal(await flotilla.exec(id, "echo finished"), "finished\n");
});
