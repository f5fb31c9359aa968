/**
 * `flotilla doctor` on this machine, whatever its state: the form of its output, and that its exit code follows from
 * it.
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

test("with --fleet every node is listed, also when the authorities cannot be, and one that needs action ends with 1", async (t) => {
  const node = {
    id: "far",
    status: "unreachable",
    labels: {},
    lastHeartbeatAt: new Date(0).toISOString(),
    cordonedAt: null,
    maintenanceAt: null,
    linkVersion: 3,
    release: "0.1.0",
    lastError: null,
    clockAheadMs: 0,
    unknownMachines: [],
    certificateExpiresAt: null,
    availableMemoryMb: 8_000,
    totalMemoryMb: 16_000,
    availableDiskGb: 50,
    totalDiskGb: 100,
  };
  const answers: Readonly<Record<string, unknown>> = {
    "/health": { clusterId: "c", version: "0.1.0", nodesTotal: 2, nodesReady: 1 },
    "/readyz": {},
    "/v1/nodes": [{ ...node, id: "near", status: "ready" }, node],
    "/v1/nodes/servers": [],
    "/v1/nodes/authorities": [],
    "/v1/images": [{ reference: "local/busybox", nodeId: "near" }],
  };
  let refused = "";
  let lack = "";
  const peer = await startPeer(t, (arrived, answer) => {
    if (lack !== "" && arrived.url === "/readyz")
      return reply(503, lack, { "x-error-code": "unavailable" })(arrived, answer);
    if (refused !== "" && arrived.url === "/v1/nodes/authorities")
      return reply(503, refused, { "x-error-code": "unavailable" })(arrived, answer);
    return replyJson(answers[arrived.url ?? ""])(arrived, answer);
  });
  const environment = { HOME: temporaryHome(t), FLOTILLA_URL: peer.url, FLOTILLA_API_KEY: "smk_x" };
  const { code, output } = await runCli(t, ["doctor", "--fleet"], { environment });
  assert.equal(code, 1);
  assert.match(String(output), /^ok {4}node near +ready, 1 image, 8000 of 16000 MB and 50 of 100 GB free/m);
  assert.match(String(output), /^bad {3}node far +unreachable, last seen \d+ .* ago$/m);
  assert.match(String(output), /^1 of 3 checks is bad: the text below each says what to do\.$/m);
  refused = "the secrets of fleet authority f were encrypted with another key than this server's";
  const later = await runCli(t, ["doctor", "--fleet"], { environment });
  assert.match(String(later.output), /^bad {3}node far +unreachable/m);
  assert.match(String(later.output), /^bad {3}authorities +this server cannot list them$/m);
  assert.match(String(later.output).replace(/\s+/g, " "), new RegExp(refused));
  lack = "the server's disk is full";
  const full = await runCli(t, ["doctor", "--fleet", "--json"], { environment });
  const [server] = JSON.parse(String(full.output)) as Check[];
  assert.deepEqual([server?.status, server?.meaning], ["bad", `not ready: ${lack}`]);
});
