/**
 * Plans: the two that the first start makes, and making others.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { sql } from "../src/db/database.ts";
import { monthUpTo } from "../src/usage/usage.ts";
import { Client } from "./support/client.ts";
import { startTestServer } from "./support/server.ts";

const server = await startTestServer();
const { client } = server;
const { db } = server.context;

interface Plan {
  readonly id: string;
  readonly name: string;
  readonly isDefault: boolean;
  readonly maxMachines: number;
}

const list = async (): Promise<readonly Plan[]> => (await client.get("/v1/plans")).json as Plan[];

test("the first start makes a generous default plan and a standard one", async () => {
  const [first, second, ...others] = await list();
  assert.deepEqual([first?.name, first?.isDefault, second?.name, others.length], ["default", true, "standard", 0]);
  const { maxMachines, maxConcurrentMachines, maxCpus, maxMemoryMb, maxDiskGb } = second as never as Record<
    string,
    number
  >;
  assert.deepEqual([maxMachines, maxConcurrentMachines, maxCpus, maxMemoryMb, maxDiskGb], [20, 20, 8, 32_768, 1024]);
});

test("values that a new plan omits are the default plan's", async () => {
  const [base] = await list();
  const made = await client.post("/v1/plans", {
    name: "small",
    maxMachines: 3,
    maxEgressGb: 10,
    budgetPolicy: "block",
  });
  assert.equal(made.status, 201, made.text);
  const { id, createdAt, ...rest } = made.json;
  assert.match(id, /^plan-[0-9a-f]{32}$/);
  assert.match(createdAt, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
  const { id: _, createdAt: __, ...expected } = base as never as Record<string, unknown>;
  assert.deepEqual(rest, {
    ...expected,
    name: "small",
    isDefault: false,
    maxMachines: 3,
    maxEgressGb: 10,
    budgetPolicy: "block",
  });
});

test("a plan is read as it is listed", async () => {
  const { id } = (await client.post("/v1/plans", { name: "read alone", maxCpus: 3 })).json;
  const read = await client.get(`/v1/plans/${id}`);
  assert.equal(read.status, 200, read.text);
  assert.deepEqual(
    read.json,
    ((await client.get("/v1/plans")).json as { id: string }[]).find((plan) => plan.id === id),
  );
  assert.equal((await client.get("/v1/plans/none")).status, 404);
});

test("a plan's name and id can be used once", async () => {
  const plans = (await client.get("/v1/plans")).json as { id: string; name: string }[];
  const [first, small] = [plans[0]?.id, plans.find(({ name }) => name === "small")?.id];
  for (const [body, reason] of [
    [{ name: "small" }, `the name small is already that of plan ${small}; choose another name`],
    [{ name: "other", id: first }, `a plan with the id ${first} exists already; choose another id`],
  ] as const) {
    const answer = await client.post("/v1/plans", body);
    assert.deepEqual([answer.status, answer.headers.get("x-error-code"), answer.text], [409, "name_taken", reason]);
  }
});

test("a new default plan replaces the old one, also when many are made concurrently", async () => {
  const answers = await Promise.all(
    Array.from({ length: 8 }, (_, index) => client.post("/v1/plans", { name: `default ${index}`, isDefault: true })),
  );
  for (const answer of answers) assert.equal(answer.status, 201, answer.text);
  const defaults = (await list()).filter(({ isDefault }) => isDefault);
  assert.equal(defaults.length, 1);
});

test("a default plan that cannot be made leaves the old one in place", async () => {
  const before = (await list()).find(({ isDefault }) => isDefault);
  assert.equal((await client.post("/v1/plans", { name: "small", isDefault: true })).status, 409);
  assert.deepEqual(
    (await list()).find(({ isDefault }) => isDefault),
    before,
  );
});

test("tenants without a plan have the new default plan's rate at the next request", async () => {
  await client.post("/v1/plans", { name: "newest", isDefault: true, rateBurst: 777 });
  assert.equal((await client.get("/v1/me")).headers.get("ratelimit-limit"), "777");
});

test("a price begins when it was set for, what was used before keeps its price, and no price changes", async () => {
  const plan = (await client.post("/v1/plans", { name: "priced", rateCpuHourMicros: 10, rateMemoryGbHourMicros: 7 }))
    .json;
  const rates = async () => (await client.get(`/v1/plans/${plan.id}/rates`)).json as { rateCpuHourMicros: number }[];
  assert.equal((await rates()).length, 1);
  const path = `/v1/plans/${plan.id}/rates`;
  const late = await client.post(path, { activeFrom: new Date(Date.now() + 30_000).toISOString() });
  assert.deepEqual([late.status, late.text.includes("too early")], [400, true]);
  const activeFrom = new Date(Date.now() + 3_600_000).toISOString();
  const made = await client.post(path, { activeFrom, rateCpuHourMicros: 20 }, { headers: { "idempotency-key": "r1" } });
  assert.equal(made.status, 201, made.text);
  assert.deepEqual(
    [made.json.activeFrom, made.json.rateCpuHourMicros, made.json.rateMemoryGbHourMicros, made.json.planId],
    [activeFrom, 20, 7, plan.id],
  );
  assert.equal((await client.post(path, { activeFrom, rateCpuHourMicros: 30 })).status, 409);
  assert.deepEqual(
    (await rates()).map((rate) => rate.rateCpuHourMicros),
    [10, 20],
  );
  const shown = (await client.get("/v1/plans")).json as { id: string; rateCpuHourMicros: number }[];
  assert.equal(shown.find(({ id }) => id === plan.id)?.rateCpuHourMicros, 10, "the plan has the price of now");
  assert.equal((await client.post("/v1/plans/plan-none/rates", {})).status, 404);
  assert.equal((await client.get("/v1/plans/plan-none/rates")).status, 404);
  for (const body of [{ activeFrom: "soon" }, { activeFrom: "2999-02-30T00:00:00Z" }])
    assert.equal((await client.post(path, body)).status, 400);
  for (const body of [{ rateCpuHourMicros: -1 }, { rateCpuHourMicros: 2 ** 53 }, { rateCpuHourMicros: 0.5 }])
    assert.equal((await client.post(path, body)).status, 422);
});

test("a plan's ceilings and budget change for its tenants at once, its prices and the default do not", async () => {
  const plan = (
    await client.post("/v1/plans", { name: "growing", maxMachines: 1, rateBurst: 50, rateCpuHourMicros: 5 })
  ).json;
  const path = `/v1/plans/${plan.id}`;
  const tenant = (await client.post("/v1/tenants", { name: "grower", planId: plan.id })).json;
  const { key } = (await client.post("/v1/apikeys", { tenantId: tenant.id })).json;
  const member = new Client(server.url, key);
  const make = () => member.post("/v1/machines", { source: { type: "image", reference: "alpine" } });
  assert.deepEqual([(await make()).status, (await make()).status], [201, 422]);
  const grown = await client.patch(path, { maxMachines: 2, rateBurst: 60, monthlyBudgetMicros: 7, maxEgressGb: 3 });
  assert.equal(grown.status, 200, grown.text);
  const expected = { ...plan, maxMachines: 2, rateBurst: 60, monthlyBudgetMicros: 7, maxEgressGb: 3 };
  assert.deepEqual(grown.json, expected);
  assert.deepEqual([(await make()).status, (await make()).status], [201, 422]);
  assert.equal((await member.get("/v1/me")).headers.get("ratelimit-limit"), "60");
  assert.equal((await member.get("/v1/account")).json.monthlyBudgetMicros, 7);
  // As it was read, it may be written; null clears what may be missing, and keeps the rest.
  assert.deepEqual((await client.patch(path, grown.json)).json, expected);
  const cleared = await client.patch(path, { monthlyBudgetMicros: null, maxEgressGb: null, maxMachines: null });
  assert.deepEqual(cleared.json, { ...expected, monthlyBudgetMicros: null, maxEgressGb: null });
  for (const [body, why] of [
    [{ rateCpuHourMicros: 6 }, /rateCpuHourMicros cannot be changed.*\/rates/],
    [{ isDefault: true }, /isDefault cannot be changed/],
  ] as const) {
    const refused = await client.patch(path, body);
    assert.deepEqual([refused.status, why.test(refused.text)], [400, true], refused.text);
  }
  assert.equal((await client.patch(path, { name: "small" })).status, 409);
  assert.equal((await client.patch("/v1/plans/plan-none", { maxMachines: 3 })).status, 404);
  assert.deepEqual(
    (await list()).find(({ id }) => id === plan.id),
    cleared.json,
  );
});

test("of a price and larger totals that are set at the same time, only those are accepted whose month can be summed", async () => {
  const names = Array.from({ length: 4 }, (_, at) => `racing ${at}`);
  for (const name of names) {
    const { id } = (await client.post("/v1/plans", { name, maxTotalCpus: 1_000, maxTotalMemoryMb: 0 })).json;
    const [price, totals] = await Promise.all([
      client.post(`/v1/plans/${id}/rates`, { rateCpuHourMicros: 30_000_000 }),
      client.patch(`/v1/plans/${id}`, { maxTotalCpus: 30_000_000 }),
    ]);
    assert.deepEqual([price.status, totals.status].toSorted(), price.status === 201 ? [201, 422] : [200, 422]);
  }
});

test("bad prices, budgets, ids, dates and names are refused with a short 4xx, everywhere that takes money", async () => {
  const planId = (await list())[0]?.id ?? "";
  const { tenantId } = (await client.get("/v1/me")).json;
  const long = "x".repeat(1_000_000);
  const amounts: readonly unknown[] = [-1, 2 ** 53, 2 ** 64, 1e300, 1.5, "1", true, [], {}];
  const bad: (readonly [string, string, unknown?])[] = [];
  for (const amount of amounts) {
    for (const field of ["rateCpuHourMicros", "rateMemoryGbHourMicros", "rateExecMicros", "monthlyBudgetMicros"])
      bad.push(["POST", "/v1/plans", { name: "bad", [field]: amount }]);
    for (const field of ["rateCpuHourMicros", "rateMemoryGbHourMicros"])
      bad.push(["POST", `/v1/plans/${planId}/rates`, { [field]: amount }]);
    for (const field of ["monthlyBudgetMicros", "rateExecMicros", "maxTotalCpus"])
      bad.push(["PATCH", `/v1/plans/${planId}`, { [field]: amount }]);
    bad.push(["PATCH", `/v1/tenants/${tenantId}`, { maxDiskGb: amount }]);
    if (amount !== -1) bad.push(["POST", "/v1/billing/ledger", { tenantId, micros: amount }]);
  }
  for (const text of [long, "a\u0000b", ""]) {
    bad.push(["POST", "/v1/plans", { name: text }], ["POST", "/v1/plans", { name: "bad", id: text }]);
    bad.push(["PATCH", `/v1/plans/${planId}`, { name: text }]);
    bad.push(["POST", "/v1/tenants", { name: text }], ["POST", "/v1/tenants", { name: "bad", id: text }]);
    bad.push(["POST", "/v1/tenants", { name: "bad", planId: text }]);
    bad.push(["POST", "/v1/billing/ledger", { tenantId: text, micros: 1 }]);
    bad.push(["POST", `/v1/plans/${planId}/rates`, { activeFrom: text }]);
  }
  bad.push(["POST", "/v1/billing/ledger", { tenantId, micros: 1, note: long }]);
  bad.push(
    ["POST", "/v1/plans", { name: "bad", id: planId }],
    ["POST", "/v1/plans", { name: "bad", budgetPolicy: "x" }],
  );
  for (const time of [
    "0000-01-01T00:00:00Z",
    "9999-12-31T23:59:59-01:00",
    "2999-02-30T00:00:00Z",
    "1999-01-01T00:00:00Z",
  ]) {
    bad.push(["POST", `/v1/plans/${planId}/rates`, { activeFrom: time }]);
    if (!time.startsWith("1999")) bad.push(["GET", `/v1/usage?from=${time}`], ["GET", `/v1/usage?to=${time}`]);
    bad.push(["GET", `/v1/billing/invoices/2026-01?asOf=${time}`]);
  }
  for (const month of ["0000-01", "2026-00", "2026-13", "2026-1", "26-01", "9999-12", "x".repeat(4_000)]) {
    bad.push(["GET", `/v1/billing/invoices/${month}`], ["GET", `/v1/billing/invoices/${month}/intervals`]);
    bad.push(
      ["GET", `/v1/billing/invoices/${month}/costs?by=key`],
      ["GET", `/v1/billing/plans/${planId}/diff?month=${month}`],
    );
  }
  for (const [method, path, body] of bad) {
    const answer = await client.call(method, path, { body });
    const what = `${method} ${path} ${JSON.stringify(body)}`.slice(0, 200);
    assert.ok([400, 404, 409, 422].includes(answer.status), `${what}: ${answer.status} ${answer.text.slice(0, 200)}`);
    assert.ok(answer.text.length > 10 && answer.text.length < 1_000, `${what}: an answer of ${answer.text.length}`);
  }
  assert.ok((await list()).every(({ name }) => name !== "bad"));
});

test("prices of before the bound never give a 500: amounts beyond 2^53 are refused, and the plan can be changed without larger totals", async () => {
  const budget = { budgetPolicy: "block", monthlyBudgetMicros: 1000 };
  const planId: string = (await client.post("/v1/plans", { name: "of before", ...budget })).json.id;
  const { id } = (await client.post("/v1/tenants", { name: "of before", planId })).json;
  const theirs = client.withKey((await client.post("/v1/apikeys", { tenantId: id })).json.key);
  const source = { type: "image", reference: "local/busybox" };
  const machine: string = (await theirs.post("/v1/machines", { source })).json.id;
  const [longAgo, now] = ["2020-01-01T00:00:00Z", new Date().toISOString()];
  const monthStart = new Date(monthUpTo(Date.now()).from).toISOString();
  await db.execute(sql`
    INSERT INTO rates (id, plan_id, active_from, cpu_hour_micros, memory_gb_hour_micros, created_at)
    VALUES (${`rate-${"0".repeat(32)}`}, ${planId}, ${longAgo}, 1000000000, 0, ${longAgo})`);
  await db.execute(sql`
    INSERT INTO machine_runs (boot_id, machine_id, node_id, tenant_id, cpus, memory_mb, started_at, ended_at, end_cause, recorded_at)
    VALUES ('boot-of-before', ${machine}, 'node-x', ${id}, 2000000000, 1, ${monthStart}, ${now}, 'stop', now())`);
  // At the very start of a month so much is not used yet.
  const isLarge = Date.parse(now) - Date.parse(monthStart) > 60_000;
  const month = monthStart.slice(0, 7);
  for (const path of [
    ...[
      "/v1/account",
      "/v1/usage",
      `/v1/machines/${machine}/usage`,
      "/v1/billing/ledger",
      `/v1/billing/invoices/${month}/intervals`,
    ],
    ...["/v1/billing/invoices", `/v1/billing/invoices/${month}`, `/v1/billing/invoices/${month}/costs`],
  ]) {
    const answer = await theirs.get(path);
    assert.ok(
      answer.status === 200 ||
        (answer.status === 409 && answer.text.startsWith("an amount in the answer is too large")),
      `${path}: ${answer.text}`,
    );
    if (path === "/v1/account" && isLarge) assert.equal(answer.status, 409);
  }
  const refused = await theirs.post("/v1/machines", { source });
  assert.equal(refused.status, 402, refused.text);
  // Answers about many tenants have the others' amounts.
  const meters = await client.get("/v1/billing/meters");
  const costs = new Map(
    (meters.json as { tenantId: string; cost: object | null }[]).map((row) => [row.tenantId, row.cost]),
  );
  assert.equal(meters.status, 200, meters.text);
  assert.ok([...costs].every(([tenantId, cost]) => tenantId === id || cost !== null));
  if (isLarge) assert.equal(costs.get(id), null);
  const diff = await client.get(`/v1/billing/plans/${planId}/diff?month=${month}&rateCpuHourMicros=0`);
  assert.equal(diff.status, 200, diff.text);
  if (isLarge)
    assert.deepEqual(diff.json.tenants, [{ tenantId: id, micros: null, plannedMicros: 0, differenceMicros: null }]);
  const path = `/v1/plans/${planId}`;
  assert.equal((await client.patch(path, { name: "of before the bound" })).status, 200);
  assert.equal((await client.patch(path, { maxTotalCpus: 1_000_000 })).status, 422, "larger totals");
  assert.equal((await client.patch(path, { maxTotalCpus: 1 })).status, 200);
  const rate = {
    rateCpuHourMicros: 1_000_000_000,
    rateMemoryGbHourMicros: 0,
    activeFrom: new Date(Date.now() + 120_000).toISOString(),
  };
  assert.equal((await client.post(`${path}/rates`, rate)).status, 201, "a price that fits the lower totals");
  assert.equal(
    (await client.patch(path, { maxTotalCpus: 1_000 })).status,
    422,
    "totals that do not fit the price that was raised",
  );
});
