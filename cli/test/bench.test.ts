/**
 * `flotilla bench` against a real server with machines of the fake driver: what it prints, and that no
 * machine is left.
 */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { until } from "../../test/support/until.ts";
import { runCli, startCli } from "./run-cli.ts";
import { makeDirectory, startUp } from "./run-up.ts";

const IMAGE = "local/busybox";

interface Printed {
  readonly results: readonly {
    readonly mode: string;
    readonly iterations: readonly { readonly ttiMs: number; readonly error?: string }[];
    readonly successCount: number;
  }[];
}

test("bench measures, prints its results in each form, and removes what it made", async (t) => {
  const up = await startUp(t, makeDirectory(t));
  const left = async () => String((await up.cli("machine", "ls")).output);

  const table = await up.cli("bench", "--count", "2");
  assert.equal(table.code, 0, table.errors);
  for (const row of [/^create, start, first exec answered +2 /m, /^exec `true` +10 /m, /^2 creates at once +2 /m])
    assert.match(String(table.output), row);
  assert.equal(await left(), "");

  for (const mode of ["sequential", "staggered", "burst"]) {
    const ran = await up.cli("bench", "--create", mode, "--count", "2", "--stagger", "1", "--json");
    assert.equal(ran.code, 0, ran.errors);
    const [result] = (JSON.parse(String(ran.output)) as Printed).results;
    assert.deepEqual([result?.mode, result?.successCount, result?.iterations.length], [mode, 2, 2]);
    assert.ok(result?.iterations.every(({ ttiMs, error }) => ttiMs > 0 && error === undefined));
    assert.equal(await left(), "");
  }

  const bad = await up.cli("bench", "--create", "burst", "--count", "2", "--image", "missing/image");
  assert.equal(bad.code, 1);
  assert.match(bad.errors, /^error: .*missing\/image/);
  assert.equal(await left(), "");
});

test("bench over ComputeSDK's provider writes a file for each mode in its benchmark's form", async (t) => {
  const up = await startUp(t, makeDirectory(t));
  const left = async () => String((await up.cli("machine", "ls")).output);
  const folder = join(up.dataDirectory, "results");
  const run = (...argv: string[]) => up.cli("bench", "--computesdk", folder, "--count", "2", "--stagger", "1", ...argv);

  const ran = await run("--command", "true", "--json");
  assert.equal(ran.code, 0, ran.errors);
  const printed = JSON.parse(String(ran.output)) as readonly { readonly file: string; readonly mode: string }[];
  assert.deepEqual(
    printed.map(({ mode }) => mode),
    ["sequential", "staggered", "concurrent"],
  );
  for (const [index, mode] of ["sequential", "staggered", "burst"].entries()) {
    const file = join(folder, `${mode}_tti/latest.json`);
    assert.equal(readFileSync(file, "utf8"), readFileSync(printed[index]?.file ?? "", "utf8"));
    const written = JSON.parse(readFileSync(file, "utf8")) as Printed & { readonly config: object };
    assert.deepEqual(written.config, { ...{ iterations: 2, timeoutMs: 120_000 }, command: "true", image: IMAGE });
    assert.ok(written.results[0]?.iterations.every(({ ttiMs }) => ttiMs > 0));
  }
  assert.equal(await left(), "");

  const without = await run("--create", "burst");
  assert.equal(without.code, 1);
  assert.match(without.errors, /^error: `node -v` ended with \d+[^]*--command/);
  assert.equal(await left(), "");
});

test("bench stopped with Ctrl-C removes what it made and ends with 130", async (t) => {
  const up = await startUp(t, makeDirectory(t));
  const key = readFileSync(join(up.dataDirectory, "admin.key"), "utf8").trim();
  const environment = { FLOTILLA_URL: up.url, FLOTILLA_API_KEY: key };
  const list = async () => String((await runCli(t, ["machine", "ls"], { environment })).output);
  const common = ["--create", "staggered", "--count", "300", "--stagger", "100"];
  const over = ["--computesdk", up.dataDirectory, "--command", "true"];
  for (const argv of [
    ["bench", ...common],
    ["bench", ...common, ...over],
  ]) {
    const { child, ran } = startCli(t, argv, { environment });
    await until(async () => (await list()).includes("local/busybox"), { what: "a first machine", deadlineMs: 30_000 });
    child.kill("SIGINT");
    const { code, errors } = await ran;
    assert.equal(code, 130, errors);
    assert.equal(errors, "stopping: removing the machines that were made\n");
    assert.equal(await list(), "");
  }
});
