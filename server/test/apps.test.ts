/**
 * Apps over HTTP, through a real node agent with the fake driver: releases, rollouts and what ends them,
 * scaling, refusals with their numbers, and that nothing is left.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { AppInfo, DeployPlan, ReleaseInfo } from "@flotilla/contract/apps";
import { until } from "../../test/support/until.ts";
import { sql } from "../src/db/database.ts";
import type { Answer, Client } from "./support/client.ts";
import { httpGuest } from "./support/guest.ts";
import { startMachineServer } from "./support/machine-server.ts";
import { startTestNode } from "./support/node.ts";
import { startTestServer } from "./support/server.ts";

const { client, server, context, node } = await startMachineServer({ publicUrl: "http://fleet.example.net:8080" });
const other = await startTestNode(server, "node-b");
// Two servers step the same apps.
const unnamed = await startTestServer({ databaseUrl: server.databaseUrl, dataDirectory: server.dataDirectory });
const guest = await httpGuest((request, response) => {
  if (request.url !== "/never") response.end("ok");
});
const IMAGE = "local/busybox";
/** A port on which nothing listens: the guest never accepts. */
const CLOSED = 1;

const env = (more: Readonly<Record<string, string>> = {}, port = guest.port) =>
  Object.entries({ FAKE_PORTS: `8080=${port}`, ...more }).map(([key, value]) => ({ key, value }));

interface Deploying {
  readonly by?: Client;
  readonly headers?: Readonly<Record<string, string>>;
}

const deploy = (name: string, fields: object = {}, { by = client, headers = {} }: Deploying = {}): Promise<Answer> =>
  by.post("/v1/apps", { name, image: IMAGE, env: env(), ...fields }, { headers });

async function deployed(name: string, fields: object = {}, by: Client = client): Promise<AppInfo> {
  const answer = await deploy(name, fields, { by });
  assert.equal(answer.status, 200, answer.text);
  return answer.json;
}

async function read(name: string, by: Client = client): Promise<AppInfo> {
  const answer = await by.get(`/v1/apps/${name}`);
  assert.equal(answer.status, 200, answer.text);
  return answer.json;
}

const untilApp = (
  name: string,
  holds: (app: AppInfo) => boolean,
  what: string,
  by: Client = client,
): Promise<AppInfo> =>
  until(
    async () => {
      const app = await read(name, by);
      if (holds(app)) return app;
      const explained = (await by.get(`/v1/apps/${name}/explain`)).text;
      throw new Error(`${JSON.stringify(app)} ${explained}`);
    },
    { what: `${name} to be ${what}` },
  );

/** It runs, with as many serving instances as are asked, all of one release, and nothing else. */
const settled = (name: string, by: Client = client): Promise<AppInfo> =>
  untilApp(
    name,
    ({ status, instances, replicas, release }) =>
      status === "running" &&
      instances.length === replicas &&
      instances.every((each) => each.isServing && each.generation === release),
    "settled",
    by,
  );

const ids = ({ instances }: AppInfo): readonly string[] => instances.map(({ id }) => id).toSorted();
const releasesOf = async (name: string): Promise<readonly ReleaseInfo[]> =>
  (await client.get(`/v1/apps/${name}/releases`)).json;
const eventsOf = async (id: string): Promise<readonly string[]> =>
  ((await client.get("/v1/events?limit=1000")).json as { type: string; subject: { id: string } }[])
    .filter(({ subject }) => subject.id === id)
    .map(({ type }) => type);
const nodeStatus = async (id: string): Promise<string | undefined> =>
  ((await client.get("/v1/nodes")).json as { id: string; status: string }[]).find((each) => each.id === id)?.status;
const operationOf = async (id: string) => (await client.get(`/v1/operations/${id}`)).json;

async function destroy(name: string, by: Client = client): Promise<void> {
  assert.equal((await by.delete(`/v1/apps/${name}`)).status, 204);
  assert.equal((await by.get(`/v1/apps/${name}`)).status, 404);
}

const rowsLeft = (): Promise<readonly object[]> =>
  context.db.query(sql`
    SELECT machine_id AS id FROM app_instances UNION ALL SELECT machine_id FROM machine_owners WHERE kind = 'app'
    UNION ALL SELECT m.id FROM machines m WHERE m.deleted_at IS NULL AND m.labels ? 'app'`);

