/**
 * The console's pages in a browser, against a real server with the fake driver.
 */
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { until } from "../support/until.ts";
import { openBrowser, openConsole } from "../support/console.ts";
import { startFlotilla } from "../support/flotilla.ts";

const flotilla = await startFlotilla({ nodes: 1, driver: "fake" });
after(() => flotilla[Symbol.asyncDispose]());
const client = flotilla.client();

async function machine(name: string, more: object = {}): Promise<string> {
  const made = await client.post("/v1/machines", { name, source: { type: "image", reference: "alpine" }, ...more });
  assert.equal(made.status, 201, made.text);
  return made.json.id as string;
}

test("a link signs in once; a key signs in; signing out ends both", async () => {
  const path = (await client.post("/v1/console/links")).json.path as string;
  await using opened = await openBrowser(flotilla.urls[0] ?? "");
  const { page } = opened;
  await page.goto(opened.url + path);
  await page.getByRole("heading", { name: "Overview" }).waitFor();
  assert.equal(new URL(page.url()).hash, "");
  assert.equal(await page.evaluate("document.cookie"), "", "scripts cannot read the cookie");
  assert.equal(await page.evaluate("Object.keys(localStorage).length + Object.keys(sessionStorage).length"), 0);
  opened.check();
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByLabel("API key").waitFor();
  await page.goto("about:blank");
  await page.goto(opened.url + path);
  await page.getByText("the link has expired or was opened before").waitFor();
  await page.getByLabel("API key").fill("smk_not-a-key");
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByText("unknown API key").waitFor();
  await page.getByLabel("API key").fill(client.key ?? "");
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("heading", { name: "Overview" }).waitFor();
  opened.check(/401/);
});

test("a machine is created in the form, appears by itself when others make one, and goes when it is deleted", async () => {
  await using opened = await openConsole(flotilla);
  const { page } = opened;
  await page.getByRole("link", { name: "Machines" }).click();
  await page.getByRole("button", { name: "Create machine" }).click();
  await page.getByRole("button", { name: "Create", exact: true }).click();
  await page.getByText("name an image, such as alpine").waitFor();
  await page.getByLabel("Name").fill("-wrong");
  await page.getByText("letters, digits, - _ and . only").waitFor();
  await page.getByLabel("Name").fill("made-here");
  await page.getByLabel("Image").fill("alpine");
  await page.getByRole("button", { name: "Create", exact: true }).click();
  await page.getByRole("heading", { name: "made-here" }).waitFor();
  await page.getByText("Connected to made-here").waitFor();
  for (const name of ["Terminal", "Logs", "Files", "Timeline", "Usage"]) await page.getByRole("tab", { name }).click();
  await page.getByRole("link", { name: "Machines" }).click();
  await page.getByRole("link", { name: "made-here" }).waitFor();
  const id = await machine("made-elsewhere");
  await page.getByRole("link", { name: "made-elsewhere" }).waitFor();
  await client.delete(`/v1/machines/${id}`);
  await page.getByRole("link", { name: "made-elsewhere" }).waitFor({ state: "detached" });
  opened.check();
});

test("a name that is taken is refused at its field, and a lost machine says so", async () => {
  await using opened = await openConsole(flotilla);
  const { page } = opened;
  await machine("taken");
  await opened.open("machines/create");
  await page.getByLabel("Image").fill("alpine");
  await page.getByLabel("Name").fill("taken");
  await page.getByText("another machine has this name").waitFor();
  opened.check();
  await opened.open(`machines/mach-${"0".repeat(32)}`);
  await page.getByRole("heading", { name: "No such machine" }).waitFor();
  opened.check(/404/);
});

test("machines that are chosen are stopped and deleted together, with what is lost", async () => {
  const ids = [await machine("bulk-1"), await machine("bulk-2")];
  for (const id of ids) await flotilla.start(id);
  await using opened = await openConsole(flotilla);
  const { page } = opened;
  await opened.open("machines?q=bulk");
  for (const name of ["bulk-1", "bulk-2"]) await page.getByLabel(`Select ${name}`).check();
  await page.getByRole("button", { name: "Stop" }).click();
  for (const id of ids) await flotilla.untilState(id, "stopped");
  for (const name of ["bulk-1", "bulk-2"]) await page.getByLabel(`Select ${name}`).check();
  await page.getByRole("button", { name: "Delete", exact: true }).click();
  await page.getByText("Their disks with all files").waitFor();
  await page.getByRole("button", { name: "Delete 2 machines" }).click();
  await page.getByText("No machine fits the filter").waitFor();
  for (const id of ids) assert.equal((await client.get(`/v1/machines/${id}`)).status, 404);
  // A machine that has stopped is read again, and may be gone by then.
  opened.check(/404/);
});

