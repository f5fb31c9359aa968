/**
 * Machines over HTTP: create, read, list, start, stop, delete, events, usage; with a real node agent without
 * VMs.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { sql } from "../src/db/database.ts";
import { startTestNode, TEST_JOIN_TOKEN } from "./support/node.ts";
import { startTestServer } from "./support/server.ts";
import { until } from "../../test/support/until.ts";

const server = await startTestServer({ joinToken: TEST_JOIN_TOKEN, plansUrl: "https://flotilla.example/plans" });
await startTestNode(server);
const { client } = server;
const source = { type: "image", reference: "local/busybox" };

async function created(fields: object = {}): Promise<{ id: string; name: string | null }> {
  const answer = await client.post("/v1/machines", { source, ...fields });
  assert.equal(answer.status, 201, answer.text);
  return answer.json;
}

const get = async (id: string) => (await client.get(`/v1/machines/${id}`)).json;

async function messages(id: string): Promise<readonly string[]> {
  const events = (await client.get(`/v1/machines/${id}/events`)).json as { message: string }[];
  return events.map(({ message }) => message);
}

test("a created machine is stopped, with the defaults filled in", async () => {
  const machine = (await client.post("/v1/machines", { source, name: null, env: null, network: null })).json;
  assert.match(machine.id, /^mach-[0-9a-f]{32}$/);
  assert.equal(machine.state, "stopped");
  assert.equal(machine.ready, false);
  assert.equal(machine.readyAt, null);
  assert.deepEqual(machine.resources, { cpus: 4, memoryMb: 8192, diskGb: 20 });
  assert.deepEqual(machine.network, { mode: "open" });
  assert.deepEqual([machine.env, machine.ports, machine.labels, machine.ephemeral], [{}, [], {}, false]);
  assert.deepEqual(await get(machine.id), machine);
  assert.deepEqual(await messages(machine.id), ["machine created"]);
});

test("a machine without a name gets one, which no other of its tenant has", async () => {
  const machines = await Promise.all(Array.from({ length: 20 }, () => created({})));
  const names = machines.map(({ name }) => name);
  for (const name of names) assert.match(String(name), /^[a-z]+-[a-z]+-[0-9a-f]{6}$/);
  assert.equal(new Set(names).size, names.length);
});

test("a machine shows what may be done with it now", async () => {
  const { id } = await created({});
  const { capabilities } = await get(id);
  assert.deepEqual([capabilities.exec, capabilities.branch, capabilities.maxForkBatch], [false, false, 0]);
  assert.equal((await client.post(`/v1/machines/${id}/start`)).json.capabilities.exec, true);
  assert.equal((await client.post(`/v1/machines/${id}/stop`)).json.capabilities.exec, false);
});

test("refusals over a ceiling name no page where the operator has set none", async () => {
  const plain = await startTestServer({ databaseUrl: server.databaseUrl, portsPerMachine: 6 });
  const plan = (await client.post("/v1/plans", { name: "None", maxMachines: 0 })).json;
  const tenant = (await client.post("/v1/tenants", { name: "none", planId: plan.id })).json.id;
  const { key } = (await client.post("/v1/apikeys", { tenantId: tenant, scopes: ["machine:create"] })).json;
  const refused = await plain.client.withKey(key).post("/v1/machines", { source });
  assert.equal(
    refused.text,
    "machine count quota exceeded: your None plan allows 0 machines; ask the operator for a larger plan",
  );
  // The number of ports is also set by the operator.
  const ports = Array.from({ length: 7 }, (_, index) => ({ port: 8000 + index }));
  const owner = plain.client.withKey(server.adminKey.key);
  assert.match((await owner.post("/v1/machines", { source, ports })).text, /at most 6 ports/);
  assert.equal((await owner.post("/v1/machines", { source, ports: ports.slice(1) })).status, 201);
});

test("the body that existing clients send is accepted unchanged", async () => {
  const machine = await created({
    name: null,
    resources: { cpus: 1, memoryMb: 512, diskGb: null },
    network: { mode: "open" },
    autoStopSeconds: null,
    ttlSeconds: null,
    atEnd: "delete",
    forkable: false,
    diskDurability: "full",
  });
  assert.deepEqual((await get(machine.id)).resources, { cpus: 1, memoryMb: 512, diskGb: 20 });
});

test("a package that does not exist is refused when a machine is created from it", async () => {
  const source = { type: "smolmachine", reference: "x" };
  const refused = await client.post("/v1/machines", { source });
  assert.deepEqual([refused.status, refused.headers.get("x-error-code")], [404, "not_found"], refused.text);
});

test("a name that a program would read as an option is refused, or as a path, or that is none", async () => {
  for (const name of ["-rf", "--help", "-", ".", "..", ".x", "a/b", "a b", "a\nb", "a\u202eb", "x".repeat(64), ""]) {
    const refused = await client.post("/v1/machines", { source, name });
    assert.equal(refused.status, 422, JSON.stringify(name));
  }
});

test("hooks are shown as they were given, and bad ones are refused by their field", async () => {
  const hooks = { fork: { command: ["true"] }, stop: { command: ["sync"], timeoutSecs: 60 } };
  const given = await created({ hooks: { ...hooks, suspend: null, fork: { command: ["true"], timeoutSecs: null } } });
  assert.deepEqual((await get(given.id)).hooks, hooks);
  for (const none of [null, {}, { resume: null }])
    assert.equal((await get((await created({ hooks: none })).id)).hooks, null);
  const refusals: readonly [object | string, string][] = [
    ["sync", "hooks"],
    [{ fork: "sync" }, "hooks.fork"],
    [{ fork: {} }, "hooks.fork.command"],
    [{ resume: { command: "sync" } }, "hooks.resume.command"],
    [{ stop: { command: [] } }, "hooks.stop.command"],
    [{ stop: { command: ["a\0b"] } }, "hooks.stop.command.0"],
    [{ stop: { command: [""] } }, "hooks.stop.command"],
    [{ stop: { command: ["x".repeat(128 * 1024)] } }, "hooks.stop.command"],
    [{ stop: { command: Array.from({ length: 16_001 }, () => "a") } }, "hooks.stop.command"],
    ...[0, 61, 1.5, "5"].map((timeoutSecs): [object, string] => [
      { suspend: { command: ["sync"], timeoutSecs } },
      "hooks.suspend.timeoutSecs",
    ]),
  ];
  for (const [bad, field] of refusals) {
    const headers = { accept: "application/json" };
    const { status, json } = await client.post("/v1/machines", { source, hooks: bad }, { headers });
    assert.deepEqual([status, json.code, json.details.field], [422, "invalid_body", field], json.detail);
  }
});

test("an invalid request is refused with 400 and a reason", async () => {
  const refusals: readonly [object, string | RegExp][] = [
    [{ network: { mode: "allowCidrs" } }, "allowCidrs network mode requires at least one CIDR or host"],
    [{ network: { mode: "allowCidrs", cidrs: [], hosts: [] } }, /requires at least one/],
    [{ network: { mode: "allowCidrs", cidrs: ["10.0.0.0/33"] } }, /10\.0\.0\.0\/33/],
    [{ network: { mode: "allowCidrs", cidrs: ["example"] } }, /is not a network/],
    [
      { network: { mode: "allowCidrs", cidrs: ["fe80::1%eth0/64"] } },
      /fe80::1%eth0\/64" has a zone; write .* without "%"/,
    ],
    [{ network: { mode: "allowCidrs", cidrs: ["fe80::1%eth0"] } }, /has a zone/],
    [{ network: { mode: "allowCidrs", hosts: ["http://x"] } }, /is not a host name/],
    [{ env: { "A=B": "1" } }, /"A=B"/],
    [{ env: { "": "1" } }, /name/],
    [{ env: { A: "x".repeat(200_000) } }, /env A is larger/],
    [{ env: Object.fromEntries(Array.from({ length: 9 }, (_, i) => [`V${i}`, "x".repeat(100_000)])) }, /together/],
    [{ workdir: "relative" }, /absolute/],
    [{ ports: [1, 2, 3, 4, 5].map((port) => ({ port })) }, /at most 4 ports/],
    [{ source: { type: "image", reference: "a b" } }, /white space/],
  ];
  for (const [fields, expected] of refusals) {
    const answer = await client.post("/v1/machines", { source, ...fields });
    assert.equal(answer.status, 400, answer.text);
    if (typeof expected === "string") assert.equal(answer.text, expected);
    else assert.match(answer.text, expected);
  }
});

test("networks, hosts and ports are normalized", async () => {
  const { id } = await created({
    network: { mode: "allowCidrs", cidrs: ["10.0.0.0/8", "192.0.2.1", "2001:db8::/32"], hosts: ["API.example.com."] },
    ports: [{ port: 8080, hostPort: 99 }, { port: 8080 }],
  });
  const machine = await get(id);
  assert.deepEqual(machine.network, {
    mode: "allowCidrs",
    cidrs: ["10.0.0.0/8", "192.0.2.1/32", "2001:db8::/32"],
    hosts: ["api.example.com"],
  });
  assert.deepEqual(machine.ports, [{ port: 8080, hostPort: null }]);
});

test("a name can be used once, is freed by a delete, and does not name the machine in paths", async () => {
  const first = await created({ name: "web" });
  const second = await client.post("/v1/machines", { source, name: "web" });
  assert.equal(second.status, 409);
  assert.match(second.text, /web/);
  assert.equal((await client.get("/v1/machines/web")).status, 404);
  await client.delete(`/v1/machines/${first.id}`);
  await created({ name: "web" });
});

test("start boots, is idempotent, and stop keeps the machine", async () => {
  const { id } = await created();
  const started = await client.post(`/v1/machines/${id}/start`);
  assert.equal(started.status, 200, started.text);
  assert.equal(started.json.state, "started");
  assert.equal(started.json.ready, true);
  assert.ok(Date.parse(started.json.readyAt) <= Date.now());
  const again = await client.post(`/v1/machines/${id}/start`, {});
  assert.equal(again.status, 200);
  assert.equal(again.json.readyAt, started.json.readyAt);
  const stopped = await client.post(`/v1/machines/${id}/stop`);
  assert.deepEqual([stopped.status, stopped.json.state, stopped.json.ready], [200, "stopped", false]);
  assert.equal(stopped.json.readyAt, null);
  assert.equal((await client.post(`/v1/machines/${id}/stop`)).json.state, "stopped");
  assert.deepEqual(await messages(id), ["machine created", "machine started", "machine stopped"]);
});

test("a detached start answers immediately, and no reader ever sees `stopped` after it", async () => {
  const { id } = await created({ env: { FAKE_BOOT_MS: "300" } });
  const accepted = await client.post(`/v1/machines/${id}/start?detach=true`);
  assert.equal(accepted.status, 202);
  assert.equal(accepted.json.state, "creating");
  const seen = new Set<string>();
  await until(async () => {
    const machine = await get(id);
    seen.add(machine.state);
    return machine.ready;
  });
  assert.deepEqual([...seen].sort(), ["creating", "started"]);
});

test("a failed start leaves `error` with the reason, and can be repeated", async () => {
  const { id } = await created({ source: { type: "image", reference: "local/missing" } });
  const failed = await client.post(`/v1/machines/${id}/start`);
  assert.equal(failed.status, 422);
  assert.equal(failed.headers.get("x-error-code"), "image_not_found");
  assert.match(failed.text, /not found/);
  const machine = await get(id);
  assert.equal(machine.state, "error");
  assert.match(machine.error, /local\/missing/);
  // The node's own event, that it looked for the image, may come before this line or after it.
  const told = (await messages(id)).filter((message) => /^start failed: .*local\/missing/.test(message));
  assert.equal(told.length, 1);
  assert.equal((await client.post(`/v1/machines/${id}/stop`)).json.state, "stopped");
  assert.equal((await get(id)).error, null);
});

test("a stop is answered as done, also when a start that fails comes right after it", async () => {
  const { id } = await created({ env: { FAKE_BOOT_FAIL: "1" } });
  for (let turn = 0; turn < 10; turn += 1) {
    await client.post(`/v1/machines/${id}/start`);
    const stopping = client.post(`/v1/machines/${id}/stop`);
    const [stop] = await Promise.all([stopping, client.post(`/v1/machines/${id}/start?detach=true`)]);
    assert.equal(stop.status, 200, stop.text);
  }
  assert.equal((await client.delete(`/v1/machines/${id}`)).status, 204);
});

test("a machine that crashes is restarted, with an event on its timeline", async () => {
  const { id } = await created();
  await client.post(`/v1/machines/${id}/start`);
  await client.post(`/v1/machines/${id}/exec`, { command: "crash" });
  await until(async () => (await messages(id)).filter((message) => message === "machine started").length === 2);
  assert.equal((await get(id)).state, "started");
  assert.equal((await client.post(`/v1/machines/${id}/exec`, { command: "echo back" })).json.stdout, "back\n");
  const told = await until(async () => (await messages(id)).find((message) => /is restarted/.test(message)));
  assert.match(told, /the machine ended by itself \(crashed\).*; the machine is restarted$/);
});

test("a crashed machine that may not restart is in error with a reason, and can be started", async () => {
  const { id } = await created({ restart: "never" });
  await client.post(`/v1/machines/${id}/start`);
  await client.post(`/v1/machines/${id}/exec`, { command: "crash" });
  const machine = await until(async () => {
    const now = await get(id);
    return now.state === "error" && now;
  });
  assert.match(machine.error, /crash/);
  assert.equal(
    (await messages(id)).some((message) => message.startsWith("machine failed: ")),
    true,
  );
  assert.equal((await client.post(`/v1/machines/${id}/start`)).json.state, "started");
});

test("a guest that powers itself off leaves a stopped machine", async () => {
  const { id } = await created();
  await client.post(`/v1/machines/${id}/start`);
  await client.post(`/v1/machines/${id}/exec`, { command: ["poweroff"] });
  await until(async () => (await get(id)).state === "stopped");
  assert.equal((await messages(id)).includes("machine stopped: the guest powered itself off"), true);
});

test("an ephemeral machine is deleted once it has stopped, also when it stops by itself", async () => {
  const asked = await created({ ephemeral: true });
  await client.post(`/v1/machines/${asked.id}/start`);
  assert.equal((await client.post(`/v1/machines/${asked.id}/stop`)).status, 200);
  await until(async () => (await client.get(`/v1/machines/${asked.id}`)).status === 404);
  const itself = await created({ ephemeral: true });
  await client.post(`/v1/machines/${itself.id}/start`);
  await client.post(`/v1/machines/${itself.id}/exec`, { command: ["poweroff"] });
  await until(async () => (await client.get(`/v1/machines/${itself.id}`)).status === 404);
  const idle = await created({ ephemeral: true });
  assert.equal((await get(idle.id)).state, "stopped");
});

test("delete works in any state, and the node removes the machine", async () => {
  const slow = { env: { FAKE_BOOT_MS: "5000" } };
  for (const prepare of [
    async () => (await created()).id,
    async () => {
      const { id } = await created();
      await client.post(`/v1/machines/${id}/start`);
      return id;
    },
    async () => {
      const { id } = await created(slow);
      await client.post(`/v1/machines/${id}/start?detach=true`);
      return id;
    },
  ]) {
    const id = await prepare();
    const answer = await client.delete(`/v1/machines/${id}`);
    assert.equal(answer.status, 204);
    assert.equal((await client.get(`/v1/machines/${id}`)).status, 404);
    for (const verb of ["start", "stop"]) assert.equal((await client.post(`/v1/machines/${id}/${verb}`)).status, 404);
    assert.equal((await client.delete(`/v1/machines/${id}`)).status, 404);
    await until(async () => {
      const row = await server.context.db.queryOne<{ done: boolean }>(
        sql`SELECT observed_state = 'absent' AND reconcile_at IS NULL AS done FROM machines WHERE id = ${id}`,
      );
      return row?.done;
    });
  }
});

test("usage is settled by a delete and readable after it", async () => {
  const { id } = await created({ resources: { cpus: 2, memoryMb: 1024 } });
  await server.context.db.execute(sql`
    INSERT INTO rates (plan_id, active_from, cpu_hour_micros, memory_gb_hour_micros, created_at)
    SELECT id, now(), 3600000000, 3600000000, now() FROM plans WHERE is_default`);
  await client.post(`/v1/machines/${id}/start`);
  await until(async () => (await client.get(`/v1/machines/${id}/usage`)).json.cost.totalMicros > 0);
  const settled = await client.call("DELETE", `/v1/machines/${id}?includeUsage=true`);
  assert.equal(settled.status, 200);
  const { usage, cost } = settled.json;
  // 1,000 micros per processor and millisecond, and the same per GiB and millisecond.
  assert.equal(cost.totalMicros, cost.cpuMicros + cost.memoryMicros);
  assert.equal(cost.cpuMicros, 2 * cost.memoryMicros);
  assert.equal(Math.round(usage.cpuHours * 3_600_000) * 1000, cost.cpuMicros);
  assert.equal(cost.execMicros, 0);
  assert.deepEqual((await client.get(`/v1/machines/${id}/usage`)).json, settled.json);
});

test("machines that are too large for one answer together are listed in pages, each with what fits", async () => {
  const { id: tenantId } = (await client.post("/v1/tenants", { name: "large" })).json;
  const owner = client.withKey((await client.post("/v1/apikeys", { tenantId })).json.key);
  const env = Object.fromEntries(["A", "B", "C", "D", "E"].map((name) => [name, "x".repeat(100_000)]));
  const ids: string[] = [];
  for (let count = 0; count < 70; count += 1) {
    const made = await owner.post("/v1/machines", { source, env });
    assert.equal(made.status, 201, made.text.slice(0, 500));
    ids.push(made.json.id);
  }
  const whole = await owner.get("/v1/machines");
  assert.equal(whole.status, 422);
  assert.match(whole.text, /list them in pages, with limit/);
  const listed: string[] = [];
  const sizes: number[] = [];
  let path: string | undefined = "/v1/machines?limit=1000";
  while (path !== undefined) {
    const answer = await owner.get(path);
    assert.equal(answer.status, 200, answer.text.slice(0, 500));
    const machines = answer.json as { id: string }[];
    listed.push(...machines.map(({ id }) => id));
    sizes.push(machines.length);
    path = /<([^>]+)>/.exec(answer.headers.get("link") ?? "")?.[1];
  }
  assert.deepEqual(listed, ids.toReversed());
  assert.deepEqual(sizes, [68, 2]);
  const first = await owner.get("/v1/machines?limit=2");
  assert.deepEqual(
    (first.json as { id: string }[]).map(({ id }) => id),
    ids.slice(-2).toReversed(),
  );
});

test("lists are bare arrays, newest first, by label and by page", async () => {
  const ids: string[] = [];
  for (const n of [1, 2, 3]) ids.unshift((await created({ labels: { group: "paging", n: String(n) } })).id);
  const all = await client.get("/v1/machines?label=group=paging");
  assert.deepEqual(
    all.json.map((machine: { id: string }) => machine.id),
    ids,
  );
  const one = await client.get("/v1/machines?label=group=paging&label=n=2");
  assert.deepEqual(
    one.json.map((machine: { id: string }) => machine.id),
    [ids[1]],
  );
  assert.equal((await client.get("/v1/machines?label=nonsense")).status, 422);
  const seen: string[] = [];
  let path: string | undefined = "/v1/machines?label=group=paging&limit=2";
  while (path !== undefined) {
    const page = await client.get(path);
    seen.push(...page.json.map((machine: { id: string }) => machine.id));
    path = /<([^>]+)>; rel="next"/.exec(page.headers.get("link") ?? "")?.[1];
  }
  assert.deepEqual(seen, ids);
  assert.equal((await client.get("/v1/machines?limit=1&cursor=zzz")).status, 422);
});

test("the timeline pages as well", async () => {
  const { id } = await created();
  await client.post(`/v1/machines/${id}/start`);
  const first = await client.get(`/v1/machines/${id}/events?limit=1`);
  assert.equal(first.json.length, 1);
  const next = /<([^>]+)>/.exec(first.headers.get("link") ?? "")?.[1] ?? "";
  assert.deepEqual(
    (await client.get(next)).json.map((event: { message: string }) => event.message),
    ["machine started"],
  );
});

test("another tenant's machine is not found by any verb", async () => {
  const { id } = await created();
  const tenant = (await client.post("/v1/tenants", { name: "stranger" })).json.id;
  const key = (
    await client.post("/v1/apikeys", {
      tenantId: tenant,
      scopes: ["machine:read", "machine:create", "machine:delete", "machine:exec"],
    })
  ).json.key;
  const stranger = client.withKey(key);
  assert.equal((await stranger.get(`/v1/machines/${id}`)).status, 404);
  assert.equal((await stranger.post(`/v1/machines/${id}/start`)).status, 404);
  assert.equal((await stranger.post(`/v1/machines/${id}/stop`)).status, 404);
  assert.equal((await stranger.post(`/v1/machines/${id}/exec`, { command: "true" })).status, 404);
  assert.equal((await stranger.get(`/v1/machines/${id}/events`)).status, 404);
  assert.equal((await stranger.get(`/v1/machines/${id}/usage`)).status, 404);
  assert.equal((await stranger.delete(`/v1/machines/${id}`)).status, 404);
  assert.deepEqual((await stranger.get("/v1/machines")).json, []);
});

test("refusals over a plan's ceilings have the documented texts", async () => {
  const plan = (
    await client.post("/v1/plans", {
      name: "Tiny",
      // Without them it would have those that a test above gave the default plan, which no new plan may have.
      rateCpuHourMicros: 0,
      rateMemoryGbHourMicros: 0,
      maxMachines: 2,
      maxConcurrentMachines: 1,
      maxCpus: 2,
      maxMemoryMb: 1024,
      maxDiskGb: 10,
    })
  ).json;
  const tenant = (await client.post("/v1/tenants", { name: "tiny", planId: plan.id })).json.id;
  const scopes = ["machine:read", "machine:create", "machine:exec", "machine:delete"];
  const tiny = client.withKey((await client.post("/v1/apikeys", { tenantId: tenant, scopes })).json.key);
  const oversize = await tiny.post("/v1/machines", { source, resources: { cpus: 3 } });
  assert.equal(oversize.status, 422);
  assert.match(oversize.text, /your Tiny plan allows 2 vCPUs per machine.*https:\/\/flotilla\.example\/plans/);
  await client.patch(`/v1/tenants/${tenant}`, { maxCpus: 1 });
  assert.match(
    (await tiny.post("/v1/machines", { source, resources: { cpus: 2 } })).text,
    /your tenant's own limit allows 1 vCPUs per machine, and 2 were requested; ask the operator for a larger one$/,
  );
  await client.patch(`/v1/tenants/${tenant}`, { maxCpus: null });
  assert.equal((await tiny.post("/v1/machines", { source, resources: { memoryMb: 2048 } })).status, 422);
  assert.equal((await tiny.post("/v1/machines", { source, resources: { diskGb: 11 } })).status, 422);
  // Omitted resources have the default, and are refused where the plan allows less; only the disk's default
  // is reduced to the plan's limit.
  const omitted = await tiny.post("/v1/machines", { source });
  assert.equal(omitted.status, 422);
  assert.match(omitted.text, /allows 2 vCPUs per machine, and 4 is the default; name resources\.cpus/);
  assert.match((await tiny.post("/v1/machines", { source, resources: { cpus: 1 } })).text, /name resources\.memoryMb/);
  const resources = { cpus: 2, memoryMb: 1024 };
  const first = await tiny.post("/v1/machines", { source, resources });
  assert.deepEqual(first.json.resources, { cpus: 2, memoryMb: 1024, diskGb: 10 });
  const second = await tiny.post("/v1/machines", { source, resources });
  const third = await tiny.post("/v1/machines", { source, resources });
  assert.equal(third.status, 422);
  assert.equal(
    third.text,
    "machine count quota exceeded: your Tiny plan allows 2 machines; upgrade at https://flotilla.example/plans",
  );
  assert.equal((await tiny.post(`/v1/machines/${first.json.id}/start`)).status, 200);
  const refused = await tiny.post(`/v1/machines/${second.json.id}/start`);
  assert.equal(refused.status, 422);
  assert.equal(
    refused.text,
    "concurrency limit reached: your Tiny plan allows 1 machines running at once; upgrade at https://flotilla.example/plans",
  );
  assert.equal((await tiny.get(`/v1/machines/${second.json.id}`)).json.state, "stopped");
  assert.equal((await tiny.post(`/v1/machines/${second.json.id}/exec`, { command: "true" })).status, 422);
  await until(async () => {
    const events = (await tiny.get(`/v1/machines/${second.json.id}/events`)).json as { message: string }[];
    return events.some(({ message }) => message.startsWith("auto-start failed: concurrency limit reached"));
  });
});
