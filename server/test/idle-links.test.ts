/**
 * Connections between a server and a node of another host that were idle, or on which an answer has no end, with the node's end played
 * by the test.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import { type AddressInfo, connect, type Socket } from "node:net";
import { test } from "node:test";
import { systemClock } from "@flotilla/base/clock";
import { NodeLink } from "../src/link/node-link.ts";
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
    assert.equal(await body.text(), "done");
  };
  await call();
  await until(() => seen[0]?.destroyed, { what: "the end of the idle connection", deadlineMs: 10_000 });
  await call();
  assert.notEqual(seen[0], seen[1]);
});

test("a node that sends its answer bit by bit, without an end, does not answer", async (t) => {
  const node = createServer((request, response) => {
    request.resume();
    const sendOn = (): void => void (response.destroyed || response.write(" ", () => setImmediate(sendOn)));
    sendOn();
  });
  node.listen(0, "127.0.0.1");
  await once(node, "listening");
  const { port } = node.address() as AddressInfo;
  // A minute passes in 60 ms.
  const clock = { ...systemClock, monotonic: () => systemClock.monotonic() * 1000 };
  const link = new NodeLink(createLog("silent"), clock);
  t.after(async () => {
    await link.close();
    node.closeAllConnections();
    node.close();
  });
  let refused: unknown;
  link.listImages({ nodeId: "a", address: `http://127.0.0.1:${port}` }, null, "asker").catch((error: unknown) => {
    refused = error;
  });
  assert.ok((await until(() => refused, { what: "the refusal" })) instanceof NodeUnreachable);
});
