/**
 * Ten thousand machines in one list, and a browser whose network is cut or whose key is revoked.
 */
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { openBrowser, openConsole, startBrowser } from "../support/console.ts";
import { makeMany } from "../support/console-fleet.ts";
import { startFlotilla } from "../support/flotilla.ts";
import { startTcpProxy } from "../support/tcp-proxy.ts";

/** With room below the ceiling of the default plan. */
const MANY = 9_900;

const flotilla = await startFlotilla();
after(() => flotilla[Symbol.asyncDispose]());
await makeMany(flotilla, MANY);
const browser = await startBrowser();
after(() => browser.close());

test("ten thousand machines are sorted and filtered, and those that are chosen deleted, with few rows in the page", async () => {
  await using opened = await openConsole(flotilla, { browser });
  const { page } = opened;
  await opened.visit("machines");
  await page.getByText("9,900 machines", { exact: true }).waitFor();
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
  await page.getByText("9,889 machines", { exact: true }).waitFor();
  opened.check();
});

test("a page whose network is cut says so, and shows what has changed once it is back", async () => {
  await using proxy = await startTcpProxy(() => Number(new URL(flotilla.urls[0] ?? "").port));
  await using opened = await openBrowser(`http://127.0.0.1:${proxy.port}`, { browser });
  const { page, context } = opened;
  const link = (await flotilla.client().post("/v1/console/links")).json as { readonly path: string };
  await page.goto(opened.url + link.path);
  await opened.untilRead();
  await page.getByRole("link", { name: "Machines" }).click();
  await page.getByLabel("Filter").fill("while-cut");
  await page.getByText("Live", { exact: true }).waitFor();
  await context.setOffline(true);
  proxy.cut();
  await page.getByText("Connecting", { exact: true }).waitFor();
  await flotilla.create({ name: "while-cut" });
  await context.setOffline(false);
  await page.getByText("Live", { exact: true }).waitFor();
  await page.getByRole("link", { name: "while-cut" }).waitFor();
  opened.check(/ERR_/);
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