test("a deploy makes instances that serve, which the list of machines does not show and their id finds", async () => {
  const first = await deployed("web", { replicas: 2 });
  assert.deepEqual([first.status, first.replicas, first.port, first.release], ["deploying", 2, 8080, null]);
  assert.equal(first.rollout?.to, 1);
  const app = await settled("web");
  assert.equal(app.rollout, null);
  assert.match(app.url, /^http:\/\/web\.localhost:\d+\/$/);
  assert.equal(new Set(ids(app)).size, 2);
  const listed = (await client.get("/v1/machines")).json as { id: string }[];
  for (const { machineId, id, nodeId } of app.instances) {
    assert.equal(id, machineId.replace("mach-", "inst-"));
    assert.ok(!listed.some((machine) => machine.id === machineId));
    const machine = (await client.get(`/v1/machines/${machineId}`)).json;
    assert.deepEqual(
      [machine.state, machine.ready, machine.nodeId, machine.labels.app],
      ["started", true, nodeId, "web"],
    );
  }
  assert.deepEqual((await client.get("/v1/groups/web")).json, await read("web"));
  assert.equal((await operationOf(first.rollout?.operationId ?? "")).kind, "app deploy");
  await until(async () => (await operationOf(first.rollout?.operationId ?? "")).status === "succeeded");
  assert.ok((await eventsOf(app.id)).includes("app.deployed"));
});

test("equal inputs begin no rollout; each other input, a redeployment and a rollback make a release", async () => {
  const before = await settled("web");
  const again = await deployed("web");
  assert.deepEqual([again.status, again.release, ids(again)], ["running", 1, ids(before)]);
  await deployed("web", { env: env({ COLOUR: "green" }), secretEnv: [{ key: "TOKEN", value: "s3cret" }] });
  const second = await settled("web");
  assert.equal(second.release, 2);
  assert.deepEqual(
    ids(second).filter((id) => ids(before).includes(id)),
    [],
  );
  const same = await deployed("web", { env: env({ COLOUR: "green" }), secretEnv: [{ key: "TOKEN", value: "s3cret" }] });
  assert.equal(same.rollout, null, "a secret that stays changes nothing");
  assert.equal((await client.post("/v1/apps/web/redeploy")).status, 200);
  assert.equal((await settled("web")).release, 3);
  const rolledBack = await client.post("/v1/apps/web/rollback", { release: 1 });
  assert.equal(rolledBack.status, 200, rolledBack.text);
  assert.equal((await settled("web")).release, 4);
  const [fourth, third, , one] = await releasesOf("web");
  assert.deepEqual(fourth?.env, one?.env);
  assert.deepEqual([fourth?.secretEnvNames, third?.secretEnvNames], [[], ["TOKEN"]]);
  assert.deepEqual([fourth?.health, fourth?.network, fourth?.stopGraceSecs], [null, true, 10]);
  assert.ok(fourth?.isCurrent && fourth.outcome === "succeeded");
  assert.equal((await client.post("/v1/apps/web/rollback", { release: 99 })).status, 404);
  for (const path of ["", "/releases", "/explain"])
    assert.ok(!(await client.get(`/v1/apps/web${path}`)).text.includes("s3cret"), path);
});

test("an app listens at the port that its image exposes, unless another one is asked for", async () => {
  const image = "exposes-3000";
  const listening = [{ key: "FAKE_LISTEN", value: "3000=200,81=200" }];
  assert.equal((await deployed("exposed", { image, env: listening })).port, 3000);
  await settled("exposed");
  assert.equal((await deployed("exposed", { image, env: listening, port: 81 })).port, 81);
  await settled("exposed");
  await destroy("exposed");
});

test("a repetition under an idempotency key finds the rollout that it began", async () => {
  const headers = { "idempotency-key": "deploy-once" };
  const first = await deploy("once", {}, { headers });
  assert.equal(first.status, 200, first.text);
  // As if the server had died before it kept the answer.
  await context.db.execute(sql`
    UPDATE idempotency_keys SET status = NULL, answer = NULL, lease_until = now() - interval '1 second'
    WHERE idempotency_key = 'deploy-once'`);
  const again = await deploy("once", {}, { headers });
  assert.deepEqual([again.status, again.json.id], [200, first.json.id], again.text);
  assert.equal((await settled("once")).release, 1);
  assert.equal((await releasesOf("once")).length, 1);
  await destroy("once");
});

