/**
 * The console's terminal in a real machine: a large paste, a network that breaks, a page that is loaded
 * again, and a page that only watches.
 */
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";
import { openBrowser } from "../support/console.ts";
import { startFlotilla } from "../support/flotilla.ts";
import { startTcpProxy } from "../support/tcp-proxy.ts";

const START_MS = 120_000;
const LINES = 16_384;

test("a paste of 1 MB arrives whole, output survives a cut network and a loaded page, and a watcher only watches", async () => {
  await using flotilla = await startFlotilla({ nodes: 1, driver: "qemu" });
  const client = flotilla.client();
  const { json } = await client.post("/v1/machines", { source: { type: "image", reference: "local/busybox" } });
  const id = String(json.id);
  assert.equal((await client.post(`/v1/machines/${id}/start`)).status, 200);
  await using proxy = await startTcpProxy(() => Number(new URL(flotilla.urls[0] ?? "").port));
  await using opened = await openBrowser(`http://127.0.0.1:${proxy.port}`);
  const { page } = opened;
  await page.goto(opened.url + (await client.post("/v1/console/links")).json.path);
  await page.locator("main#content").waitFor();
  await opened.open(`machines/${id}/terminal`);
  await page.getByText("Connected to").waitFor({ timeout: START_MS });
  const shows = (text: string) => page.getByText(text).first().waitFor({ timeout: START_MS });
  await page.keyboard.type("stty -echo; head -n 16384 > /tmp/pasted; stty echo; echo pasted-$((1 + 1))\n");
  const text = Array.from({ length: LINES }, (_, at) => `${String(at).padStart(6, "0")} ${"ü€x".repeat(9)}\n`).join("");
  await page.evaluate(`(() => {
    const clipboardData = new DataTransfer();
    clipboardData.setData("text/plain", ${JSON.stringify(text)});
    const paste = new ClipboardEvent("paste", { clipboardData, bubbles: true });
    document.querySelector(".xterm-helper-textarea").dispatchEvent(paste);
  })()`);
  assert.ok(Buffer.byteLength(text) > 1_000_000);
  proxy.cut();
  await shows("pasted-2");
  const { json: read } = await client.post(`/v1/machines/${id}/exec`, { command: "sha256sum /tmp/pasted" });
  assert.equal(read.stdout.slice(0, 64), createHash("sha256").update(text).digest("hex"));
  await page.keyboard.type("A=kept; seq 1 150000; echo end-$A\n");
  for (let count = 0; count < 3; count += 1) {
    await page.getByText("Connected to").waitFor({ timeout: START_MS });
    proxy.cut();
    await page.getByText("The connection was lost").waitFor();
  }
  await shows("end-kept");
  await page.reload();
  await page.getByText("Connected to").waitFor({ timeout: START_MS });
  await page.keyboard.type("echo again-$A; tty | wc -l\n");
  await shows("again-kept");
  const terminal = await page.evaluate((key) => sessionStorage.getItem(key), `terminal ${id}`);
  const watcher = await opened.context.newPage();
  await watcher.goto(`${opened.url}/console/machines/${id}/terminal?watch=${terminal}`);
  await watcher.getByText("Watching a terminal").waitFor({ timeout: START_MS });
  await watcher.getByText("again-kept").first().waitFor();
  await watcher.locator(".xterm-helper-textarea").focus();
  await watcher.keyboard.type("exit 9\n");
  await page.keyboard.type("exit 3\n");
  await watcher.getByText("The program ended with exit code 3").waitFor();
  await shows("The program ended with exit code 3");
  opened.check(/WebSocket|ERR_|Failed to load/);
});
