/**
 * The view of logs in a browser, against a real server with the fake driver: a fast log of any length, what
 * was scrolled away, search, jumps and links, a hidden page, a lost connection, hostile lines.
 */
import assert from "node:assert/strict";
import { after, test } from "node:test";
import type { Page } from "playwright-core";
import { openConsole } from "../support/console.ts";
import { startFlotilla } from "../support/flotilla.ts";
import { until } from "../support/until.ts";

const flotilla = await startFlotilla({ nodes: 1, driver: "fake" });
after(() => flotilla[Symbol.asyncDispose]());
const client = flotilla.client();
const ESC = "\u001b";

/** A machine that runs these commands. */
async function writer(commands: string): Promise<string> {
  const { id } = await flotilla.create({ command: ["sh", "-c", commands] });
  await flotilla.start(id);
  return id;
}

/** Numbers of the lines that are in the page, each of which ends with its number. */
async function shown(page: Page): Promise<readonly number[]> {
  const texts = await page.locator(".log-line").allInnerTexts();
  return texts.flatMap((text) => /(\d+)$/.exec(text.trim())?.slice(1).map(Number) ?? []).toSorted((a, b) => a - b);
}

const scroll = (page: Page, to: "start" | "end" | number) =>
  page.locator(".log-lines").evaluate((element, place) => {
    element.scrollTop = place === "start" ? 0 : place === "end" ? element.scrollHeight : element.scrollTop + place;
  }, to);

async function untilShown(page: Page, number: number): Promise<void> {
  await until(async () => (await shown(page)).includes(number), { what: `line ${number}`, deadlineMs: 60_000 });
}

test("200,000 lines at 5,000 a second are followed, scrolled back and forth, and read from the first", async () => {
  const count = 200_000;
  const id = await writer(`lines ${count} 5000 n#; sleep 100000`);
  await using opened = await openConsole(flotilla);
  const { page } = opened;
  await opened.open(`machines/${id}/logs`);
  await page.getByText("Following").waitFor();
  // A button answers meanwhile, and what was scrolled away is not pulled away.
  await page.getByLabel("Times").check();
  await until(async () => ((await shown(page)).at(-1) ?? 0) > 20_000, { what: "lines", deadlineMs: 60_000 });
  await scroll(page, -4_000);
  await page.getByText("Paused").waitFor();
  const paused = await shown(page);
  await page.getByLabel("Times").uncheck();
  assert.deepEqual((await shown(page))[0], paused[0], "it stays where it is");
  await page.getByRole("button", { name: "Follow" }).click();
  await until(async () => (await shown(page)).at(-1) === count - 1, { what: "the last line", deadlineMs: 120_000 });
  const held = await page.locator(".log-line").count();
  assert.ok(held < 200, `${held} lines are in the page`);
  // Back over more lines than are in memory, page by page, and forth again.
  const far = count - 40_000;
  await until(
    async () => {
      await scroll(page, "start");
      return ((await shown(page))[0] ?? count) < far;
    },
    { what: "earlier lines", deadlineMs: 120_000 },
  );
  let before = 0;
  await until(
    async () => {
      await scroll(page, "end");
      const last = (await shown(page)).at(-1) ?? 0;
      assert.ok(last >= before, "only forwards");
      before = last;
      return last === count - 1;
    },
    { what: "the last line again", deadlineMs: 120_000 },
  );
  await page.getByText("Following").waitFor();
  await page.getByLabel("Log", { exact: true }).focus();
  await page.keyboard.press("Home");
  await page.getByText("The log begins here.").waitFor();
  await untilShown(page, 0);
  await page.keyboard.press("End");
  await untilShown(page, count - 1);
  await page.getByText("Following").waitFor();
  opened.check();
});

test("a search finds what is not in the page, and its place is in the address", async () => {
  const id = await writer("lines 70000 0 n#; echo the Needle 70000; lines 3000 0 m#; sleep 100000");
  await using opened = await openConsole(flotilla);
  const { page } = opened;
  await opened.open(`machines/${id}/logs`);
  await untilShown(page, 2_999);
  const search = page.getByLabel("Find in the log");
  await search.fill("needle");
  await search.press("Enter");
  await page.locator("mark", { hasText: "Needle" }).waitFor();
  await search.press("Enter");
  await page.getByText("None further up").waitFor();
  const link = page.url();
  assert.match(link, /search=needle/);
  assert.match(link, /at=1/);
  await search.fill("n5");
  await search.press("Enter");
  await untilShown(page, 59_999);
  await search.press("Shift+Enter");
  await page.getByText("None further down").waitFor();
  await page.goto("about:blank");
  await page.goto(link);
  await page.locator(".chosen", { hasText: "the Needle" }).waitFor();
  await page.getByLabel("Only matches").check();
  await until(async () => (await page.locator(".log-line").count()) === 1, { what: "only the match" });
  opened.check();
});

test("a jump to a time shows that time, a removed line of a link says so", async () => {
  const id = await writer("lines 100 100 n#; sleep 100000");
  await using opened = await openConsole(flotilla);
  const { page } = opened;
  await opened.open(`machines/${id}/logs`);
  await untilShown(page, 99);
  await page.getByLabel("Time to jump to").fill("2020-01-01T00:00:00");
  await page.getByRole("button", { name: "Jump" }).click();
  await page.getByText("The log begins here.").waitFor();
  await untilShown(page, 0);
  await page.getByText("Paused").waitFor();
  await opened.open(`machines/${id}/logs?at=1:7`);
  await page.getByText("The line of this link was removed").waitFor();
  opened.check();
});

