/**
 * `flotilla machine adopt`, against a real server and scripted guests.
 */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { branchSource } from "../../server/test/support/branches.ts";
import { startTestNode, TEST_JOIN_TOKEN } from "../../server/test/support/node.ts";
import { startTestServer } from "../../server/test/support/server.ts";
import { runCli } from "./run-cli.ts";

const server = await startTestServer({ joinToken: TEST_JOIN_TOKEN });
await startTestNode(server);
const { client } = server;
const environment = { FLOTILLA_URL: server.url, FLOTILLA_API_KEY: server.adminKey.key };
const flotilla = (t: TestContext, ...argv: string[]) => runCli(t, ["machine", ...argv], { environment });

async function branchOf(name: string): Promise<readonly [source: string, branch: string]> {
  const { id } = await branchSource(client, { name });
  const made = await client.post(`/v1/machines/${id}/branches`, { name: `${name}-try` });
  assert.equal(made.status, 201, made.text);
  return [id, made.json.id];
}

test("adopt prints the name that the branch has, and says what became of its source", async (t) => {
  await branchOf("one");
  const kept = await flotilla(t, "adopt", "one-try", "--keep-source");
  assert.deepEqual([kept.output.toString(), kept.errors], ["one\n", "its source is kept, and its name is one-was\n"]);
  const [source, branch] = await branchOf("two");
  const adopted = await flotilla(t, "adopt", branch);
  assert.deepEqual([adopted.output.toString(), adopted.errors], ["two\n", "its source was deleted\n"]);
  assert.equal((await client.get(`/v1/machines/${source}`)).status, 404);
  const refused = await flotilla(t, "adopt", "one-was");
  assert.match(refused.errors, /is not a branch of another machine/);
});
