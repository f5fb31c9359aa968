/**
 * Another node joins the Flotilla of this host, which was started without any setting for that, and a node
 * that cannot join says why.
 */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { rmSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { portToReturnTo } from "../../test/support/flotilla.ts";
import { until } from "../../test/support/until.ts";
import { type DataDirectory, makeDirectory, ROOT, type RunningUp, START_MS, startUp } from "./run-up.ts";
import { startCli } from "./run-cli.ts";

/** Starts `flotilla node`; returns what it says. */
function startNode(t: TestContext, directory: DataDirectory, url: string, token: string): () => string {
  const environment = {
    FLOTILLA_DRIVER: "fake",
    FLOTILLA_URL: url,
    FLOTILLA_JOIN_TOKEN: token,
    FLOTILLA_DATA_DIR: directory.path,
    FLOTILLA_NODE_ID: "second",
  };
  const { child, ran } = startCli(t, ["node"], { environment });
  directory.stops.push(() => {
    child.kill("SIGTERM");
    return ran;
  });
  let said = "";
  child.stderr?.on("data", (chunk: Buffer) => (said += chunk));
  return () => said;
}

async function makeToken(
  up: RunningUp,
): Promise<{ readonly token: string; readonly nodeAddresses: readonly string[] }> {
  const made = await up.cli("token", "create", "--json");
  assert.equal(made.code, 0, made.errors);
  return JSON.parse(String(made.output)) as Awaited<ReturnType<typeof makeToken>>;
}

test("a node of this host joins a Flotilla that was started without a setting for it", async (t) => {
  const directory = makeDirectory(t);
  const up = await startUp(t, directory);
  const { token, nodeAddresses } = await makeToken(up);
  assert.match(nodeAddresses.join(" "), /^127\.0\.0\.1:\d+$/, "no other host can connect");
  const said = startNode(t, makeDirectory(t), `https://${nodeAddresses[0]}`, token);
  const nodes = async (): Promise<string> => String((await up.cli("node", "ls")).output);
  await until(async () => /^second .*ready/m.test(await nodes()), { what: "the second node", deadlineMs: START_MS });
  assert.match(said(), /"this node has joined"/);
});

test("a node that cannot join says why and what to do, and a terminal shows it as a sentence", async (t) => {
  const directory = makeDirectory(t);
  const port = await portToReturnTo();
  const said = startNode(t, directory, `https://127.0.0.1:${port}`, "join_000000000000_x");
  await until(() => said().includes("has not joined yet"), { what: "the reason", deadlineMs: START_MS });
  const line =
    said()
      .split("\n")
      .find((each) => each.includes("has not joined yet")) ?? "";
  const { level, reason, remedy } = JSON.parse(line) as Readonly<Record<string, string>>;
  assert.equal(level, "warn");
  assert.match(reason ?? "", /ECONNREFUSED/);
  assert.match(remedy ?? "", /--node-listen.*`flotilla token create`/);

  const other = makeDirectory(t);
  const child = spawn("script", ["-qec", "./flotilla node", "/dev/null"], {
    cwd: ROOT,
    env: {
      ...process.env,
      FLOTILLA_DRIVER: "fake",
      FLOTILLA_URL: `https://127.0.0.1:${port}`,
      FLOTILLA_JOIN_TOKEN: "join_000000000000_x",
      FLOTILLA_DATA_DIR: other.path,
    },
    stdio: ["pipe", "pipe", "inherit"],
  });
  let shown = "";
  child.stdout.on("data", (chunk: Buffer) => (shown += chunk));
  const ended = new Promise((resolve) => {
    child.once("close", resolve);
  });
  other.stops.push(() => {
    child.stdin.write("\x03");
    return ended;
  });
  await until(() => shown.includes("has not joined yet"), { what: "the reason", deadlineMs: START_MS });
  assert.match(shown, /^\d\d:\d\d:\d\d warn: this node has not joined yet; trying again: .*ECONNREFUSED.*; no server/m);
});

test("a port for nodes that is in use keeps Flotilla from nothing else, and is said", async (t) => {
  // A program on the port that `up` would take beside its own.
  const taken = createServer();
  t.after(() => taken.close());
  const listen = async (): Promise<number> => {
    const port = await portToReturnTo();
    const { promise, resolve } = Promise.withResolvers<Error | null>();
    taken.once("error", resolve).listen({ host: "127.0.0.1", port: port + 363 }, () => resolve(null));
    return (await promise) === null ? port : await listen();
  };
  const port = await listen();
  const up = await startUp(t, makeDirectory(t), undefined, { FLOTILLA_LISTEN: `127.0.0.1:${port}` });
  assert.ok(up.said().includes(`127.0.0.1:${port + 363} is in use by another program, so no other node can join`));
  assert.deepEqual((await makeToken(up)).nodeAddresses, []);
});

test("a Flotilla that lost its secrets.key starts, and lets no other node join", async (t) => {
  const directory = makeDirectory(t);
  const up = await startUp(t, directory);
  up.signal("SIGTERM");
  await up.ran;
  rmSync(join(directory.path, "secrets.key"));
  const again = await startUp(t, directory);
  assert.match(again.said(), /lacks the secrets\.key of its database, so no other node can connect/);
  const refused = await again.cli("token", "create");
  assert.equal(refused.code, 1);
  assert.match(refused.errors, /secrets\.key/);
});
