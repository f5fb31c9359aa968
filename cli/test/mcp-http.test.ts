/**
 * `flotilla mcp --listen`: the protocol over HTTP, with each caller's own key, in both eras.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { type IncomingMessage, request } from "node:http";
import { test } from "node:test";
import { text } from "node:stream/consumers";
import { until } from "../../test/support/until.ts";
import { connectMcp, ERAS, type Era } from "./mcp-client.ts";
import { listening, newKey } from "./mcp-listening.ts";
import { startCli } from "./run-cli.ts";
import { makeDirectory, startUp } from "./run-up.ts";

const image = "local/busybox";

/** A raw request, with headers that `fetch` would not send. */
async function raw(url: string, headers: Record<string, string>, body = "{}", method = "POST") {
  const sent = request(url, { method, headers: { "content-type": "application/json", ...headers } });
  sent.end(method === "GET" ? undefined : body);
  const [answer] = (await once(sent, "response")) as [IncomingMessage];
  return { status: answer.statusCode, headers: answer.headers, body: await text(answer) };
}

test("over HTTP", async (t) => {
  const up = await startUp(t, makeDirectory(t));
  const key = up.environment["FLOTILLA_API_KEY"] ?? "";
  const { url } = await listening(t, up);
  const accept = "application/json, text/event-stream";
  const authorization = `Bearer ${key}`;

  for (const era of Object.keys(ERAS) as Era[]) {
    await t.test(`a machine is made, used and deleted in the ${era} era, and its end is asked for`, async (t) => {
      const mcp = await connectMcp(t, era, { url, key });
      const machine = `http-${era}`;
      const made = await mcp.call("create_machine", { image, name: machine });
      assert.equal(made.isError, false, made.said);
      const ran = await mcp.call("run_command", { machine, command: "echo out; exit 3" });
      assert.deepEqual([ran.facts["exitCode"], ran.facts["stdout"]], [3, "out\n"]);
      assert.match((await mcp.call("delete_machine", { machine })).said, /^deleted mach-/);
      assert.equal(mcp.questions.length, 1);
    });
  }

  await t.test("without a valid key nothing is answered but 401, whatever the body", async () => {
    for (const headers of [{}, { authorization: "Bearer smk_wrong" }, { authorization: "Basic x" }]) {
      const answer = await raw(url, { accept, ...headers }, "not json");
      assert.deepEqual([answer.status, answer.headers["www-authenticate"]], [401, "Bearer"]);
    }
  });

  await t.test("another Host and another Origin are refused, its own are not", async () => {
    const { host } = new URL(url);
    const bad = [
      { host: "evil.example" },

      { host, origin: "http://evil.example" },
      { host, origin: "null" },
    ];
    for (const headers of bad) {
      const { status } = await raw(url, { accept, authorization, ...headers });
      assert.equal(status, 403, JSON.stringify(headers));
    }
    const ping = JSON.stringify({ jsonrpc: "2.0", id: 1, method: "ping" });
    for (const headers of [{ host }, { host: "localhost:1", origin: "http://localhost:3000" }]) {
      const { status, body } = await raw(url, { accept, authorization, ...headers }, ping);
      assert.equal(status, 400, body);
      assert.match(body, /initialize/);
    }
  });

  await t.test("broken and oversized bodies, other paths and unknown sessions are refused", async () => {
    assert.equal((await raw(url, { accept, authorization }, "{")).status, 400);
    assert.equal((await raw(url.replace("/mcp", "/other"), { accept, authorization })).status, 404);
    const list = JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/list" });
    const unknown = await raw(url, { accept, authorization, "mcp-session-id": "none" }, list);
    assert.equal(unknown.status, 404);
    const length = String(64 * 1024 * 1024);
    const large = request(url, { method: "POST", headers: { accept, authorization, "content-length": length } });
    large.on("error", () => undefined);
    large.flushHeaders();
    const [answer] = (await once(large, "response")) as [IncomingMessage];
    assert.equal(answer.statusCode, 413);
    large.destroy();
  });

  await t.test("a session is its key's alone, and a key that ended ends its access", async (t) => {
    const [mine, other] = [await newKey(up, "machine:read"), await newKey(up, "machine:read")];
    const mcp = await connectMcp(t, "older", { url, key: mine });
    assert.equal((await mcp.call("list_machines")).isError, false);
    const session = (mcp.client.transport as { sessionId?: string }).sessionId ?? "";
    const list = JSON.stringify({ jsonrpc: "2.0", id: 9, method: "tools/list" });
    const stolen = await raw(url, { accept, authorization: `Bearer ${other}`, "mcp-session-id": session }, list);
    assert.equal(stolen.status, 404);
    const keys = JSON.parse(String((await up.cli("key", "ls", "--json")).output)) as { id: string; scopes: string[] }[];
    for (const { id, scopes } of keys) if (scopes.join() === "machine:read") await up.cli("key", "rm", id);
    const isOver = async () =>
      (await raw(url, { accept, authorization: `Bearer ${mine}`, "mcp-session-id": session }, list)).status === 401;
    await until(isOver, { what: "the end of the key", deadlineMs: 20_000 });
  });

  await t.test("a restarted server is reached again, and sessions of the older era begin again", async (t) => {
    const first = await listening(t, up);
    const mcp = await connectMcp(t, "newer", { url: first.url, key });
    assert.equal((await mcp.call("list_machines")).isError, false);
    const { port } = new URL(first.url);
    await first.stop();
    await assert.rejects(mcp.call("list_machines"));
    await listening(t, up, "--listen", `127.0.0.1:${port}`);
    assert.equal((await mcp.call("list_machines")).isError, false);
  });
});

test("an address that cannot be one is a usage error", async (t) => {
  for (const at of ["8090", "127.0.0.1:", "127.0.0.1:70000", "http://127.0.0.1:1"]) {
    const { code, errors } = await startCli(t, ["mcp", "--listen", at]).ran;
    assert.deepEqual([code, /is not ADDRESS:PORT/.test(errors)], [2, true], errors);
  }
});
