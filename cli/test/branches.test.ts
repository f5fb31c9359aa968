/**
 * `flotilla machine diff` and `flotilla machine adopt`, against a real server and scripted guests.
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

interface Shown {
  readonly change: string;
  readonly path: string;
  readonly before: { readonly size: number } | null;
  readonly after: { readonly size: number } | null;
}

async function branchOf(name: string): Promise<readonly [source: string, branch: string]> {
  const { id } = await branchSource(client, { name });
  const made = await client.post(`/v1/machines/${id}/branches`, { name: `${name}-try` });
  assert.equal(made.status, 201, made.text);
  return [id, made.json.id];
}

const put = async (id: string, path: string, raw: string): Promise<void> =>
  assert.equal((await client.call("PUT", `/v1/machines/${id}/files${path}`, { raw })).status, 204);

test("diff shows the files that differ between a machine and its branch", async (t) => {
  const [source, branch] = await branchOf("web");
  assert.deepEqual((await flotilla(t, "diff", "web", "web-try")).errors, "no file differs\n");
  for (const [path, content] of Object.entries({ same: "x", other: "one", old: "12" }))
    await put(source, `/workspace/${path}`, content);
  for (const [path, content] of Object.entries({ same: "x", other: "three", "deep/new": "123" }))
    await put(branch, `/workspace/${path}`, content);
  await put(branch, "/tmp/scratch", "x");
  const shown = await flotilla(t, "diff", "web", "web-try", "--json");
  assert.equal(shown.code, 0, shown.errors);
  const found = (JSON.parse(shown.output.toString()) as readonly Shown[]).map(({ change, path, before, after }) => [
    ...[change, path, before?.size ?? null, after?.size ?? null],
  ]);
  const directory = found.find(([, path]) => path === "/workspace/deep");
  assert.equal(directory?.[0], "added");
  assert.deepEqual(
    found.filter((one) => one !== directory),
    [
      ["added", "/workspace/deep/new", null, 3],
      ["removed", "/workspace/old", 2, null],
      ["changed", "/workspace/other", 3, 5],
    ],
  );
  const text = (await flotilla(t, "diff", "web", branch, "/workspace/")).output.toString();
  assert.match(text, /^~ +3 B → 5 B +\/workspace\/other$/m);
  assert.match(text, /^\+ +.* +\/workspace\/deep\/$/m);
  assert.match((await flotilla(t, "diff", "web", "web-try", "/tmp")).output.toString(), /^\+ +1 B +\/tmp\/scratch$/m);
});

test("diff refuses what says nothing, and starts no machine", async (t) => {
  const [source] = await branchOf("shop");
  const fails = async (argv: readonly string[], text: RegExp, code = 1): Promise<void> => {
    const ran = await flotilla(t, "diff", ...argv);
    assert.deepEqual([ran.code, ran.output.toString()], [code, ""]);
    assert.match(ran.errors, text);
  };
  await branchSource(client, { name: "stranger" });
  await fails(["shop", "stranger"], /shop and stranger are not branches of one machine/);
  await fails(["shop", "shop-try", "etc"], /etc is not an absolute path/, 2);
  await fails(["shop", "shop-try", "/none"], /\/none is not a directory in either machine/);
  await client.post(`/v1/machines/${source}/stop`);
  await fails(["shop", "shop-try"], /machine shop does not run/);
  assert.equal((await client.get(`/v1/machines/${source}`)).json.state, "stopped");
});

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
