/**
 * What `flotilla mcp` allows with `--machines` and `--spend-limit`: with several assistants on a key, with
 * apps, after a restart, and with a plan that has prices.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { httpGuest } from "../../server/test/support/guest.ts";
import { until } from "../../test/support/until.ts";
import { connectMcp, type Door, type McpCaller } from "./mcp-client.ts";
import { makeDirectory, type RunningUp, startUp } from "./run-up.ts";

const image = "local/busybox";
/** What instances serve. */
const guest = await httpGuest((_request, response) => response.end("ok"));
const env = { FAKE_PORTS: `8080=${guest.port}` };
const LONG = { deadlineMs: 60_000 };

async function said(up: RunningUp, ...argv: string[]): Promise<string> {
  const { code, output, errors } = await up.cli(...argv);
  assert.equal(code, 0, errors);
  return String(output).trim();
}

/** A key that may do what these tests do, and no more. */
async function newKey(up: RunningUp, ...more: string[]): Promise<Record<string, string>> {
  const scopes = ["machine:read", "machine:create", "machine:delete", "machine:exec", "app:read", "app:write"];
  const key = await said(up, "key", "create", ...scopes.flatMap((scope) => ["--scope", scope]), ...more);
  return { FLOTILLA_URL: up.url, FLOTILLA_API_KEY: key };
}

interface Shown {
  readonly name: string;
  readonly state: string;
}

async function machinesOf(mcp: McpCaller): Promise<readonly Shown[]> {
  const { said: listed, isError } = await mcp.call("list_machines");
  assert.equal(isError, false, listed);
  return JSON.parse(listed) as Shown[];
}

async function instancesOf(mcp: McpCaller, app: string): Promise<number> {
  const { said: shown, isError } = await mcp.call("get_app", { app });
  return isError ? 0 : (JSON.parse(shown) as { instances: unknown[] }).instances.length;
}

test("no more machines are made than --machines allows", async (t) => {
  const up = await startUp(t, makeDirectory(t));

  await t.test("by several assistants with a key, and after a restart of one", async (t) => {
    const door: Door = { environment: await newKey(up), argv: ["--machines", "2", "--no-confirm"] };
    const [one, other] = [await connectMcp(t, "newer", door), await connectMcp(t, "older", door)];
    const made = await Promise.all(
      [one, other, one, other].map((mcp, index) =>
        mcp.call("create_machine", { image, name: `few-${index}`, start: false }),
      ),
    );
    const listed = (await machinesOf(one)).filter(({ name }) => name.startsWith("few-"));
    assert.ok(listed.length <= 2, JSON.stringify(listed));
    assert.equal(listed.length, made.filter(({ isError }) => !isError).length);
    const refusal = made.find(({ isError }) => isError);
    assert.match(refusal?.said ?? "", /may have 2 machines at the same time/);
    for (const { name } of listed) assert.equal((await one.call("delete_machine", { machine: name })).isError, false);
    assert.deepEqual(one.questions, []);
    for (const name of ["again-1", "again-2"])
      assert.equal((await one.call("create_machine", { image, name, start: false })).isError, false);
    await one.client.close();
    const restarted = await connectMcp(t, "newer", door);
    const branched = await restarted.call("branch_machine", { machine: "again-1", name: "again-3" });
    assert.match(branched.said, /there are 2: delete one first/);
    assert.equal((await machinesOf(restarted)).length, 2);
  });

  await t.test("with the instances of apps, before and after they are made, whatever their labels say", async (t) => {
    const environment = await newKey(up);
    const mcp = await connectMcp(t, "newer", { environment, argv: ["--machines", "3", "--no-confirm"] });
    const wide = await mcp.call("deploy_app", { app: "wide", image, env, replicas: 4 });
    assert.match(wide.said, /may have 3 machines at the same time, with instances of apps; there are 0 besides/);
    assert.equal((await mcp.call("get_app", { app: "wide" })).isError, true);
    // Its instances are made later than it is answered.
    assert.equal((await mcp.call("deploy_app", { app: "wide", image, env, replicas: 2 })).isError, false);
    const labels = { app: "wide" };
    assert.equal((await mcp.call("create_machine", { image, name: "one", start: false, labels })).isError, false);
    assert.match((await mcp.call("create_machine", { image, name: "two", start: false })).said, /there are 3: delete/);
    await until(async () => (await instancesOf(mcp, "wide")) === 2, { what: "the instances", ...LONG });
    const calls: readonly (readonly [string, Record<string, unknown>])[] = [
      ["create_machine", { image, name: "two", start: false, labels }],
      ["scale_app", { app: "wide", replicas: 3 }],
      // While they are replaced there is one more.
      ["deploy_app", { app: "wide", image, replicas: 2, env: { ...env, A: "1" } }],
      ["deploy_app", { app: "other", image }],
    ];
    for (const [name, input] of calls) {
      const refused = await mcp.call(name, input);
      assert.deepEqual([refused.isError, /may have 3 machines/.test(refused.said)], [true, true], refused.said);
    }
    assert.equal((await mcp.call("scale_app", { app: "wide", replicas: 1 })).isError, false);
    await until(async () => (await instancesOf(mcp, "wide")) === 1, { what: "one instance", ...LONG });
    assert.equal((await mcp.call("create_machine", { image, name: "two", start: false })).isError, false);
    assert.equal((await mcp.call("destroy_app", { app: "wide" })).isError, false);
  });

  await t.test("with apps that another key deployed, once they are scaled", async (t) => {
    const first = await connectMcp(t, "newer", { environment: await newKey(up), argv: ["--no-confirm"] });
    for (const app of ["theirs-1", "theirs-2"]) await first.call("deploy_app", { app, image, env, replicas: 0 });
    const mcp = await connectMcp(t, "newer", { environment: await newKey(up), argv: ["--machines", "2"] });
    assert.equal((await mcp.call("scale_app", { app: "theirs-1", replicas: 2 })).isError, false);
    assert.match((await mcp.call("scale_app", { app: "theirs-2", replicas: 1 })).said, /may have 2 machines/);
    for (const app of ["theirs-1", "theirs-2"]) await first.call("destroy_app", { app });
  });
});

