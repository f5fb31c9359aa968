/**
 * The story of the first minute: from a one-time link to typing in a terminal of a real machine.
 */
import { test } from "node:test";
import { openConsole } from "../support/console.ts";
import { startFlotilla } from "../support/flotilla.ts";

const START_MS = 120_000;

test("three clicks after the link, a command runs in a terminal of a real machine", async () => {
  await using flotilla = await startFlotilla({ nodes: 1, driver: "qemu" });
  await using opened = await openConsole(flotilla);
  const { page } = opened;
  await page.getByRole("button", { name: "Create machine" }).click();
  await page.getByRole("button", { name: "local/busybox", exact: true }).click();
  await page.getByRole("button", { name: "Create", exact: true }).click();
  await page.getByText("Connected to").waitFor({ timeout: START_MS });
  await page.keyboard.type("echo $((6 * 7)) of $(uname -s)\n");
  await page.getByText("42 of Linux").first().waitFor();
  await page.getByRole("tab", { name: "Files" }).click();
  await page.getByRole("button", { name: "etc", exact: true }).click();
  await page.getByRole("tab", { name: "Timeline" }).click();
  await page.getByText("machine started").first().waitFor();
  opened.check();
});
