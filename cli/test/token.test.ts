/**
 * `flotilla token create`: the token alone on standard output, and what to do with it.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { replyJson, startPeer } from "../../sdk/test/peer.ts";
import { runCli, temporaryHome } from "./run-cli.ts";

test("a token names the address at which nodes join, and a warning says when there is none", async (t) => {
  const expiresAt = new Date(Date.now() + 3_600_000).toISOString();
  const create = async (nodeAddresses: readonly string[]) => {
    const peer = await startPeer(t, replyJson({ token: "join_x", expiresAt, nodeAddresses }));
    const environment = { HOME: temporaryHome(t), FLOTILLA_URL: peer.url, FLOTILLA_API_KEY: "smk_x" };
    const { code, output, errors } = await runCli(t, ["token", "create"], { environment });
    assert.deepEqual([code, String(output)], [0, "join_x\n"]);
    return errors;
  };
  const usable = await create(["192.0.2.7:8443"]);
  assert.match(usable, /FLOTILLA_URL=https:\/\/192\.0\.2\.7:8443 /);
  assert.doesNotMatch(usable, /warning/);
  assert.match(await create([]), /warning: no server listens for nodes on other hosts.*--node-listen/s);
});