test("a canary waits for a person, who promotes it; until then nothing else is touched", async () => {
  await deployed("bird", { replicas: 2 });
  const before = await settled("bird");
  const early = await client.post("/v1/apps/bird/promote");
  assert.equal(early.status, 409, early.text);
  const began = await deployed("bird", {
    env: env({ RELEASE: "2" }),
    strategy: { type: "canary", canaryCount: 1, autoPromote: false },
  });
  const waiting = await untilApp("bird", ({ status }) => status === "awaitingPromotion", "waiting");
  assert.equal(waiting.rollout?.deadline, null);
  assert.match(waiting.rollout?.waitingFor ?? "", /person/);
  for (const id of ids(before)) assert.ok(ids(waiting).includes(id), "the others stay");
  assert.equal(waiting.instances.filter(({ generation }) => generation === 2).length, 1);
  await until(async () => (await operationOf(began.rollout?.operationId ?? "")).status === "succeeded", {
    what: "the deploy to leave it to a person",
  });
  // What is scaled is what serves now; the canary waits on beside it.
  for (const count of [3, 1]) {
    assert.equal((await client.post("/v1/apps/bird/scale", { count })).status, 200);
    const operations = (await client.get("/v1/operations")).json as { kind: string; id: string }[];
    const { id = "" } = operations.find(({ kind }) => kind === "app scale") ?? {};
    const scaled = await until(async () => {
      const operation = await operationOf(id);
      return operation.status !== "running" && operation;
    });
    assert.equal(scaled.status, "succeeded", scaled.error);
    assert.match(scaled.steps[0].message, new RegExp(`^${count} of ${count} instances serve beside the canaries`));
    const app = await read("bird");
    const serving = app.instances.filter(({ isServing }) => isServing).map(({ generation }) => generation);
    assert.deepEqual([app.status, serving.toSorted()], ["awaitingPromotion", [...Array(count).fill(1), 2]]);
  }
  const promoted = await client.post("/v1/apps/bird/promote");
  assert.deepEqual([promoted.status, promoted.json.status], [200, "deploying"], promoted.text);
  assert.equal((await client.post("/v1/apps/bird/promote")).status, 409);
  assert.equal((await settled("bird")).release, 2);
  await destroy("bird");
});

test("a release that never becomes healthy is rolled back with the reason, and what served serves", async () => {
  await deployed("sick", { replicas: 2 });
  const before = await settled("sick");
  for (const strategy of [{ type: "rolling" }, { type: "canary" }, { type: "blueGreen" }]) {
    const began = await deployed("sick", {
      env: env({ STRATEGY: strategy.type }, CLOSED),
      strategy,
      healthDeadlineSecs: 1,
    });
    const after = await untilApp(
      "sick",
      ({ rollout, instances }) => rollout?.phase === "failed" && instances.length === 2,
      "rolled back",
    );
    assert.deepEqual([after.status, after.release, ids(after)], ["running", 1, ids(before)], strategy.type);
    assert.match(after.rollout?.message ?? "", /rolled back: .*healthy within 1 s/);
    const operation = await until(async () => {
      const found = await operationOf(began.rollout?.operationId ?? "");
      return found.status !== "running" && found;
    });
    assert.equal(operation.status, "failed");
    assert.match(operation.error, /healthy within 1 s/);
  }
  assert.ok((await eventsOf(before.id)).includes("app.rolledBack"));
  await destroy("sick");
});

