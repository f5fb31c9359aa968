/**
 * What operators do in the console, against a real server with the fake driver: a drain with its plan and its
 * progress, maintenance, the line that joins a node, plans and prices, tenants and credit, and invoices.
 */
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { openConsole } from "../support/console.ts";
import { startFlotilla } from "../support/flotilla.ts";
import { until } from "../support/until.ts";

const flotilla = await startFlotilla({ nodes: 2, driver: "fake" });
after(() => flotilla[Symbol.asyncDispose]());
const client = flotilla.client();

test("a node is drained after its plan was shown, its state changes by itself, and it is opened again", async () => {
  const made = await client.post("/v1/machines", {
    name: "leaves",
    source: { type: "image", reference: "alpine" },
    resources: { cpus: 1, memoryMb: 256, diskGb: 1 },
  });
  await flotilla.start(made.json.id);
  const from = (await client.get(`/v1/machines/${made.json.id}`)).json.nodeId as string;
  await using opened = await openConsole(flotilla);
  const { page } = opened;
  await page.getByRole("link", { name: "Nodes" }).click();
  await page.getByRole("link", { name: from }).click();
  await page.getByRole("button", { name: "Drain" }).click();
  await page.getByText("1 machine would move").waitFor();
  await page.getByRole("button", { name: "Drain it" }).click();
  await page.getByText("drained", { exact: true }).waitFor();
  await until(async () => (await client.get(`/v1/machines/${made.json.id}`)).json.nodeId !== from, {
    what: "the machine to have moved",
  });
  await page.getByRole("button", { name: "Open it again" }).click();
  await page.getByText("ready", { exact: true }).waitFor();
  // Another operator's change is seen without a reload.
  await client.post(`/v1/nodes/${from}/cordon`);
  await page.getByRole("button", { name: "Uncordon" }).click();
  await page.getByRole("button", { name: "Cordon" }).waitFor();
  await page.getByRole("button", { name: `More for ${from}` }).click();
  await page.getByRole("menuitem", { name: "Expect it to be away (maintenance)" }).click();
  await page.getByRole("button", { name: "End the maintenance" }).click();
  await page.getByRole("button", { name: "Cordon" }).waitFor();
  opened.check();
});

test("the line that joins a node is made once, and is of one use", async () => {
  await using opened = await openConsole(flotilla);
  const { page } = opened;
  await opened.open("nodes");
  await page.getByRole("button", { name: "Join another node" }).click();
  await page.getByRole("button", { name: "Make a line" }).click();
  await page.getByText("FLOTILLA_JOIN_TOKEN=").waitFor();
  const [token] = (await client.get("/v1/tokens")).json;
  assert.deepEqual([token.maxUses, token.uses], [1, 0]);
  opened.check();
});

test("a plan is made and changed", async () => {
  await using opened = await openConsole(flotilla);
  const { page } = opened;
  await page.getByRole("link", { name: "Tenants and plans" }).click();
  await page.getByRole("button", { name: "Create plan" }).click();
  await page.getByLabel("Name").fill("small");
  await page.getByLabel("Budget of a month").fill("19.99");
  await page.getByRole("button", { name: "Create", exact: true }).click();
  await page.getByRole("link", { name: "small" }).click();
  await page.getByText("19.99", { exact: true }).waitFor();
  await page.getByRole("button", { name: "Change" }).click();
  await page.getByLabel("When it is used, Flotilla").selectOption("stop");
  await page.getByRole("dialog").getByRole("button", { name: "Change" }).click();
  await page.locator("dd", { hasText: "stops machines" }).waitFor();
  const plan = (await client.get("/v1/plans")).json.find(({ name }: { name: string }) => name === "small");
  assert.deepEqual([plan.budgetPolicy, plan.monthlyBudgetMicros], ["stop", 19_990_000]);
  opened.check();
});
