/**
 * `npm run console:demo`: it prints links that sign in, and leaves nothing.
 */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { openBrowser } from "../support/console.ts";
import { until } from "../support/until.ts";

const START_MS = 60_000;

test("the demo prints links for an operator and a tenant's owner, and removes its data when it ends", async (t) => {
  const directory = await mkdtemp(join(tmpdir(), "flotilla-demo-"));
  t.after(() => rm(directory, { recursive: true, force: true }));
  const argv = [join(import.meta.dirname, "demo.ts"), "--hostile", "--machines", "30"];
  const demo = spawn(process.execPath, argv, {
    env: { ...process.env, TMPDIR: directory },
    stdio: ["ignore", "pipe", "inherit"],
  });
  const ended = once(demo, "exit");
  t.after(() => demo.kill("SIGKILL"));
  let said = "";
  demo.stdout.on("data", (chunk: Buffer) => (said += chunk.toString()));
  const link = (who: string): string | undefined => new RegExp(`as ${who} +(http\\S+)`).exec(said)?.[1];
  const operator = new URL(await until(() => link("the operator"), { what: "a link", deadlineMs: START_MS }));
  const owner = new URL(await until(() => link("a tenant's owner")));
  await using opened = await openBrowser(operator.origin);
  for (const [who, { href }] of [
    ["default", operator],
    ["Northwind", owner],
  ] as const) {
    // Another address than that of an open page, of which only the fragment would change.
    await opened.page.goto("about:blank");
    await opened.page.goto(href);
    await opened.page.getByTitle(/^key /).getByText(who).waitFor();
  }
  opened.check();
  demo.kill("SIGINT");
  assert.deepEqual(await ended, [0, null], said);
  assert.deepEqual(await readdir(directory), []);
});
