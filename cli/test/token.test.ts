/**
 * `flotilla token create`: the token, and the whole line with which a node joins.
 */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { test, type TestContext } from "node:test";
import { replyJson, startPeer } from "../../sdk/test/peer.ts";
import { runCli, temporaryHome } from "./run-cli.ts";
import { ROOT } from "./run-up.ts";

const LINE = "FLOTILLA_URL=https://192.0.2.7:8443 FLOTILLA_JOIN_TOKEN=";

async function environmentOf(t: TestContext, nodeAddresses: readonly string[]) {
  const expiresAt = new Date(Date.now() + 3_600_000).toISOString();
  const peer = await startPeer(t, replyJson({ token: "join_x", expiresAt, maxUses: 1, nodeAddresses }));
  return { HOME: temporaryHome(t), FLOTILLA_URL: peer.url, FLOTILLA_API_KEY: "smk_x" };
}

/** What it says when standard output goes to a file. */
async function create(t: TestContext, nodeAddresses: readonly string[]): Promise<string> {
  const environment = await environmentOf(t, nodeAddresses);
  const { code, output, errors } = await runCli(t, ["token", "create"], { environment });
  assert.deepEqual([code, String(output)], [0, "join_x\n"]);
  assert.doesNotMatch(errors, /join_x/);
  return errors;
}

test("a token is alone on standard output, and the notes have the line with which a node joins", async (t) => {
  const errors = await create(t, ["127.0.0.1:8443", "192.0.2.7:8443", "198.51.100.7:8443"]);
  assert.match(errors, /one node can join with it within .*; on the other host, as root, after `npm run setup`:\n/);
  assert.ok(errors.includes(`\n${LINE}… ./flotilla node\n`), errors);
  assert.match(errors, /\nother addresses of the servers: 198\.51\.100\.7:8443\n$/);
});

test("a server on loopback is for a second node of this host, and one without an address for none", async (t) => {
  const errors = await create(t, ["127.0.0.1:8443"]);
  assert.match(errors, /on this host, .*:\nFLOTILLA_URL=https:\/\/127\.0\.0\.1:8443 .* --node-id second --data-dir /);
  assert.match(errors, /no other host can connect to 127\.0\.0\.1:8443: .*--node-listen 0\.0\.0\.0:8443/);
  assert.match(await create(t, []), /warning: no server listens for other nodes; .*--node-listen/);
});

test("on a terminal the line has the token in it, to be copied as a whole", async (t) => {
  const environment = { ...process.env, ...(await environmentOf(t, ["192.0.2.7:8443"])) };
  const child = spawn("script", ["-qec", "./flotilla token create", "/dev/null"], {
    cwd: ROOT,
    env: environment,
    stdio: ["ignore", "pipe", "inherit"],
  });
  const [chunks] = await Promise.all([child.stdout.toArray(), once(child, "close")]);
  const shown = Buffer.concat(chunks as Buffer[]).toString();
  assert.ok(shown.includes(`\n${LINE}join_x ./flotilla node\r\n`), shown);
  assert.equal(shown.split("join_x").length, 2, "the token is shown once");
});