test("a page that was hidden and a connection that was lost continue without losing or repeating a line", async () => {
  const id = await writer("lines 30000 2000 n#; sleep 100000");
  await using opened = await openConsole(flotilla);
  const { page, context } = opened;
  await opened.open(`machines/${id}/logs`);
  await until(async () => ((await shown(page)).at(-1) ?? 0) > 2_000, { what: "lines", deadlineMs: 60_000 });
  await context.setOffline(true);
  await flotilla.servers[0]?.kill();
  await page.getByText("Waiting for the connection").waitFor();
  await flotilla.startServer();
  await context.setOffline(false);
  await untilShown(page, 29_999);
  // All lines, in their order.
  const seen = new Set<number>();
  await until(
    async () => {
      for (const number of await shown(page)) seen.add(number);
      await scroll(page, -500);
      return seen.size > 2_000;
    },
    { what: "earlier lines", deadlineMs: 60_000 },
  );
  const numbers = [...seen].toSorted((a, b) => a - b);
  assert.deepEqual(
    numbers,
    numbers.map((_, at) => 29_999 - numbers.length + 1 + at),
  );
  opened.check(/ERR_|Failed to load resource|WebSocket/);
});

test("hostile lines are text: nothing runs, breaks a line or turns its direction", async () => {
  const markup = `<img src=x onerror=document.title=1><script>document.title=1</script>`;
  const lines = [
    markup,
    `${ESC}[31mred${ESC}[0m plain`,
    "10 %\r50 %\rdone 100 %",
    `right \u202eto left`,
    `${ESC}]0;title\u0007after ${ESC}[2J${ESC}[H cleared`,
    "x".repeat(12_000),
  ];
  const id = await writer(
    `head -c 1000000 /dev/zero; echo; ${lines.map((line) => `echo '${line}'`).join("; ")}; sleep 100000`,
  );
  await using opened = await openConsole(flotilla, { width: 390 });
  const { page } = opened;
  await opened.open(`machines/${id}/logs`);
  const seen = () => page.locator(".log-line").allInnerTexts();
  await until(async () => (await seen()).includes("done 100 %"), { what: "the last lines", deadlineMs: 30_000 });
  assert.ok((await seen()).includes(markup));
  await page.locator(".ansi-1", { hasText: "red" }).waitFor();
  await page.getByText("right \ufffdto left").waitFor();
  await page.getByText("after  cleared").waitFor();
  assert.doesNotMatch(await page.title(), /^1$/);
  await page
    .getByRole("button", { name: /show all/ })
    .first()
    .click();
  await page.getByLabel("Wrap").check();
  const wide = await page.evaluate("document.documentElement.scrollWidth > innerWidth");
  assert.equal(wide, false, "the page is not wider than the phone");
  assert.deepEqual(await opened.violations(), []);
  opened.check();
});

test("a progress bar that never ends its line is seen as it is now", async () => {
  const id = await writer("echo begun; echo -n '10 %\r20 %\r3'; sleep 2; echo -n '0 %\r40 %\r5'; sleep 100000");
  await using opened = await openConsole(flotilla);
  const { page } = opened;
  await opened.open(`machines/${id}/logs`);
  await page.getByText("40 %", { exact: true }).waitFor();
  assert.equal(await page.locator(".log-line").count(), 2, "earlier states are overwritten");
  opened.check();
});

test("all of a log is downloaded as a file", async () => {
  const id = await writer("lines 30000 0 n#; sleep 100000");
  await using opened = await openConsole(flotilla);
  const { page } = opened;
  await opened.open(`machines/${id}/logs`);
  await untilShown(page, 29_999);
  const [download] = await Promise.all([
    page.waitForEvent("download"),
    page.getByRole("link", { name: "Download all" }).click(),
  ]);
  const chunks: Buffer[] = [];
  for await (const chunk of await download.createReadStream()) chunks.push(chunk as Buffer);
  assert.equal(Buffer.concat(chunks).toString().split("\n").length, 30_001);
  opened.check();
});

test("the log of an app has the lines of its instances, and jumps to a deploy", async () => {
  const env = [{ key: "FAKE_IMAGE", value: "an instance speaks 7" }];
  const app = { name: "spoken", image: "local/speaks", replicas: 2, memoryMb: 256, port: 80, env };
  assert.equal((await client.post("/v1/apps", app)).status < 300, true);
  await using opened = await openConsole(flotilla);
  const { page } = opened;
  await opened.open("apps/spoken/logs");
  await until(async () => (await page.getByText("an instance speaks 7").count()) === 2, { what: "both lines" });
  await page.getByLabel("Jump to deploy").selectOption({ index: 1 });
  await page.getByText("Paused").waitFor();
  await page.getByText("an instance speaks 7").first().waitFor();
  await page.getByRole("button", { name: "Follow" }).click();
  await page.getByText("Following").waitFor();
  opened.check();
});
