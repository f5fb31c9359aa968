/**
 * What callers of `flotilla mcp --listen` can hold of it: a key that takes all that it may leaves the others
 * what they need, and what is open ends with its key.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { type ClientRequest, type IncomingMessage, request } from "node:http";
import { test } from "node:test";
import { text } from "node:stream/consumers";
import { until } from "../../test/support/until.ts";
import { connectMcp, ERAS } from "./mcp-client.ts";
import { listening, newKey } from "./mcp-listening.ts";
import { makeDirectory, startUp } from "./run-up.ts";

const MIB = 1024 * 1024;
const LONG = { deadlineMs: 60_000 };
const META = {
  "io.modelcontextprotocol/protocolVersion": ERAS.newer,
  "io.modelcontextprotocol/clientCapabilities": {},
};

/** A request whose answer is not read to its end. */
async function begin(url: string, key: string, headers: Record<string, string | number>, body?: string) {
  const accept = "application/json, text/event-stream";
  const sent = request(url, {
    method: "POST",
    headers: { authorization: `Bearer ${key}`, accept, "content-type": "application/json", ...headers },
  });
  sent.on("error", () => undefined);
  if (body === undefined) sent.flushHeaders();
  else sent.end(body);
  return sent;
}

async function answerOf(sent: ClientRequest): Promise<IncomingMessage> {
  const [answer] = (await once(sent, "response")) as [IncomingMessage];
  answer.on("error", () => undefined);
  return answer;
}

const listen = (url: string, key: string, id: number): Promise<ClientRequest> => {
  const params = { notifications: { toolsListChanged: true }, _meta: META };
  const body = JSON.stringify({ jsonrpc: "2.0", id, method: "subscriptions/listen", params });
  return begin(url, key, { "mcp-protocol-version": ERAS.newer, "mcp-method": "subscriptions/listen" }, body);
};

test("what a key may hold", async (t) => {
  const up = await startUp(t, makeDirectory(t));
  const { url } = await listening(t, up);
  const [greedy, other] = [await newKey(up, "machine:read"), await newKey(up, "machine:read")];
  const mcp = await connectMcp(t, "newer", { url, key: other });
  const othersWork = async (): Promise<void> => assert.equal((await mcp.call("list_machines")).isError, false);

  await t.test("streams: 64, and another key is served", async () => {
    const open: ClientRequest[] = [];
    for (let id = 0; id < 64; id++) {
      const sent = await listen(url, greedy, id);
      open.push(sent);
      assert.equal((await answerOf(sent)).statusCode, 200);
    }
    const refused = await answerOf(await listen(url, greedy, 64));
    assert.deepEqual([refused.statusCode, refused.headers["retry-after"]], [503, "1"]);
    assert.match(await text(refused), /too many requests of this key/);
    await othersWork();
    for (const sent of open) sent.destroy();
    const isServed = async (): Promise<boolean> => {
      const sent = await listen(url, greedy, 65);
      const { statusCode } = await answerOf(sent);
      sent.destroy();
      return statusCode === 200;
    };
    await until(isServed, { what: "room again", ...LONG });
  });

  await t.test("bodies that arrive slowly: 64 MiB together, and another key is served", async () => {
    const slow = [await begin(url, greedy, { "content-length": 24 * MIB }), await begin(url, greedy, {})];
    slow.push(await begin(url, greedy, { "content-length": 16 * MIB }));
    const refused = async (): Promise<boolean> => {
      const sent = await begin(url, greedy, { "content-length": MIB }, "x".repeat(MIB));
      const { statusCode } = await answerOf(sent);
      sent.destroy();
      return statusCode === 503;
    };
    await until(refused, { what: "no room", ...LONG });
    await othersWork();
    for (const sent of slow) sent.destroy();
    await until(async () => !(await refused()), { what: "room again", ...LONG });
  });

  await t.test("input that is nested deeply is refused, and the next call is answered", async () => {
    const deep = `${"[".repeat(200_000)}${"]".repeat(200_000)}`;
    const headers = { "mcp-protocol-version": ERAS.newer, "mcp-method": "tools/call", "mcp-name": "get_machine" };
    for (const params of [
      `{"name":"get_machine","arguments":{"machine":${deep}},"_meta":${JSON.stringify(META)}}`,
      `{"name":"get_machine","arguments":${deep},"_meta":${JSON.stringify(META)}}`,
    ]) {
      const body = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":${params}}`;
      const answer = await answerOf(await begin(url, greedy, headers, body));
      assert.match(await text(answer), /"error"|"isError":true/);
    }
    await othersWork();
  });

  await t.test("streams of both eras end with their key", async () => {
    const params = { protocolVersion: ERAS.older, capabilities: {}, clientInfo: { name: "t", version: "1" } };
    const hello = JSON.stringify({ jsonrpc: "2.0", id: 1, method: "initialize", params });
    const begun = await answerOf(await begin(url, greedy, {}, hello));
    await text(begun);
    const session = String(begun.headers["mcp-session-id"]);
    const headers = { authorization: `Bearer ${greedy}`, accept: "text/event-stream", "mcp-session-id": session };
    const stream = request(url, { method: "GET", headers }).end();
    stream.on("error", () => undefined);
    const open = [await answerOf(stream), await answerOf(await listen(url, greedy, 1))];
    assert.deepEqual(
      open.map(({ statusCode }) => statusCode),
      [200, 200],
    );
    const ended = open.map((answer) => new Promise<void>((resolve) => answer.once("close", resolve)));
    for (const answer of open) answer.resume();
    const keys = JSON.parse(String((await up.cli("key", "ls", "--json")).output)) as { id: string; scopes: string[] }[];
    for (const { id, scopes } of keys) if (scopes.join() === "machine:read") await up.cli("key", "rm", id);
    await Promise.all(ended);
  });
});