test("a list of several pages is read whole, also when the page that began to read it is left", async () => {
  const count = 2_100;
  await Promise.all(
    Array.from({ length: 12 }, async (_, first) => {
      const resources = { cpus: 1, memoryMb: 128, diskGb: 1 };
      for (let at = first; at < count; at += 12) await machine(`many-${at}`, { resources });
    }),
  );
  await using opened = await openConsole(flotilla);
  const { page } = opened;
  // The overview has begun to read them.
  await page.getByRole("link", { name: "Machines" }).click();
  await page.getByLabel("Filter").fill("many-");
  await page.getByText(/^(2100 of \d+|2,100 machines)$/).waitFor();
  opened.check();
});

test("a key sees only what it may do", async () => {
  const { key } = (await client.post("/v1/apikeys", { scopes: ["machine:read"] })).json;
  const id = await machine("read-only");
  await using opened = await openConsole(flotilla, { key });
  const { page } = opened;
  for (const name of ["Nodes", "Keys", "Audit", "Tenants and plans", "Webhooks"])
    assert.equal(await page.getByRole("link", { name, exact: true }).count(), 0, name);
  await opened.open(`machines/${id}`);
  await page.getByRole("heading", { name: "read-only" }).waitFor();
  for (const name of ["Start", "Stop", "More for read-only"])
    assert.equal(await page.getByRole("button", { name, exact: true }).count(), 0, name);
  for (const name of ["Terminal", "Files"]) assert.equal(await page.getByRole("tab", { name }).count(), 0, name);
  opened.check();
});

test("a key that is revoked while its page is open leads to the sign-in", async () => {
  const made = (await client.post("/v1/apikeys", { scopes: ["machine:read"] })).json;
  await using opened = await openConsole(flotilla, { key: made.key });
  await client.delete(`/v1/apikeys/${made.id}`);
  await opened.page.getByLabel("API key").waitFor();
  opened.check(/401/);
});

test("the page continues by itself after the server was restarted", async () => {
  await using opened = await openConsole(flotilla);
  const { page } = opened;
  await opened.open("machines");
  await page.getByText("Live", { exact: true }).waitFor();
  await flotilla.servers[0]?.kill();
  await page.getByText("Connecting", { exact: true }).waitFor();
  await flotilla.startServer();
  await page.getByText("Live", { exact: true }).waitFor();
  await machine("after-restart");
  await page.getByRole("link", { name: "after-restart" }).waitFor();
});

test("hostile names, labels and environments are text", async () => {
  const hostile = `"><img src=x onerror="document.title='run'"><script>document.title='run'</script>`;
  const id = await machine("hostile", {
    env: { HOSTILE: hostile },
    labels: { hostile },
    command: ["sh", "-c", hostile],
  });
  await using opened = await openConsole(flotilla);
  const { page } = opened;
  for (const place of [
    "machines",
    `machines/${id}`,
    `machines/${id}/timeline`,
    `machines?q=${encodeURIComponent(hostile)}`,
    "events",
  ]) {
    await opened.open(place);
    await page.getByRole("heading", { level: 1 }).waitFor();
    await until(async () => (await page.locator(".loading").count()) === 0);
    assert.doesNotMatch(await page.title(), /run/, place);
    assert.equal(await page.locator("img[src=x]").count(), 0, place);
  }
  opened.check();
});

test("the palette finds a machine with keys alone", async () => {
  await machine("needle-in-hay");
  await using opened = await openConsole(flotilla);
  const { page } = opened;
  await page.keyboard.press("Control+k");
  await page.keyboard.type("needle");
  await page.getByRole("option", { name: /needle-in-hay/ }).waitFor();
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "needle-in-hay" }).waitFor();
  opened.check();
});