test("a first release that cannot serve ends with the reason that a person needs, and is failed until another one serves", async () => {
  const check = { type: "http", intervalSecs: 1, timeoutSecs: 1, retries: 1 };
  const rows: readonly (readonly [object, RegExp])[] = [
    [{ env: env({}, CLOSED) }, /healthy within 2 s; the last reason: its port does not accept connections yet/],
    [{ env: env(), health: { ...check, path: "/never" } }, /GET \/never was not answered within 1 s/],
    [{ env: env({}, CLOSED), health: check }, /nothing listens on port 8080/],
  ];
  for (const [fields, reason] of rows) {
    const began = await deployed("hopeless", { ...fields, healthDeadlineSecs: 2 });
    const app = await untilApp("hopeless", ({ status }) => status === "failed", "failed");
    assert.match(app.rollout?.message ?? "", reason);
    assert.equal(app.release, null);
    const id = began.rollout?.operationId ?? "";
    await until(async () => (await operationOf(id)).status === "failed", { what: "its operation to fail" });
    assert.match((await operationOf(id)).error, reason);
    assert.ok((await eventsOf(app.id)).includes("app.deployFailed"));
  }
  await deployed("hopeless");
  await settled("hopeless");
  await destroy("hopeless");
});

test("blue-green switches at once: no instance of the new release serves before all of them can", async () => {
  await deployed("switch", { replicas: 3 });
  await settled("switch");
  await deployed("switch", { env: env({ RELEASE: "2" }), strategy: { type: "blueGreen" } });
  const mixed: string[] = [];
  await untilApp(
    "switch",
    ({ instances, release }) => {
      const serving = instances.filter(({ isServing }) => isServing);
      if (new Set(serving.map(({ generation }) => generation)).size > 1) mixed.push(JSON.stringify(serving));
      return release === 2;
    },
    "switched",
  );
  assert.deepEqual(mixed, []);
  assert.equal((await settled("switch")).release, 2);
  await destroy("switch");
});

test("the last of several deploys wins, and the operation of one before it is canceled", async () => {
  await deployed("race", { replicas: 2 });
  await settled("race");
  const slow = await deployed("race", { env: env({ RELEASE: "slow" }, CLOSED) });
  const last = await deployed("race", { env: env({ RELEASE: "last" }) });
  assert.equal(last.rollout?.to, 3);
  assert.equal((await settled("race")).release, 3);
  await until(async () => (await operationOf(slow.rollout?.operationId ?? "")).status === "canceled");
  const [, second] = await releasesOf("race");
  assert.equal(second?.outcome, "superseded");
  await destroy("race");
});

test("four clients that deploy, scale and promote at once leave an app that settles", async () => {
  await deployed("crowd");
  const answers = await Promise.all(
    Array.from({ length: 12 }, (_, at) => {
      if (at % 3 === 0) return deploy("crowd", { env: env({ AT: String(at) }) });
      return at % 3 === 1
        ? client.post("/v1/apps/crowd/scale", { count: 1 + (at % 2) })
        : client.post("/v1/apps/crowd/promote");
    }),
  );
  for (const { status, text } of answers) assert.ok([200, 409, 429].includes(status), text);
  const app = await settled("crowd");
  assert.equal(app.instances.length, app.replicas);
  await destroy("crowd");
});

test("an app scales up, down and to zero; counts out of range are refused with the range", async () => {
  await deployed("size");
  await settled("size");
  for (const count of [3, 1]) {
    assert.equal((await client.post("/v1/apps/size/scale", { count })).json.replicas, count);
    assert.equal((await settled("size")).instances.length, count);
  }
  assert.equal((await client.post("/v1/groups/size/scale", { count: 0 })).status, 200);
  const stopped = await untilApp("size", ({ instances }) => instances.length === 0, "without instances");
  assert.equal(stopped.status, "stopped");
  for (const count of [-1, 1e9, 1.5, "two"]) {
    const refused = await client.post("/v1/apps/size/scale", { count });
    assert.equal(refused.status, 422, refused.text);
    assert.match(refused.text, /count/);
  }
  assert.equal((await client.post("/v1/apps/size/scale", { count: 1 })).status, 200);
  await settled("size");
  await deployed("none", { replicas: 0 });
  const isDone = ({ release, status }: AppInfo): boolean => release === 1 && status === "stopped";
  assert.deepEqual((await untilApp("none", isDone, "rolled out without instances")).instances, []);
  await destroy("none");
  await destroy("size");
});

