/**
 * What is done with one machine in the console, against a real server with the fake driver: its branches and
 * checkpoints, its placement and a move, its share link, another one like it, and its packages.
 */
import assert from "node:assert/strict";
import { after, test } from "node:test";
import type { Page } from "playwright-core";
import { openConsole } from "../support/console.ts";
import { startFlotilla } from "../support/flotilla.ts";

const flotilla = await startFlotilla({ nodes: 2, driver: "fake" });
after(() => flotilla[Symbol.asyncDispose]());
const client = flotilla.client();

async function machine(name: string, more: object = {}): Promise<string> {
  const made = await client.post("/v1/machines", { name, source: { type: "image", reference: "alpine" }, ...more });
  assert.equal(made.status, 201, made.text);
  return made.json.id as string;
}

async function more(page: Page, name: string, entry: string): Promise<void> {
  await page.getByRole("button", { name: `More for ${name}` }).click();
  await page.getByRole("menuitem", { name: entry }).click();
}

test("a machine is branched, the tree shows it, and the branch takes the place of its source", async () => {
  const id = await machine("trunk", { branchable: true, resources: { cpus: 1, memoryMb: 256, diskGb: 1 } });
  await flotilla.start(id);
  await using opened = await openConsole(flotilla);
  const { page } = opened;
  await opened.open(`machines/${id}`);
  await more(page, "trunk", "Branch");
  await page.getByLabel("Name").fill("trunk");
  await page.getByRole("button", { name: "Branch", exact: true }).click();
  await page.getByText(/name.*trunk.*(taken|exists|has)|trunk.*(taken|exists|has)/).waitFor();
  await page.getByLabel("Name").fill("twig");
  await page.getByRole("button", { name: "Branch", exact: true }).click();
  await page.getByRole("heading", { name: "twig" }).waitFor();
  opened.check(/409/);
  await page.getByRole("tab", { name: "Branches" }).click();
  await page.getByRole("link", { name: "trunk" }).waitFor();
  await page.getByRole("button", { name: "Take its source's place" }).click();
  await page.getByRole("button", { name: "Adopt", exact: true }).click();
  await page.getByRole("heading", { name: "trunk", level: 1 }).waitFor();
  assert.notEqual((await client.get("/v1/machines?name=trunk")).json[0]?.id, id);
  opened.check();
});

test("a checkpoint is kept, a machine is made from it, and it is deleted", async () => {
  const id = await machine("kept");
  await flotilla.start(id);
  await client.post(`/v1/machines/${id}/stop`);
  await using opened = await openConsole(flotilla);
  const { page } = opened;
  await opened.open(`machines/${id}/branches`);
  await page.getByText("No checkpoint is kept").waitFor();
  await page.getByRole("button", { name: "Keep one" }).click();
  await page.getByLabel("Its name").fill("then");
  await page.getByRole("button", { name: "Keep", exact: true }).click();
  await page.getByRole("button", { name: "Restore then" }).click();
  await page.getByLabel("Stopped, with the disk alone").check();
  await page.getByLabel("Name").fill("as-then");
  await page.getByRole("dialog").getByRole("button", { name: "Restore" }).click();
  await page.getByRole("heading", { name: "as-then" }).waitFor();
  await opened.open(`machines/${id}/branches`);
  await page.getByRole("button", { name: "Delete checkpoint then" }).click();
  await page.getByText("The files and the memory of that instant are lost").waitFor();
  await page.getByRole("button", { name: "Delete", exact: true }).click();
  await page.getByText("No checkpoint is kept").waitFor();
  assert.deepEqual((await client.get("/v1/checkpoints")).json, []);
  opened.check();
});

test("the placement says which node fits, and a move to the other is watched in the task panel", async () => {
  const id = await machine("moving", { resources: { cpus: 1, memoryMb: 256, diskGb: 1 } });
  await flotilla.start(id);
  await client.post(`/v1/machines/${id}/stop`);
  const from = (await client.get(`/v1/machines/${id}`)).json.nodeId as string;
  const to = from === "node-0" ? "node-1" : "node-0";
  await using opened = await openConsole(flotilla);
  const { page } = opened;
  await opened.open(`machines/${id}/placement`);
  await page.getByRole("heading", { name: `It is on ${from}` }).waitFor();
  await page.getByRole("button", { name: "Move it" }).click();
  await page.getByLabel("To", { exact: true }).selectOption(to);
  await page.getByRole("button", { name: "Move", exact: true }).click();
  await page.getByRole("heading", { name: `It is on ${to}` }).waitFor();
  await page.getByRole("button", { name: /^Tasks/ }).click();
  // Its end comes by the stream: nothing else reads the operation again.
  await page.getByRole("listitem").filter({ hasText: "machine move moving" }).getByText("succeeded").waitFor();
  opened.check();
});

test("another machine is made like one, with its environment, which is edited before", async () => {
  const id = await machine("model", { env: { A: "1" }, labels: { team: "core" }, command: ["sleep", "1"] });
  await using opened = await openConsole(flotilla);
  const { page } = opened;
  await opened.open(`machines/${id}`);
  await more(page, "model", "Make another like it");
  await page.getByText("Ports, environment, network and more").click();
  await page.getByLabel("Environment").fill("A=2\nB=3");
  await page.getByLabel("Start it, and open a terminal").uncheck();
  await page.getByRole("button", { name: "Create" }).click();
  await page.getByRole("heading", { name: "model-copy" }).waitFor();
  const [made] = (await client.get("/v1/machines?name=model-copy")).json;
  assert.deepEqual([made.env, made.labels, made.command], [{ A: "2", B: "3" }, { team: "core" }, ["sleep", "1"]]);
  opened.check();
});

test("what a drain does to a machine is changed, and its share link is made and ended", async () => {
  const id = await machine("shared", { ports: [{ port: 80 }] });
  await using opened = await openConsole(flotilla);
  const { page } = opened;
  await opened.open(`machines/${id}`);
  await more(page, "shared", "Change");
  await page.getByLabel("A move or a drain while it runs").selectOption("stop");
  await page.getByLabel(/It ends after/).fill("2");
  await page.getByText("Its disk with all its files is lost then.").waitFor();
  await page.getByLabel("Labels").fill("team=core");
  await page.getByRole("button", { name: "Change", exact: true }).click();
  await page.getByText("2 h 0 min after it was created").waitFor();
  assert.equal((await client.get(`/v1/machines/${id}`)).json.disruption, "stop");
  assert.deepEqual((await client.get(`/v1/machines/${id}`)).json.labels, { team: "core" });
  await more(page, "shared", "Share link");
  await page.getByRole("button", { name: "Make a link" }).click();
  await page
    .getByText(/token=|\/s\//)
    .or(page.getByRole("button", { name: "Make a new link" }))
    .first()
    .waitFor();
  await page.getByRole("button", { name: "End sharing" }).click();
  await page.getByRole("dialog").waitFor({ state: "detached" });
  opened.check();
});
