/**
 * Ten thousand machines in one list, and a key that is revoked while its pages are open.
 */
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { openConsole, startBrowser } from "../support/console.ts";
import { makeMany } from "../support/console-fleet.ts";
import { startFlotilla } from "../support/flotilla.ts";

const MANY = 10_000;

const flotilla = await startFlotilla();
after(() => flotilla[Symbol.asyncDispose]());
await makeMany(flotilla, MANY);
const browser = await startBrowser();
after(() => browser.close());

test("ten thousand machines are sorted and filtered, and those that are chosen deleted, with few rows in the page", async () => {
  await using opened = await openConsole(flotilla, { browser });
  const { page } = opened;
  await opened.visit("machines");
  await page.getByText("10,000 machines", { exact: true }).waitFor();
  const rows = page.getByRole("region", { name: "Machines" }).locator("tbody tr[data-row]");
  assert.ok((await rows.count()) < 100);
  await page.getByRole("button", { name: "Name", exact: true }).click();
  await rows.first().getByRole("link", { name: "many-0", exact: true }).waitFor();
  await page.getByLabel("Filter").fill("batch=b7 team=core");
  const fitting = Array.from({ length: MANY }, (_, at) => at).filter((at) => at > 0 && at % 20 === 7 && at % 3 === 1);
  await page.getByText(`${fitting.length} of ${MANY}`).waitFor();
  await page.getByLabel("Filter").fill("many-777");
  await page.getByText(`11 of ${MANY}`).waitFor();
  await page.getByLabel("Select all").check();
  await page.getByRole("button", { name: "Delete", exact: true }).click();
  await page.getByText("Their disks with all files").waitFor();
  await page.getByText("and 1 more").waitFor();
  await page.getByRole("button", { name: "Delete 11 machines" }).click();
  await page.getByText("No machine fits the filter").waitFor();
  await page.getByLabel("Filter").fill("");
  await page.getByText("9,989 machines", { exact: true }).waitFor();
  opened.check();
});

test("a key that is revoked ends its page's terminal and stream, and leads to the sign-in", async () => {
  const { json } = await flotilla.client().post("/v1/apikeys", { scopes: ["machine:read", "machine:exec"] });
  const { id } = await flotilla.create({ name: "typed-in" });
  await flotilla.start(id);
  await using opened = await openConsole(flotilla, { browser, key: json.key });
  const { page } = opened;
  const socket = page.waitForEvent("websocket");
  await opened.visit(`machines/${id}/terminal`);
  await page.getByText("Connected to typed-in").waitFor();
  const ended = (await socket).waitForEvent("close");
  await flotilla.client().delete(`/v1/apikeys/${json.id}`);
  await ended;
  await page.getByLabel("API key").waitFor();
  opened.check(/401/);
});
