/**
 * Connections between a server and a node of another host that were idle, or on which an answer has no end,
 * with the node's end played by the test.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type ServerResponse } from "node:http";
import { type AddressInfo, connect, type Socket } from "node:net";
import { text } from "node:stream/consumers";
import { test, type TestContext } from "node:test";
import { systemClock } from "@flotilla/base/clock";
import { requestJson } from "../src/link/json-request.ts";
import { Input } from "../src/link/input.ts";
import { type NodeAddress, NodeLink } from "../src/link/node-link.ts";
import type { Fleet } from "../src/link/reach.ts";
import { NodeUnreachable } from "../src/link/refusals.ts";
import { createLog } from "../src/log.ts";
import { until } from "../../test/support/until.ts";

test("a command is not sent into a connection that was idle for seconds, but into one that the node has just given", async (t) => {
  const seen: Socket[] = [];
  const node = createServer((request, response) => {
    seen.push(request.socket);
    request.resume().on("end", () => response.end("done"));
  });
  node.keepAliveTimeout = 120_000;
  node.listen(0, "127.0.0.1");
  await once(node, "listening");
  const { port } = node.address() as AddressInfo;
  const parked = {
    take: async () => {
      const socket = connect(port, "127.0.0.1");
      await once(socket, "connect");
      return socket;
    },
  };
  const link = new NodeLink(createLog("silent"), systemClock, { parked } as unknown as Fleet);
  t.after(async () => {
    await link.close();
    node.closeAllConnections();
    node.close();
  });
  const call = async (): Promise<void> => {
    const request = { method: "POST", path: "/", headersTimeout: 60_000, signal: AbortSignal.timeout(60_000) } as const;
    const body = await link.open({ nodeId: "a", address: "parked:a" }, request);
    assert.equal(await text(body), "done");
  };
  await call();
  await until(() => seen[0]?.destroyed, { what: "the end of the idle connection", deadlineMs: 10_000 });
  await call();
  assert.notEqual(seen[0], seen[1]);
});

test("a node that says it is where another one is gets no call on a connection that was checked for the other", async (t) => {
  const seen = { a: new Set<unknown>(), b: new Set<unknown>() };
  const { address } = await answeringNode(t, (response) => {
    seen[response.req.url === "/a" ? "a" : "b"].add(response.socket);
    response.end("done");
  });
  const link = new NodeLink(createLog("silent"), systemClock);
  t.after(() => link.close());
  const call = async (nodeId: "a" | "b"): Promise<void> => {
    const request = {
      method: "GET",
      path: `/${nodeId}`,
      headersTimeout: 60_000,
      signal: AbortSignal.timeout(60_000),
    } as const;
    assert.equal(await text(await link.open({ nodeId, address }, request)), "done");
  };
  for (const nodeId of ["a", "b", "b", "a", "a", "b"] as const) await call(nodeId);
  assert.equal([...seen.a].filter((socket) => seen.b.has(socket)).length, 0);
});

/** A node that begins each answer, and continues it with `sendOn`. */
async function answeringNode(t: TestContext, sendOn: (response: ServerResponse) => void): Promise<NodeAddress> {
  const node = createServer((request, response) => {
    request.resume();
    sendOn(response);
  });
  node.listen(0, "127.0.0.1");
  await once(node, "listening");
  t.after(() => {
    node.closeAllConnections();
    node.close();
  });
  return { nodeId: "a", address: `http://127.0.0.1:${(node.address() as AddressInfo).port}` };
}

test("a node that sends its answer bit by bit, without an end, does not answer", async (t) => {
  const bitByBit = (response: ServerResponse): void =>
    void (response.destroyed || response.write(" ", () => setImmediate(bitByBit, response)));
  const node = await answeringNode(t, bitByBit);
  let elapsedMs = 0;
  const link = new NodeLink(createLog("silent"), { ...systemClock, monotonic: () => (elapsedMs += 500) });
  t.after(() => link.close());
  await assert.rejects(link.listImages(node, null, "asker"), NodeUnreachable);
  const desired = { generation: 1, state: "absent", spec: null } as const;
  elapsedMs = 0;
  await assert.rejects(link.putMachine(node, "mach-0", desired, { waitMs: 0 }), NodeUnreachable);
  assert.ok(elapsedMs <= 15_000, `the loop of machines waited for ${elapsedMs} ms`);
});

test("a node that begins its answer and says no more does not answer", async (t) => {
  const node = await answeringNode(t, (response) => response.write("{"));
  const link = new NodeLink(createLog("silent"), systemClock);
  t.after(() => link.close());
  const { signal } = new AbortController();
  const refusal = (): Error => new Error("it did not refuse");
  const question = { method: "POST", path: "/", headersTimeout: 200, signal, read: () => null, refusal } as const;
  await assert.rejects(requestJson(link, node, question), NodeUnreachable);
});

test("an answer that breaks off with its head is an error to a reader that comes a little later", async (t) => {
  const node = await answeringNode(t, ({ socket }) =>
    socket?.write("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nno chunk\r\n"),
  );
  const link = new NodeLink(createLog("silent"), systemClock);
  t.after(() => link.close());
  const { signal } = new AbortController();
  const body = await link.open(node, { method: "GET", path: "/", headersTimeout: 60_000, signal });
  // A reader that listens comes at once; one that iterates may come when the error is over.
  const failed = once(body, "error") as Promise<Error[]>;
  const [error] = await failed;
  assert.match(String(error), /HTTPParserError/);
  await assert.rejects(text(body), /HTTPParserError|Invalid character/i);
});

test("a cancelled request ends at once, also before the node has begun to answer, and with it the body that is sent", async (t) => {
  const node = await answeringNode(t, () => undefined);
  const link = new NodeLink(createLog("silent"), systemClock);
  t.after(() => link.close());
  for (const isLate of [false, true]) {
    const gone = new AbortController();
    const input = new Input();
    if (!isLate) gone.abort(new Error("it has gone"));
    const request = { method: "POST", path: "/", body: input, headersTimeout: 60_000, signal: gone.signal } as const;
    const asked = link.open(node, request);
    if (isLate) setImmediate(() => gone.abort(new Error("it has gone")));
    await assert.rejects(asked, /it has gone/);
    await until(() => input.destroyed, { what: "the end of the body", deadlineMs: 5_000 });
  }
});
