/**
 * Ends in the middle of an assistant's calls: of its key, of the machine and of the server. Each is a result
 * that says so, and the next call is answered.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { until } from "../../test/support/until.ts";
import { startFlotilla } from "../../test/support/flotilla.ts";
import { connectMcp, type McpCaller } from "./mcp-client.ts";

const image = "local/busybox";
const LONG = { deadlineMs: 60_000 };

test("what ends in the middle", async (t) => {
  await using flotilla = await startFlotilla();
  const client = flotilla.client();
  const url = flotilla.urls[0] ?? "";

  const made = (await client.post("/v1/apikeys", { scopes: ["*"] })).json as { id: string; key: string };
  const environment = { FLOTILLA_URL: url, FLOTILLA_API_KEY: made.key };

  /** Begins a command, and returns its call once it has said so in a file. */
  async function begun(mcp: McpCaller, machine: string, mark: string) {
    const running = mcp.call("run_command", { machine, command: `echo x > /${mark}; sleep 600` });
    running.catch(() => undefined);
    const exists = async (): Promise<boolean> => !(await mcp.call("read_file", { machine, path: `/${mark}` })).isError;
    await until(exists, { what: "the command", ...LONG });
    return { running };
  }

  for (const era of ["older", "newer"] as const) {
    await t.test(`a machine that is deleted ends the call with a result, in the ${era} era`, async (t) => {
      const mcp = await connectMcp(t, era, { environment, argv: ["--no-confirm"] });
      await mcp.call("create_machine", { image, name: `ends-${era}` });
      const { running } = await begun(mcp, `ends-${era}`, "begun");
      assert.equal((await mcp.call("delete_machine", { machine: `ends-${era}` })).isError, false);
      const ended = await running;
      assert.equal(ended.isError, true, ended.said);
      assert.equal((await mcp.call("list_machines")).isError, false);
    });
  }

  await t.test("bytes that are not UTF-8, NUL and 5 MB arrive in both eras", async (t) => {
    for (const era of ["older", "newer"] as const) {
      const mcp = await connectMcp(t, era, { environment, argv: ["--no-confirm"] });
      await mcp.call("create_machine", { image, name: `bytes-${era}` });
      const machine = `bytes-${era}`;
      const content = Buffer.from([97, 0, 255, 195, 122]).toString("base64");
      await mcp.call("write_file", { machine, path: "/odd", content, encoding: "base64" });
      const odd = await mcp.call("run_command", { machine, command: ["cat", "/odd"] });
      assert.equal(odd.facts["stdout"], "a\0\ufffd\ufffdz");
      const large = await mcp.call("run_command", { machine, command: ["head", "-c", "5000000", "/dev/zero"] });
      assert.deepEqual([large.facts["stdoutBytes"], large.facts["exitCode"]], [5_000_000, 0]);
      const path = String(large.facts["stdoutPath"]);
      const end = await mcp.call("read_file", { machine, path, offset: 4_999_999, limit: 100 });
      assert.equal(end.said, `base64:${Buffer.alloc(1).toString("base64")}`);
      assert.equal((await mcp.call("delete_machine", { machine })).isError, false);
    }
  });

  await t.test("a server that is restarted under it is reached again", async (t) => {
    const mcp = await connectMcp(t, "newer", { environment, argv: ["--no-confirm"] });
    await mcp.call("create_machine", { image, name: "stays" });
    const { running } = await begun(mcp, "stays", "restart");
    await flotilla.servers[0]?.kill();
    const lost = await running;
    assert.deepEqual([lost.isError, lost.said.startsWith("unreachable: ")], [true, true], lost.said);
    const refused = await mcp.call("start_machine", { machine: "stays" });
    assert.equal(refused.isError, true);
    await flotilla.servers[0]?.start();
    const isBack = async (): Promise<boolean> => !(await mcp.call("list_machines")).isError;
    await until(isBack, { what: "the server", ...LONG });
    const again = await mcp.call("run_command", { machine: "stays", command: "echo back" });
    assert.equal(again.facts["stdout"], "back\n", again.said);
  });

  await t.test("a key that is revoked ends the call, and is refused after that", async (t) => {
    const mcp = await connectMcp(t, "newer", { environment, argv: ["--no-confirm"] });
    const { running } = await begun(mcp, "stays", "revoked");
    assert.equal((await client.delete(`/v1/apikeys/${made.id}`)).status, 204);
    const ended = await running;
    assert.equal(ended.isError, true, ended.said);
    const refused = await mcp.call("list_machines");
    assert.match(refused.said, /^unknown_key: /);
  });
});