test("what cannot be is refused at once, with the field or the numbers, and leaves nothing", async () => {
  const refusals: readonly (readonly [object, number, RegExp])[] = [
    [{ name: "Not a label" }, 400, /host label/],
    [{ name: `app-${"0".repeat(32)}` }, 400, /host label/],
    [{ image: "team/missing" }, 422, /image team\/missing does not exist in its registry/],
    [{ image: "team/secluded" }, 422, /is refused by its registry/],
    [{ image: "team/foreign" }, 422, /has no variant for this node/],
    [{ replicas: -1 }, 422, /replicas/],
    [{ replicas: 1e9 }, 422, /replicas/],
    [{ replicas: 900 }, 422, /900 instances do not fit: .* vCPUs/],
    [{ port: 0 }, 422, /port/],
    [{ port: 70_000 }, 422, /port/],
    [{ domain: "x" }, 400, /domain/],
    [{ domain: "10.0.0.1" }, 400, /domain/],
    [{ domain: "a.localhost" }, 400, /one of this fleet/],
    [{ health: { type: "exec" } }, 400, /health\.command/],
    [{ health: { type: "http", path: "no slash" } }, 400, /health\.path/],
    [{ health: { type: "http", retries: 0 } }, 422, /retries/],
    [{ env: [...env(), ...env()] }, 400, /FAKE_PORTS twice/],
    [{ secretEnv: env() }, 400, /secretEnv/],
    [{ strategy: { type: "rolling", batchSize: 0 } }, 422, /batchSize/],
  ];
  for (const [fields, status, text] of refusals) {
    const refused = await client.post("/v1/apps", { name: "never", image: IMAGE, env: env(), ...fields });
    assert.equal(refused.status, status, `${JSON.stringify(fields)}: ${refused.text}`);
    assert.match(refused.text, text);
  }
  for (const host of ["fleet.example.net", "FLEET.example.net."])
    assert.match((await deploy("never", { domain: host })).text, /one of this fleet/);
  const unknown = await deploy("never", { domain: "shop.example.com" }, { by: unnamed.client });
  assert.equal(unknown.status, 409, unknown.text);
  assert.match(unknown.text, /FLOTILLA_PUBLIC_URL/);
  assert.equal((await client.get("/v1/apps/never")).status, 404);
  for (const [method, path] of [
    ["POST", "/promote"],
    ["POST", "/redeploy"],
    ["POST", "/rollback"],
    ["DELETE", ""],
  ] as const)
    assert.equal((await client.call(method, `/v1/apps/never${path}`)).status, 404, path);
});

test("two tenants may have one name; a domain is one app's, and its refusal names no owner", async () => {
  const { id } = (await client.post("/v1/tenants", { name: "neighbour" })).json;
  const scopes = ["app:write", "app:read"];
  const other = client.withKey((await client.post("/v1/apikeys", { tenantId: id, scopes })).json.key);
  await deployed("shop", { domain: "shop.example.com" });
  const own = await settled("shop");
  assert.equal(new URL(own.url).hostname, "shop.example.com");
  const taken = await deploy("shop", { domain: "Shop.Example.com." }, { by: other });
  assert.equal(taken.status, 409, taken.text);
  assert.ok(!taken.text.includes("default") && !taken.text.includes(own.id));
  assert.equal((await other.get("/v1/apps/shop")).status, 404, "a refused deploy makes no app");
  await deployed("shop", {}, other);
  assert.notEqual((await settled("shop", other)).url, own.url);
  await destroy("shop");
  assert.equal((await deploy("shop", { domain: "shop.example.com" }, { by: other })).status, 409);
  await destroy("shop", other);
});

test("a plan bounds apps, and the instances that run at once with their surge", async () => {
  const plan = await client.post("/v1/plans", { name: "small", maxApps: 1, maxConcurrentMachines: 2 });
  assert.ok(plan.status < 300, plan.text);
  const tenant = (await client.post("/v1/tenants", { name: "small", planId: plan.json.id })).json.id;
  const by = client.withKey((await client.post("/v1/apikeys", { tenantId: tenant, scopes: ["app:write"] })).json.key);
  const large = await deploy("one", { replicas: 3 }, { by });
  assert.equal(large.status, 422, large.text);
  assert.match(large.text, /3 instances do not fit: .* 2 running machines/);
  await deployed("one", { replicas: 2 }, by);
  await settled("one", by);
  const surge = await deploy("one", { env: env({ RELEASE: "2" }) }, { by });
  assert.equal(surge.status, 422, surge.text);
  assert.match(surge.text, /2 instances and 1 more while they are replaced/);
  const second = await deploy("two", { replicas: 0 }, { by });
  assert.equal(second.status, 422, second.text);
  assert.match(second.text, /1 apps/);
  await destroy("one", by);
});

