/**
 * `flotilla app` against a real server and scripted guests: what a person sees from the first deploy to the
 * last instance, and what each refusal says.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { type IncomingMessage, type OutgoingHttpHeaders, request } from "node:http";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { httpGuest } from "../../server/test/support/guest.ts";
import { startTestNode, TEST_JOIN_TOKEN } from "../../server/test/support/node.ts";
import { startTestServer } from "../../server/test/support/server.ts";
import { until } from "../../test/support/until.ts";
import { type Ran, runCli, startCli, temporaryHome } from "./run-cli.ts";

const server = await startTestServer({ joinToken: TEST_JOIN_TOKEN });
await startTestNode(server);
const environment = { FLOTILLA_URL: server.url, FLOTILLA_API_KEY: server.adminKey.key };
const guest = await httpGuest((_, response) => response.end("ok"));
const IMAGE = "local/busybox";
const PORTS = `FAKE_PORTS=8080=${guest.port}`;
/** A port on which nothing listens. */
const CLOSED = "FAKE_PORTS=8080=1";

const app = (t: TestContext, ...argv: readonly string[]): Promise<Ran> => runCli(t, ["app", ...argv], { environment });

async function accepted(t: TestContext, ...argv: readonly string[]): Promise<string> {
  const { code, output, errors } = await app(t, ...argv);
  assert.equal(code, 0, errors);
  return output.toString();
}

test("an app is deployed, shown, changed, rolled back and removed", async (t) => {
  const plan = await accepted(t, "deploy", "web", IMAGE, "--env", PORTS, "--dry-run");
  assert.match(plan, /^ 1\. /m);
  assert.match(await accepted(t, "deploy", "web", IMAGE, "--env", PORTS), /^http:\/\/web\.localhost:\d+\/\n$/);
  assert.match(await accepted(t, "ls"), /^web +running +1 of 1 +1 +local\/busybox +http/m);
  assert.match(await accepted(t, "show", "web"), /web: running, 1 of 1 serving\n.*\n1 +inst-\w+ +\S+ +healthy +yes/);

  await accepted(t, "scale", "web", "3");
  assert.match(await accepted(t, "ls"), /3 of 3/);
  const watched = await app(t, "deploy", "web", IMAGE, "--env", PORTS, "--env", "A=1", "--watch");
  assert.equal(watched.code, 0, watched.errors);
  assert.match(watched.errors, /^web: deploying, 3 of 3 serving; release 2 replaces release 1 \(rolling\)/m);
  await accepted(t, "rollback", "web");
  assert.equal(JSON.parse(await accepted(t, "redeploy", "web", "--json")).release, 4);
  const releases = await accepted(t, "releases", "web");
  assert.match(releases, /^4 .*succeeded, serves/m);
  assert.match(releases, /^1 .*succeeded: release 1 serves/m);
  assert.match(await accepted(t, "explain", "web"), /^web is running\n[^]*inst-\w+: release 4, running, healthy/);
  await accepted(t, "scale", "web", "0");
  assert.match(await accepted(t, "ls"), /web +stopped +0 of 0/);
  assert.equal(await accepted(t, "rm", "web"), "web\n");
  assert.doesNotMatch(await accepted(t, "ls"), /web/);
});

test("a release that never serves is rolled back, and the command fails with the reason", async (t) => {
  await accepted(t, "deploy", "bad", IMAGE, "--env", PORTS);
  const failed = await app(t, "deploy", "bad", IMAGE, "--env", CLOSED, "--health-deadline", "1s");
  assert.equal(failed.code, 1);
  assert.match(failed.errors, /error: release 2 was rolled back: .*\n +`flotilla app explain bad` says why/);
  assert.match(await accepted(t, "show", "bad"), /1 +inst-\w+ +\S+ +healthy +yes/);
  await accepted(t, "rm", "bad");
});

test("canaries wait for a promotion, which the command names", async (t) => {
  await accepted(t, "deploy", "birds", IMAGE, "--env", PORTS, "--replicas", "2");
  const waits = ["deploy", "birds", IMAGE, "--env", PORTS, "--env", "A=1", "--wait-for-promote"];
  const canaries = await app(t, ...waits);
  assert.equal(canaries.code, 0, canaries.errors);
  assert.match(canaries.errors, /`flotilla app promote birds` replaces the others/);
  assert.match(await accepted(t, "ls"), /birds +awaitingPromotion/);
  await accepted(t, "promote", "birds");
  assert.match(await accepted(t, "ls"), /birds +running +2 of 2 +2 /);
  await accepted(t, "rm", "birds");
});

