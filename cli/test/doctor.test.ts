/**
 * `flotilla doctor` on this machine, whatever its state: the form of its output, and that its exit code
 * follows from it.
 *
 * The checks themselves are tested in node/.
 */
import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { reply, replyJson, startPeer } from "../../sdk/test/peer.ts";
import { runCli, temporaryHome } from "./run-cli.ts";

interface Check {
  readonly name: string;
  readonly status: string;
  readonly value: string;
  readonly meaning: string;
}

test("every check says its result and what that means; a bad one ends with 1", async (t) => {
  const home = temporaryHome(t);
  const environment = { HOME: home, FLOTILLA_DRIVER: "fake", FLOTILLA_URL: "http://127.0.0.1:2" };
  const { code, output, errors } = await runCli(t, ["doctor", "--json"], { environment });
  assert.notEqual(output.length, 0, errors);
  const checks = JSON.parse(String(output)) as Check[];
  assert.ok(checks.length > 5, errors);
  for (const check of checks) {
    assert.deepEqual(
      Object.values(check).map((value) => typeof value),
      Array(4).fill("string"),
      check.name,
    );
    assert.ok(["ok", "warn", "bad"].includes(check.status), `${check.name}: ${check.status}`);
  }
  assert.equal(code, checks.some((check) => check.status === "bad") ? 1 : 0);
  const server = checks.find((check) => check.name === "server");
  assert.equal(server?.status, "warn", "a server that does not run yet is not a fault");
});

test("a damaged file of a login is one bad check among those of this machine", async (t) => {
  const home = temporaryHome(t);
  const file = join(home, ".config", "flotilla", "config.json");
  mkdirSync(dirname(file), { recursive: true });
  for (const content of ["{", '{"version":2,"servers":[]}']) {
    writeFileSync(file, content);
    const { code, output, errors } = await runCli(t, ["doctor"], { environment: { HOME: home } });
    assert.deepEqual([code, errors], [1, ""]);
    assert.match(String(output), /^\w+ +disk /m);
    assert.match(String(output).replace(/\s+/g, " "), /bad server \S+config\.json holds no address and key remove it/);
  }
});

test("a server without its database is not taken for a wrong key", async (t) => {
  const health = { clusterId: "c", version: "0.1.0", nodesTotal: 1, nodesReady: 1 };
  const peer = await startPeer(t, (arrived, answer) =>
    arrived.url === "/health"
      ? replyJson(health)(arrived, answer)
      : replyJson({ code: "unavailable", error: "the database does not answer now" }, 503)(arrived, answer),
  );
  const environment = { HOME: temporaryHome(t), FLOTILLA_URL: peer.url, FLOTILLA_API_KEY: "smk_x" };
  const { code, output } = await runCli(t, ["doctor"], { environment });
  assert.equal(code, 1);
  assert.match(String(output), /^bad {3}server +0\.1\.0 at \S+\n +not ready: the database does not answer now$/m);
  assert.match(String(output), /^bad {3}key +not checked: the database does not answer now\n +see the server's log$/m);
});

test("a server without a node and a key that it does not know are bad", async (t) => {
  const health = { clusterId: "c", version: "0.1.0", nodesTotal: 1, nodesReady: 0 };
  const peer = await startPeer(t, (arrived, answer) =>
    arrived.url === "/health" || arrived.url === "/readyz"
      ? replyJson(health)(arrived, answer)
      : replyJson({ code: "unknown_key", error: "unknown API key" }, 401)(arrived, answer),
  );
  const environment = { HOME: temporaryHome(t), FLOTILLA_URL: peer.url, FLOTILLA_API_KEY: "smk_x" };
  const cache = join(environment.HOME, "elsewhere");
  mkdirSync(join(cache, "images", "busybox"), { recursive: true });
  const { code, output } = await runCli(t, ["doctor", "--cache-dir", cache], { environment });
  assert.equal(code, 1);
  const text = String(output);
  assert.match(text, /^ok {4}image local\/busybox +present$/m);
  assert.match(text, /^ok {4}server +0\.1\.0 at http/m);
  assert.match(text, /^bad {3}key +unknown API key\n +from FLOTILLA_API_KEY/m);
  assert.match(text, /^bad {3}nodes +0 of 1 ready$/m);
  assert.match(text, /\d+ of \d+ checks are bad: Flotilla does not work on this machine/);
});

test("with --fleet every finding of the server is shown, and one that needs action ends with 1", async (t) => {
  const finding = (severity: string, subject: object, message: string, action = "") => ({
    ...{ code: "node_ready", severity, subject, message, action },
    data: {},
  });
  const fine = finding("ok", { kind: "node", id: "near" }, "ready, 1 image");
  const authority = finding("warn", { kind: "authority", id: "f".repeat(64) }, "replaced, still trusted", "remove it");
  const fleet = finding("bad", { kind: "fleet", id: null }, "NOTHING IS REPLACED of 2 nodes", "look first");
  let findings = [fine, authority];
  let lack = "";
  const peer = await startPeer(t, (arrived, answer) => {
    if (lack !== "" && arrived.url === "/readyz")
      return reply(503, lack, { "x-error-code": "unavailable" })(arrived, answer);
    const answers: Readonly<Record<string, unknown>> = {
      "/v1/nodes/findings": findings,
      "/v1/loops": { serverId: "server-1", host: "one", loops: [] },
    };
    return replyJson(answers[arrived.url ?? ""] ?? { version: "0.1.0" })(arrived, answer);
  });
  const environment = { HOME: temporaryHome(t), FLOTILLA_URL: peer.url, FLOTILLA_API_KEY: "smk_x" };
  const doctor = (...argv: readonly string[]) => runCli(t, ["doctor", "--fleet", ...argv], { environment });
  const calm = await doctor();
  assert.equal(calm.code, 0);
  assert.match(String(calm.output), /^ok {4}node near +ready, 1 image$/m);
  assert.match(String(calm.output), /^warn {2}authority f{12} +replaced, still trusted\n +remove it$/m);
  assert.match(String(calm.output), /^Nothing is bad; 1 of 4 checks deserve a look\.$/m);
  findings = [fine, fleet];
  const alarm = await doctor();
  assert.equal(alarm.code, 1);
  assert.match(String(alarm.output), /^bad {3}fleet +NOTHING IS REPLACED of 2 nodes\n +look first$/m);
  assert.match(String(alarm.output), /^1 of 4 checks is bad: the text below each says what to do\.$/m);
  lack = "the server's disk is full";
  const [server] = JSON.parse(String((await doctor("--json")).output)) as Check[];
  assert.deepEqual([server?.status, server?.meaning], ["bad", `not ready: ${lack}`]);
});