test("an instance whose machine was stopped or deleted is replaced", async () => {
  await deployed("whole", { replicas: 2 });
  const before = await settled("whole");
  const [stopped, deleted] = before.instances;
  assert.equal((await client.post(`/v1/machines/${stopped?.machineId}/stop`)).status, 200);
  assert.equal((await client.delete(`/v1/machines/${deleted?.machineId}`)).status, 204);
  const after = await untilApp(
    "whole",
    (app) =>
      app.instances.length === 2 &&
      app.instances.every(({ isServing }) => isServing) &&
      !ids(app).some((id) => ids(before).includes(id)),
    "whole again",
  );
  assert.equal(after.release, 1);
  assert.ok((await eventsOf(stopped?.id ?? "")).includes("instance.replaced"));
  // Others may be written between two reads.
  await until(async () => {
    const own = await client.get(`/v1/events?app=${after.id}&limit=1000`);
    const found = own.json as { type: string; subject: { id: string } }[];
    const subjects = new Set(found.map(({ subject }) => subject.id));
    assert.ok(subjects.has(after.id) && subjects.has(stopped?.id ?? "") && !subjects.has(stopped?.machineId ?? ""));
    const all = (await client.get("/v1/events?limit=1000")).json as { type: string; subject: { id: string } }[];
    assert.deepEqual(
      found,
      all.filter(({ subject }) => subjects.has(subject.id)),
    );
    return true;
  });
  const typed = (await client.get(`/v1/events?app=${after.id}&type=instance.replaced`)).json as { type: string }[];
  assert.deepEqual(new Set(typed.map(({ type }) => type)), new Set(["instance.replaced"]));
  const both = await client.get(`/v1/events?app=${after.id}&machine=${stopped?.machineId}`);
  assert.equal(both.status, 422, both.text);
  await destroy("whole");
});

test("a plan of a deploy says what would happen and does nothing; an explanation says what is", async () => {
  const planned = await client.post("/v1/apps/-/plan", { name: "plan", image: IMAGE, env: env(), replicas: 2 });
  assert.equal(planned.status, 200, planned.text);
  const plan = planned.json as DeployPlan;
  assert.deepEqual([plan.effect, plan.release], ["create", 1]);
  assert.ok(
    plan.steps.some((step) => step.startsWith("make 2 instances")),
    planned.text,
  );
  assert.match(plan.steps.at(-1) ?? "", /^end: /);
  assert.equal((await client.get("/v1/apps/plan")).status, 404);
  await deployed("plan", { replicas: 2 });
  await settled("plan");
  const none = (await client.post("/v1/apps/-/plan", { name: "plan", image: IMAGE, env: env() })).json as DeployPlan;
  assert.deepEqual([none.effect, none.differences, none.steps], ["none", [], []]);
  const next = (await client.post("/v1/apps/-/plan", { name: "plan", image: IMAGE, env: env({ A: "1" }) }))
    .json as DeployPlan;
  assert.deepEqual([next.effect, next.differences], ["begin", ["env A"]]);
  const explained = (await client.get("/v1/apps/plan/explain")).json;
  assert.deepEqual([explained.status, explained.waitingFor, explained.next], ["running", null, []]);
  assert.equal(explained.instances.length, 2);
  await destroy("plan");
});