test("when --spend-limit is reached nothing is started, and what runs is stopped", async (t) => {
  const up = await startUp(t, makeDirectory(t));
  // A processor costs 0.28 a second.
  const prices = { rateCpuHourMicros: 1_000_000_000, rateMemoryGbHourMicros: 0, maxTotalCpus: 16 };
  const plan = await fetch(`${up.url}/v1/plans`, {
    method: "POST",
    headers: {
      authorization: `Bearer ${up.environment["FLOTILLA_API_KEY"]}`,
      "content-type": "application/json",
    },
    body: JSON.stringify({ name: "dear", ...prices }),
  });
  assert.equal(plan.status, 201, await plan.text());
  await said(up, "tenant", "create", "payer", "--plan", "dear");
  const environment = await newKey(up, "--tenant", "payer");
  const theirs = await newKey(up, "--tenant", "payer");
  const unlimited = await connectMcp(t, "newer", { environment: theirs, argv: ["--no-confirm"] });
  await unlimited.call("create_machine", { image, name: "before" });
  await unlimited.call("run_command", { machine: "before", command: ["true"] });

  const door: Door = { environment, argv: ["--spend-limit", "3", "--no-confirm"] };
  const [mcp, second] = [await connectMcp(t, "newer", door), await connectMcp(t, "older", door)];
  const made = await mcp.call("create_machine", { image, name: "spender", cpus: 2, autoStopSeconds: 86_400 });
  assert.equal(made.isError, false, made.said);
  const spender = JSON.parse((await mcp.call("get_machine", { machine: "spender" })).said) as Record<string, unknown>;
  assert.equal(spender["autoStopSeconds"], 600);
  assert.equal((await mcp.call("deploy_app", { app: "shop", image, env, replicas: 1 })).isError, false);

  const stateOf = async (name: string): Promise<string | undefined> =>
    (await machinesOf(unlimited)).find((machine) => machine.name === name)?.state;
  await until(async () => (await stateOf("spender")) === "stopped", { what: "the end of the spender", ...LONG });
  await until(async () => (await instancesOf(unlimited, "shop")) === 0, { what: "the end of instances", ...LONG });

  const starting: readonly (readonly [string, Record<string, unknown>])[] = [
    ["create_machine", { image, name: "more" }],
    ["start_machine", { machine: "spender" }],
    ["run_command", { machine: "spender", command: "true" }],
    ["run_code", { machine: "spender", language: "python", code: "1" }],
    ["scale_app", { app: "shop", replicas: 1 }],
    ["deploy_app", { app: "shop-2", image }],
    ["branch_machine", { machine: "before", name: "branched" }],
  ];
  for (const assistant of [mcp, second]) {
    for (const [name, input] of starting) {
      const refused = await assistant.call(name, input);
      assert.equal(refused.said, "the spend limit of this server, 3.00, is reached: nothing is started", name);
    }
  }
  const usage = JSON.parse((await mcp.call("get_usage")).said) as { periodCost: { totalMicros: number } };
  assert.ok(usage.periodCost.totalMicros >= 3_000_000, JSON.stringify(usage.periodCost));
  // Machines of other keys run on; those of the key can be looked at and deleted.
  assert.equal(await stateOf("before"), "started");
  await unlimited.call("delete_machine", { machine: "before" });

  await t.test("after a restart only what is spent since then counts", async (t) => {
    const restarted = await connectMcp(t, "newer", door);
    const started = await restarted.call("start_machine", { machine: "spender" });
    assert.equal(started.isError, false, started.said);
    assert.equal((await restarted.call("delete_machine", { machine: "spender" })).isError, false);
    assert.equal((await restarted.call("destroy_app", { app: "shop" })).isError, false);
  });
});
