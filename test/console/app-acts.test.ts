/**
 * What is done with an app in the console, against a real server with the fake driver: a deploy with its dry
 * run, a canary that waits to be promoted, a roll back, and what is lost when it is destroyed.
 */
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { openConsole } from "../support/console.ts";
import { startFlotilla } from "../support/flotilla.ts";
import { until } from "../support/until.ts";

const flotilla = await startFlotilla({ nodes: 2, driver: "fake" });
after(() => flotilla[Symbol.asyncDispose]());
const client = flotilla.client();

const untilStatus = (name: string, status: string): Promise<unknown> =>
  until(async () => (await client.get(`/v1/apps/${name}`)).json.status === status, { what: `${name} to be ${status}` });

test("an app is deployed after a dry run, and again with a canary, which is promoted and rolled back", async () => {
  await using opened = await openConsole(flotilla);
  const { page } = opened;
  await page.getByRole("link", { name: "Apps" }).click();
  await page.getByRole("button", { name: "Deploy app" }).click();
  await page.getByLabel("Name").fill("Not A Label");
  await page.getByLabel("Image").fill("nginx");
  await page.getByRole("button", { name: "Dry run" }).click();
  await page.locator("#content .field .fault").first().waitFor();
  opened.check(/400/);
  await page.getByLabel("Name").fill("site");
  await page.getByText("Strategy, environment, domain and more").click();
  await page.getByLabel("Environment", { exact: true }).fill("MODE=one");
  await page.getByRole("button", { name: "Dry run" }).click();
  await page.getByRole("heading", { name: "What would happen" }).waitFor();
  assert.equal((await client.get("/v1/apps/site")).status, 404, "a dry run changes nothing");
  await page.getByRole("button", { name: "Deploy", exact: true }).click();
  await page.getByRole("heading", { name: "site", level: 1 }).waitFor();
  await page.getByText("release 1 100 %").waitFor();
  await untilStatus("site", "running");
  // Again, with what the present release has.
  await page.getByRole("button", { name: "Deploy", exact: true }).click();
  await page.getByText("Strategy, environment, domain and more").click();
  assert.equal(await page.getByLabel("Environment", { exact: true }).inputValue(), "MODE=one");
  await page.getByLabel("Environment", { exact: true }).fill("MODE=two");
  await page.getByLabel("How instances are replaced").selectOption("canary");
  await page.getByLabel("Replace the others only when someone promotes it").check();
  await page.getByText("canaries get 33 %").waitFor();
  await page.getByRole("button", { name: "Deploy", exact: true }).click();
  await page.getByText("awaits promotion").first().waitFor();
  await page.getByText("release 2 33 %").waitFor();
  await page.getByRole("link", { name: "Overview", exact: true }).click();
  await page.getByText("waits to be promoted").waitFor();
  await page.getByRole("link", { name: "site", exact: true }).first().click();
  await page.getByRole("button", { name: "Promote" }).click();
  await page.getByText("release 2 100 %").waitFor();
  await untilStatus("site", "running");
  await page.getByRole("tab", { name: "Releases" }).click();
  await page.getByRole("button", { name: "Roll back to it" }).click();
  await page.getByText("is lost").waitFor();
  await page.getByRole("button", { name: "Roll back", exact: true }).click();
  await page.getByText("3: nginx").waitFor();
  opened.check(/404/);
});

test("an app is scaled and destroyed, and the form says what is lost", async () => {
  await client.post("/v1/apps", { name: "small", image: "nginx", replicas: 2, memoryMb: 256, port: 80 });
  await untilStatus("small", "running");
  await using opened = await openConsole(flotilla);
  const { page } = opened;
  await opened.open("apps/small");
  await page.getByRole("button", { name: "Scale" }).click();
  await page.getByLabel("Instances").fill("1");
  await page.getByText("what they have written to their disks is lost").waitFor();
  await page.getByRole("dialog").getByRole("button", { name: "Scale" }).click();
  await page.getByText("1 of 1 instances").waitFor();
  await page.getByRole("button", { name: "More for small" }).click();
  await page.getByRole("menuitem", { name: "Destroy" }).click();
  await page.getByText("are lost, with all releases").waitFor();
  await page.getByRole("button", { name: "Destroy", exact: true }).click();
  await page.getByRole("heading", { name: "Apps", level: 1 }).waitFor();
  await until(async () => (await client.get("/v1/apps/small")).status === 404, { what: "the app to be gone" });
  opened.check(/404/);
});