test("a file holds what a deploy has, and what is wrong with it is named", async (t) => {
  const home = temporaryHome(t);
  const file = join(home, "flotilla.json");
  const env = [{ key: "FAKE_PORTS", value: `8080=${guest.port}` }];
  writeFileSync(file, JSON.stringify({ name: "filed", image: IMAGE, env }));
  await accepted(t, "deploy", "-f", file, "--detach");
  await accepted(t, "rm", "filed");
  for (const [text, refusal] of [
    ["{", /flotilla\.json is not JSON/],
    ["[]", /holds no JSON object/],
    ["{}", /no name/],
    [JSON.stringify({ name: "filed", image: IMAGE, replicas: -1 }), /--replicas/],
    [JSON.stringify({ name: "filed", image: IMAGE, health: { type: "ping" } }), /health type must be one of http/],
  ] as const) {
    writeFileSync(file, text);
    const { code, errors } = await app(t, "deploy", "-f", file);
    assert.notEqual(code, 0);
    assert.match(errors, refusal);
  }
  const missing = await app(t, "show", "nothing");
  assert.equal(missing.code, 1);
  assert.match(missing.errors, /error: app nothing was not found/);
  assert.match((await app(t, "scale", "nothing", "many")).errors, /not a number of instances/);
});

test("a private app is opened by its share link until that ends", async (t) => {
  await accepted(t, "deploy", "closed", IMAGE, "--env", PORTS, "--private");
  const { hostname, port } = new URL(server.url);
  const status = async (path: string, headers: OutgoingHttpHeaders = {}): Promise<number | undefined> => {
    const asked = request({ hostname, port, path, headers: { host: "closed.localhost", ...headers }, agent: false });
    asked.end();
    const [answer] = (await once(asked, "response")) as [IncomingMessage];
    answer.resume();
    return answer.statusCode;
  };
  assert.equal(await status("/"), 401);
  const url = new URL((await accepted(t, "share", "closed")).trim());
  assert.equal(url.hostname, "closed.localhost");
  const token = url.searchParams.get("t") ?? "";
  assert.equal(await status(url.pathname + url.search), 302);
  assert.equal(await status("/", { cookie: `flotilla_share=${token}` }), 200);
  const second = JSON.parse(await accepted(t, "share", "closed", "--json")) as { token: string };
  assert.equal(await status("/", { cookie: `flotilla_share=${token}` }), 401, "a new link ends the one before");
  assert.equal(await accepted(t, "unshare", "closed"), "closed\n");
  assert.equal(await accepted(t, "unshare", "closed"), "closed\n", "also when there is none");
  assert.equal(await status("/", { cookie: `flotilla_share=${second.token}` }), 401);
  assert.match((await app(t, "share", "nothing")).errors, /error: app nothing was not found/);
  await accepted(t, "rm", "closed");
});

test("the events of an app are found by its name, and by its id once it is destroyed", async (t) => {
  const events = (...argv: readonly string[]): Promise<Ran> => runCli(t, ["events", ...argv], { environment });
  await accepted(t, "deploy", "past", IMAGE, "--env", PORTS);
  await accepted(t, "deploy", "beside", IMAGE, "--env", PORTS, "--beside", "past");
  const idOf = async (name: string): Promise<string> => JSON.parse(await accepted(t, "show", name, "--json")).id;
  const [id, other] = [await idOf("past"), await idOf("beside")];
  const said = String((await events("--app", "past")).output);
  assert.match(said, new RegExp(`${id} +release 1 was rolled out`));
  assert.doesNotMatch(said, new RegExp(other));
  await accepted(t, "rm", "past");
  const missing = await events("--app", "past");
  assert.equal(missing.code, 1);
  assert.match(missing.errors, /there is no app called "past"\n.*by its id/);
  assert.match(String((await events("--app", id)).output), /app destroyed/);
  await accepted(t, "rm", "beside");
});

test("a log is followed over a rollout, each line with its instance", async (t) => {
  const command = ["deploy", "talks", "local/speaks", "--env", PORTS];
  await accepted(t, ...command);
  const following = startCli(t, ["app", "logs", "talks", "--follow"], { environment });
  let printed = "";
  following.child.stdout?.on("data", (chunk: Buffer) => {
    printed += chunk.toString();
  });
  const writers = (): ReadonlySet<string> => new Set(printed.match(/^\[inst-\w+\]/gm));
  await until(() => writers().size === 1, { what: "a line of the first instance" });
  await accepted(t, ...command, "--env", "A=1");
  await until(() => writers().size === 2, { what: "a line of the second instance" });
  await accepted(t, "rm", "talks");
  assert.equal((await following.ran).code, 0);
});