test("a log has the lines of all instances, each with its instance, and a follower those of later ones", async () => {
  const greeting = (text: string) => ({ image: "local/speaks", env: env({ FAKE_IMAGE: text }) });
  await deployed("log", { replicas: 2, ...greeting("hello") });
  const first = await settled("log");
  // Without what the control plane itself says in a log.
  const lines = (text: string): readonly string[] =>
    text.split("\n\n").filter((line) => line.trim() !== "" && !line.includes("] flotilla: "));
  const expected = (app: AppInfo, text: string): readonly string[] => ids(app).map((id) => `data: [${id}] ${text}`);
  const path = "/v1/apps/log/logs?tail=100";
  await until(async () => lines((await client.get(path)).text).length === 2, { what: "the lines of both" });
  const answer = await client.get(path);
  assert.equal(answer.headers.get("content-type"), "text/event-stream");
  assert.deepEqual(lines(answer.text).toSorted(), expected(first, "hello"));
  const json = lines((await client.get(`${path}&format=json`)).text).map((line) => JSON.parse(line.slice(6)));
  assert.deepEqual(json.map(({ instanceId }) => instanceId).toSorted(), ids(first));
  assert.equal((await client.get("/v1/apps/log/logs?tail=1000000")).status, 400);

  const following = new AbortController();
  const headers = { authorization: `Bearer ${client.key}` };
  const stream = await fetch(`${server.url}${path}&follow=true`, { headers, signal: following.signal });
  let text = "";
  const reading = (async () => {
    for await (const chunk of stream.body?.pipeThrough(new TextDecoderStream()) ?? []) text += chunk;
  })();
  await deployed("log", greeting("and hello again"));
  const second = await settled("log");
  const all = [...expected(first, "hello"), ...expected(second, "and hello again")].toSorted();
  await until(() => lines(text).length >= all.length, { what: "the lines of the new instances" });
  assert.deepEqual(lines(text).toSorted(), all, "each line once");
  await destroy("log");
  await reading;
  following.abort();
});

test("a volume is accepted, and the answer says that it has no storage", async () => {
  const answer = await deploy("disk", { volume: { name: "data", mountPath: "/data" } });
  assert.deepEqual([answer.status, answer.headers.get("x-unsupported")], [200, "volumes"]);
  await destroy("disk");
});

test("instances are placed beside those of the app that they name, where that is possible", async () => {
  assert.ok((await client.post(`/v1/nodes/${node.id}/cordon`)).status < 300);
  await deployed("beside");
  await settled("beside");
  assert.ok((await client.post(`/v1/nodes/${node.id}/uncordon`)).status < 300);
  await deployed("near", { replicas: 4, coLocateWith: "beside" });
  const near = await settled("near");
  assert.deepEqual(new Set(near.instances.map(({ nodeId }) => nodeId)), new Set([other.id]));
  await destroy("beside");
  await deployed("alone", { replicas: 4, coLocateWith: "beside" });
  assert.equal((await settled("alone")).instances.length, 4, "without that app they are placed anywhere");
  await destroy("near");
  await destroy("alone");
});

test("a drain replaces the instances of its node on another one before they stop, and moves none", async () => {
  await deployed("drained", { replicas: 4 });
  const before = await settled("drained");
  const drain = await client.post(`/v1/nodes/${node.id}/drain`);
  assert.ok(drain.status < 300, drain.text);
  const fewer: string[] = [];
  const after = await untilApp(
    "drained",
    ({ instances }) => {
      if (instances.filter(({ isServing }) => isServing).length < 4) fewer.push(JSON.stringify(instances));
      return instances.length === 4 && instances.every(({ nodeId }) => nodeId === other.id);
    },
    "on the other node",
  );
  assert.deepEqual(fewer, []);
  const stayed = before.instances.filter(({ nodeId }) => nodeId === other.id).map(({ id }) => id);
  for (const id of stayed) assert.ok(ids(after).includes(id), "instances of other nodes stay");
  await until(async () => (await nodeStatus(node.id)) === "drained", {
    what: "the node to be drained",
  });
});

test("a redeployment spreads the new instances over the nodes that admit them", async () => {
  const opened = await client.delete(`/v1/nodes/${node.id}/drain`);
  assert.equal(opened.status, 200, opened.text);
  assert.equal((await client.post("/v1/apps/drained/redeploy")).status, 200);
  const { instances } = await untilApp(
    "drained",
    (app) =>
      app.release === 2 && app.instances.length === 4 && app.instances.every(({ generation }) => generation === 2),
    "redeployed",
  );
  const onNode = (id: string): number => instances.filter(({ nodeId }) => nodeId === id).length;
  assert.deepEqual([onNode(node.id), onNode(other.id)], [2, 2]);
  await destroy("drained");
});

test("when every app is destroyed, no instance, no owner and no machine is left", async () => {
  for (const { name } of (await client.get("/v1/apps")).json as AppInfo[]) await destroy(name);
  await until(async () => (await rowsLeft()).length === 0, { what: "nothing to be left", deadlineMs: 200_000 });
});
