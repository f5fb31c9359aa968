/**
 * Nodes are upgraded together with the VMMs of their machines, as the owners permit it: server and nodes with
 * the fake driver.
 */
import assert from "node:assert/strict";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { sharedDatabaseUrl } from "../support/database.ts";
import { type Flotilla, startFlotilla } from "../support/flotilla.ts";
import { until } from "../support/until.ts";

const PATIENT = { deadlineMs: 120_000, everyMs: 50 };

interface Upgrade {
  readonly id: string;
  readonly status: string;
  readonly error: string | null;
  readonly steps: readonly { readonly name: string; readonly status: string; readonly message: string | null }[];
}

const install = (flotilla: Flotilla, program: string): void =>
  writeFileSync(join(flotilla.nodeDirectory(), "fake-program"), program);

/** The programs of a machine's VMs, by what is on the disk. */
function programsOf(flotilla: Flotilla, id: string): readonly string[] {
  const boots = join(flotilla.nodeDirectory(), "machines", id, "boots");
  return readdirSync(boots).map((name) => {
    const { program } = JSON.parse(readFileSync(join(boots, name, "vm.json"), "utf8")) as { readonly program: string };
    return program;
  });
}

async function outdated(flotilla: Flotilla): Promise<readonly string[]> {
  const [node] = (await flotilla.client().get("/v1/nodes")).json as { outdatedVmms: readonly string[] | null }[];
  return (node?.outdatedVmms ?? []).toSorted();
}

async function upgrade(flotilla: Flotilla): Promise<string> {
  const answer = await flotilla.client().post("/v1/nodes/upgrade", { vmms: true });
  assert.equal(answer.status, 202, answer.text);
  return answer.json.id;
}

const ended = (flotilla: Flotilla, id: string): Promise<Upgrade> =>
  until(
    async () => {
      const operation: Upgrade = (await flotilla.client().get(`/v1/operations/${id}`)).json;
      if (operation.status === "running") throw new Error(JSON.stringify(operation.steps));
      return operation;
    },
    { ...PATIENT, what: "the end of the upgrade" },
  );

async function machine(flotilla: Flotilla, body: object = {}): Promise<{ readonly id: string; readonly boot: string }> {
  const { id } = await flotilla.create(body);
  await flotilla.start(id);
  return { id, boot: await bootOf(flotilla, id) };
}

const bootOf = async (flotilla: Flotilla, id: string): Promise<string> => {
  const boots = (await flotilla.client().get(`/v1/machines/${id}`)).json;
  return boots.startedAt ?? boots.readyAt;
};

test("machines get new VMMs as their owners permit it, and those that were left are named with the reason", async () => {
  await using flotilla = await startFlotilla({ nodes: 1, databaseUrl: await sharedDatabaseUrl() });
  const live = await machine(flotilla);
  const restarted = await machine(flotilla, { disruption: "restart" });
  const kept = await machine(flotilla, { disruption: "stop" });
  const failing = await machine(flotilla, { env: { FAKE_REPLACE_FAIL: "take" } });
  const all = [live, restarted, kept, failing].map(({ id }) => id).toSorted();
  assert.deepEqual(await outdated(flotilla), []);
  install(flotilla, "another");
  await until(async () => (await outdated(flotilla)).length === 4, { ...PATIENT, what: "outdated VMMs" });
  assert.deepEqual(await outdated(flotilla), all);
  const done = await ended(flotilla, await upgrade(flotilla));
  assert.deepEqual([done.status, done.error], ["succeeded", null]);
  assert.deepEqual(
    done.steps.map(({ name }) => name),
    ["upgrade node-0", "replace VMMs of node-0"],
  );
  const text = done.steps[1]?.message ?? "";
  assert.match(
    text,
    /^1 machine got a new VMM while running, paused for \d+ ms in the middle and \d+ ms at most; 1 machine restarted; 2 /,
  );
  assert.ok(text.includes(`${kept.id} (its owner permits no restart`), text);
  assert.ok(text.includes(`${failing.id} (FAKE_REPLACE_FAIL is set)`), text);
  assert.deepEqual(
    [live, restarted, kept, failing].map(({ id }) => programsOf(flotilla, id)),
    [["another"], ["another"], ["fake"], ["fake"]],
  );
  for (const { id } of [live, restarted, kept, failing]) assert.equal(await flotilla.exec(id, "echo on"), "on\n");
  assert.equal(await bootOf(flotilla, live.id), live.boot);
  await until(async () => (await bootOf(flotilla, restarted.id)) !== restarted.boot, {
    ...PATIENT,
    what: "the node's report of the restart",
  });
  const left = [kept.id, failing.id].toSorted();
  await until(async () => (await outdated(flotilla)).join() === left.join(), { ...PATIENT, what: "two outdated VMMs" });
});

test("a server that dies while VMMs are replaced continues when it is back, and replaces the rest", async () => {
  await using flotilla = await startFlotilla({ nodes: 1, databaseUrl: await sharedDatabaseUrl() });
  // Each waits for the one before: two are replaced at the same time.
  const slow = { env: { FAKE_SUSPEND_MS: "3000" } };
  const machines: { readonly id: string; readonly boot: string }[] = [];
  for (let count = 0; count < 4; count += 1) machines.push(await machine(flotilla, slow));
  install(flotilla, "another");
  const id = await upgrade(flotilla);
  const boots = (each: string): number => readdirSync(join(flotilla.nodeDirectory(), "machines", each, "boots")).length;
  await until(() => machines.some(({ id: each }) => boots(each) === 2), {
    ...PATIENT,
    what: "a replacement",
    everyMs: 5,
  });
  await flotilla.servers[0]?.kill();
  await flotilla.startServer();
  const done = await ended(flotilla, id);
  assert.deepEqual([done.status, done.error], ["succeeded", null]);
  assert.deepEqual(
    machines.map(({ id: each }) => programsOf(flotilla, each)),
    machines.map(() => ["another"]),
  );
  for (const { id: each, boot } of machines) {
    assert.equal(await bootOf(flotilla, each), boot, "the same run");
  }
});

test("a canceled upgrade ends, and machines that were not replaced run on", async () => {
  await using flotilla = await startFlotilla({ nodes: 1, databaseUrl: await sharedDatabaseUrl() });
  const machines: { readonly id: string; readonly boot: string }[] = [];
  for (let count = 0; count < 4; count += 1)
    machines.push(await machine(flotilla, { env: { FAKE_SUSPEND_MS: "2000" } }));
  install(flotilla, "another");
  const id = await upgrade(flotilla);
  const stepOf = async (): Promise<string> =>
    ((await flotilla.client().get(`/v1/operations/${id}`)).json as Upgrade).steps[1]?.status ?? "";
  await until(async () => (await stepOf()) === "running", { ...PATIENT, what: "the second step" });
  await flotilla.client().post(`/v1/operations/${id}/cancel`);
  const done = await ended(flotilla, id);
  assert.equal(done.status, "canceled");
  for (const { id: each } of machines) assert.equal(await flotilla.exec(each, "echo on"), "on\n");
  assert.ok(machines.some(({ id: each }) => programsOf(flotilla, each).includes("fake")));
});
