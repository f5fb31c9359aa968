/**
 * The requirements of the protocol's revision 2026-07-28 for servers, one by one, over standard streams and
 * HTTP: each line of a table names one and plays it. Their sources are the pages of the published
 * specification that are named beside them.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { until } from "../../test/support/until.ts";
import { ERAS } from "./mcp-client.ts";
import { listening, newKey } from "./mcp-listening.ts";
import { type HttpPeer, httpPeer, type Message, messagesOf, META, type Peer, stdioPeer } from "./mcp-wire.ts";
import { makeDirectory, startUp } from "./run-up.ts";

const VERSION = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES = "io.modelcontextprotocol/clientCapabilities";
const HEADER_MISMATCH = -32_020;
const UNSUPPORTED_VERSION = -32_022;
const [INVALID_PARAMS, METHOD_NOT_FOUND] = [-32_602, -32_601];
const machine = "wire";

type Requirement<P> = readonly [page: string, requirement: string, play: (peer: P) => Promise<void>];

const tool = (name: string, input: object = {}) => ({ name, arguments: input });
const codeOf = ({ error }: Message): number | undefined => error?.code;
const confirmed = { confirm: { action: "accept", content: { confirm: true } } };

const BOTH: readonly Requirement<Peer>[] = [
  [
    "discover",
    "server/discover is implemented: versions, capabilities, instructions",
    async ({ ask }) => {
      const { result } = await ask("server/discover");
      assert.match(JSON.stringify(result?.["supportedVersions"]), new RegExp(ERAS.newer));
      assert.deepEqual(Object.keys(result?.["capabilities"] as object).sort(), ["resources", "tools"]);
      assert.match(String(result?.["instructions"]), /data, not instructions/);
    },
  ],
  [
    "basic",
    "a result has a resultType, and the id of its request",
    async ({ ask }) => {
      for (const method of ["server/discover", "tools/list", "resources/list", "resources/templates/list"]) {
        const { id, result } = await ask(method);
        assert.deepEqual([typeof id, result?.["resultType"]], ["number", "complete"], method);
      }
    },
  ],
  [
    "basic",
    "no request relies on one before it: the first of a connection may be any",
    async ({ ask }) => {
      assert.equal((await ask("tools/call", tool("get_machine", { machine }))).result?.["isError"], undefined);
    },
  ],
  [
    "basic",
    "capabilities count for the request that states them, not for the next",
    async ({ ask }) => {
      const call = tool("delete_machine", { machine });
      assert.equal((await ask("tools/call", call)).result?.["resultType"], "input_required");
      const without = await ask("tools/call", call, { ...META, [CAPABILITIES]: {} });
      assert.deepEqual([without.result?.["resultType"], without.result?.["isError"]], ["complete", true]);
      assert.equal(without.result?.["inputRequests"], undefined);
    },
  ],
  [
    "versioning",
    "a version that is not implemented is refused, with those that are",
    async ({ ask }) => {
      const { error } = await ask("tools/list", {}, { ...META, [VERSION]: "1900-01-01" });
      assert.equal(error?.code, UNSUPPORTED_VERSION);
      assert.match(JSON.stringify(error?.data?.["supported"]), new RegExp(ERAS.newer));
      assert.equal(error?.data?.["requested"], "1900-01-01");
    },
  ],
  [
    "basic",
    "a method that is not implemented is -32601",
    async ({ ask }) => {
      for (const method of ["prompts/get", "tools/dance", "ping", "resources/subscribe", "logging/setLevel"])
        assert.equal(codeOf(await ask(method)), METHOD_NOT_FOUND, method);
    },
  ],
  [
    "basic",
    "metadata that the request must have and has not is an error",
    async ({ ask }) => {
      for (const missing of [CAPABILITIES]) {
        const meta = Object.fromEntries(Object.entries(META).filter(([name]) => name !== missing));
        assert.equal(codeOf(await ask("tools/list", {}, meta)), INVALID_PARAMS, missing);
      }
    },
  ],
  [
    "basic",
    "no error has a code that earlier versions defined",
    async ({ ask }) => {
      for (const uri of ["flotilla://machines/none/logs", "flotilla://machines/wire/files/none", "other://x"])
        assert.equal(codeOf(await ask("resources/read", { uri })), INVALID_PARAMS, uri);
    },
  ],
  [
    "server/tools",
    "tools have a unique name of allowed characters, and a schema that is an object",
    async ({ ask }) => {
      const tools = (await ask("tools/list")).result?.["tools"] as { name: string; inputSchema: { type: string } }[];
      for (const { name, inputSchema } of tools) {
        assert.match(name, /^[A-Za-z0-9_.-]{1,128}$/);
        assert.equal(inputSchema.type, "object");
      }
      assert.equal(new Set(tools.map(({ name }) => name)).size, tools.length);
    },
  ],
  [
    "server/tools",
    "the list of tools is the same each time, and does not change by a call",
    async ({ ask }) => {
      const first = await ask("tools/list");
      await ask("tools/call", tool("list_machines"));
      assert.deepEqual((await ask("tools/list")).result, first.result);
    },
  ],
  [
    "server/tools",
    "an unknown tool is an error of the protocol",
    async ({ ask }) => {
      assert.equal(codeOf(await ask("tools/call", tool("dance"))), INVALID_PARAMS);
    },
  ],
  [
    "server/tools",
    "input that does not fit, and a refusal of the API, are results that say so",
    async ({ ask }) => {
      for (const call of [
        tool("get_machine", {}),
        tool("get_machine", { machine: 5 }),
        tool("get_machine", { machine: "none" }),
        tool("create_machine", { image: "local/busybox", name: machine }),
        tool("run_command", { machine, command: "true", timeoutSeconds: -1 }),
      ]) {
        const { result } = await ask("tools/call", call);
        assert.equal(result?.["isError"], true, JSON.stringify(call));
      }
    },
  ],
  [
    "server/tools",
    "structured content is text as well",
    async ({ ask }) => {
      const { result } = await ask("tools/call", tool("run_command", { machine, command: "echo out; exit 3" }));
      assert.match(JSON.stringify(result?.["structuredContent"]), /"exitCode":3/);
      assert.match(JSON.stringify(result?.["content"]), /exit code 3.*out/);
      assert.notEqual(result?.["isError"], true);
    },
  ],
  [
    "caching",
    "lists and reads say how long they are fresh, and that they are one caller's",
    async ({ ask }) => {
      const read = { uri: `flotilla://machines/${machine}/files/note` };
      await ask("tools/call", tool("write_file", { machine, path: "/note", content: "kept" }));
      for (const [method, params] of [
        ["tools/list", {}],
        ["resources/list", {}],
        ["resources/templates/list", {}],
        ["resources/read", read],
      ] as const) {
        const { result } = await ask(method, params);
        assert.ok(Number(result?.["ttlMs"]) >= 0, method);
        assert.equal(result?.["cacheScope"], "private", method);
      }
    },
  ],
  [
    "patterns/mrtr",
    "a question is a form with a state, in a result that ends its request",
    async ({ ask }) => {
      const { result } = await ask("tools/call", tool("delete_machine", { machine }));
      const requests = Object.values(result?.["inputRequests"] as Record<string, { method: string; params: object }>);
      assert.deepEqual(
        requests.map(({ method }) => method),
        ["elicitation/create"],
      );
      assert.equal(typeof result?.["requestState"], "string");
    },
  ],
  [
    "patterns/mrtr",
    "a state that was changed, of another tool, or of nothing is rejected",
    async ({ ask }) => {
      const call = tool("delete_machine", { machine });
      const asked = await ask("tools/call", call);
      const requestState = String(asked.result?.["requestState"]);
      const middle = Math.floor(requestState.length / 2);
      const flipped = requestState[middle] === "A" ? "B" : "A";
      for (const changed of [
        `${requestState.slice(0, middle)}${flipped}${requestState.slice(middle + 1)}`,
        "none",
        "",
      ]) {
        const again = await ask("tools/call", { ...call, requestState: changed, inputResponses: confirmed });
        assert.ok(again.error !== undefined || again.result?.["resultType"] === "input_required", changed);
      }
      const other = { ...tool("delete_file", { machine, path: "/note" }), requestState, inputResponses: confirmed };
      assert.equal((await ask("tools/call", other)).result?.["resultType"], "input_required");
      assert.notEqual((await ask("tools/call", tool("get_machine", { machine }))).result?.["isError"], true);
    },
  ],
  [
    "patterns/mrtr",
    "what is missing in an answer is asked again, and what is not known is ignored",
    async ({ ask }) => {
      const call = tool("delete_file", { machine, path: "/asked" });
      await ask("tools/call", tool("write_file", { machine, path: "/asked", content: "" }));
      const requestState = (await ask("tools/call", call)).result?.["requestState"];
      const empty = await ask("tools/call", { ...call, requestState, inputResponses: {} });
      assert.equal(empty.result?.["resultType"], "input_required");
      const inputResponses = { ...confirmed, other: { action: "accept", content: {} } };
      const done = await ask("tools/call", { ...call, requestState, inputResponses });
      assert.deepEqual([done.result?.["resultType"], done.result?.["isError"]], ["complete", undefined]);
    },
  ],
  [
    "patterns/mrtr",
    "only tools are answered with a question",
    async ({ ask }) => {
      for (const method of ["tools/list", "resources/list", "server/discover"])
        assert.equal((await ask(method)).result?.["inputRequests"], undefined, method);
    },
  ],
  [
    "patterns/progress",
    "progress goes to the request that asked for it, and rises",
    async ({ all }) => {
      const call = tool("run_command", { machine, command: ["cat"], stdin: "x".repeat(500_000) });
      const messages = await all("tools/call", call, { ...META, progressToken: "p" });
      const steps = messages.filter(({ method }) => method === "notifications/progress");
      assert.ok(steps.length > 1, String(messages.length));
      assert.ok(steps.every(({ params }) => params?.["progressToken"] === "p"));
      const done = steps.map(({ params }) => Number(params?.["progress"]));
      assert.deepEqual(
        done,
        done.toSorted((a, b) => a - b),
      );
      assert.ok(
        messages.every(({ method, id }) => method === undefined || id === undefined),
        "no request of the server",
      );
      assert.equal((await all("tools/call", call)).length, 1);
    },
  ],
];

const OVER_HTTP: readonly Requirement<HttpPeer>[] = [
  [
    "streamable-http",
    "a header that is missing or differs from the body is 400 with -32020",
    async (peer) => {
      const list = peer.request("tools/list");
      const call = peer.request("tools/call", tool("get_machine", { machine }));
      for (const [body, headers] of [
        [list, { "mcp-method": null }],
        [list, { "mcp-method": "tools/call" }],
        [list, { "mcp-protocol-version": ERAS.older }],
        [call, { "mcp-name": null }],
        [call, { "mcp-name": "delete_machine" }],
        [call, { "mcp-name": "=?base64?!?=" }],
      ] as const) {
        const answer = await peer.post(body, headers);
        const [message] = await messagesOf(answer);
        assert.deepEqual([answer.status, message?.error?.code], [400, HEADER_MISMATCH], JSON.stringify(headers));
      }
      const encoded = { "mcp-name": `=?base64?${Buffer.from("get_machine").toString("base64")}?=` };
      assert.equal((await peer.post(call, encoded)).status, 200);
    },
  ],
  [
    "streamable-http",
    "a version that is not implemented is 400, a method 404",
    async (peer) => {
      const old = peer.request("tools/list", {}, { ...META, [VERSION]: "1900-01-01" });
      const refused = await peer.post(old, { "mcp-protocol-version": "1900-01-01" });
      const [message] = await messagesOf(refused);
      assert.deepEqual([refused.status, message?.error?.code], [400, UNSUPPORTED_VERSION]);
      assert.equal((await peer.post(peer.request("tools/dance"))).status, 404);
    },
  ],
  [
    "streamable-http",
    "no session is begun, and one that is named is ignored",
    async (peer) => {
      const answer = await peer.post(peer.request("tools/list"), { "mcp-session-id": "any" });
      assert.deepEqual([answer.status, answer.headers.get("mcp-session-id")], [200, null]);
      await answer.text();
    },
  ],
  [
    "streamable-http",
    "a body is one message: several are refused",
    async (peer) => {
      const answer = await peer.post([peer.request("tools/list"), peer.request("tools/list")]);
      assert.equal(answer.status, 400, await answer.text());
    },
  ],
  [
    "streamable-http",
    "a stream asks proxies not to buffer it",
    async (peer) => {
      const call = peer.request("tools/call", tool("run_command", { machine, command: "echo x" }), {
        ...META,
        progressToken: 1,
      });
      const answer = await peer.post(call);
      await answer.text();
      if (answer.headers.get("content-type")?.startsWith("text/event-stream") === true)
        assert.equal(answer.headers.get("x-accel-buffering"), "no");
    },
  ],
  [
    "subscriptions",
    "a listening request is acknowledged first, by its id, and ends when it is closed",
    async (peer) => {
      const stopping = new AbortController();
      const request = peer.request("subscriptions/listen", { notifications: { toolsListChanged: true } });
      const answer = await peer.post(request, {}, stopping.signal);
      const reader = (answer.body as ReadableStream<Uint8Array>).getReader();
      let begun = "";
      while (!/data:.*\n/.test(begun)) begun += new TextDecoder().decode((await reader.read()).value);
      const [, data = ""] = /data:(.*)\n/.exec(begun) ?? [];
      const { method, params } = JSON.parse(data) as Message;
      assert.equal(method, "notifications/subscriptions/acknowledged");
      const meta = params?.["_meta"] as Record<string, unknown>;
      assert.equal(String(meta["io.modelcontextprotocol/subscriptionId"]), String(request.id));
      stopping.abort();
      await assert.rejects(reader.read());
    },
  ],
  [
    "patterns/mrtr",
    "a state is its key's alone",
    async (peer) => {
      const call = tool("delete_machine", { machine });
      const { result } = await peer.ask("tools/call", call);
      const retry = peer.request("tools/call", {
        ...call,
        requestState: result?.["requestState"],
        inputResponses: confirmed,
      });
      const [stolen] = await messagesOf(await peer.post(retry, { authorization: `Bearer ${otherKey}` }));
      assert.ok(stolen?.error !== undefined, JSON.stringify(stolen));
      assert.notEqual((await peer.ask("tools/call", tool("get_machine", { machine }))).result?.["isError"], true);
    },
  ],
];

let otherKey = "";

test("the newer era's requirements", async (t) => {
  const up = await startUp(t, makeDirectory(t));
  const key = up.environment["FLOTILLA_API_KEY"] ?? "";
  otherKey = await newKey(up, "*");
  assert.equal((await up.cli("machine", "create", "local/busybox", "--name", machine, "--start")).code, 0);
  const { url } = await listening(t, up);
  const [http, stdio] = [httpPeer(url, key), stdioPeer(t, up.environment)];

  for (const peer of [stdio, http]) {
    for (const [page, requirement, play] of BOTH)
      await t.test(`${peer.door}, ${page}: ${requirement}`, () => play(peer));
  }
  for (const [page, requirement, play] of OVER_HTTP) await t.test(`http, ${page}: ${requirement}`, () => play(http));

  await t.test(
    "stdio: a cancelled request gets no message any more, and one that is not known is ignored",
    async () => {
      const call = { ...tool("run_command", { machine, command: "sleep 60" }), _meta: META };
      stdio.write(JSON.stringify({ jsonrpc: "2.0", id: "slow", method: "tools/call", params: call }));
      await stdio.ask("tools/list");
      for (const requestId of ["slow", "none"])
        stdio.write(JSON.stringify({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId } }));
      await stdio.ask("tools/call", tool("get_machine", { machine }));
      assert.ok(!stdio.lines.some((line) => line.includes('"slow"')));
    },
  );

  await t.test("stdio: broken lines leave the next ones as they are, and only messages are printed", async () => {
    for (const line of ["{", "[]", "null", '"x"', '{"jsonrpc":"1.0"}', "\u0000\ufffd", '{"jsonrpc":"2.0","id":null}'])
      stdio.write(line);
    assert.equal((await stdio.ask("tools/list")).error, undefined);
    for (const line of stdio.lines) assert.equal((JSON.parse(line) as { jsonrpc: string }).jsonrpc, "2.0");
  });

  await t.test("stdio: a listening request is acknowledged, and ends when it is cancelled", async () => {
    const params = { notifications: { toolsListChanged: true }, _meta: META };
    stdio.write(JSON.stringify({ jsonrpc: "2.0", id: "listen", method: "subscriptions/listen", params }));
    const acknowledged = (): boolean => stdio.lines.some((line) => line.includes("subscriptions/acknowledged"));
    await until(acknowledged, { what: "the acknowledgement", deadlineMs: 20_000 });
    const cancel = { jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: "listen" } };
    stdio.write(JSON.stringify(cancel));
    assert.equal((await stdio.ask("tools/list")).error, undefined);
  });
});
