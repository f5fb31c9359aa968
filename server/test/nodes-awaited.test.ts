/**
 * A server or an ingress that has just started is ready once the nodes that report have connected to it.
 */
import assert from "node:assert/strict";
import { duplexPair } from "node:stream";
import { test } from "node:test";
import { type Clock, systemClock } from "@flotilla/base/clock";
import { nodesAwaitedBy } from "../src/link/nodes-awaited.ts";
import { ParkedConnections } from "../src/link/parked.ts";
import { keyedNode } from "./support/node.ts";
import { startTestServer } from "./support/server.ts";

const PATIENCE_MS = 30_000;

test("a program that starts waits for each node that parks connections, for a while, and names some of them", async (t) => {
  const { client, context } = await startTestServer({ nodeListen: { host: "127.0.0.1", port: 0 } });
  const { token } = (await client.post("/v1/tokens", { maxUses: 5 })).json;
  let aheadMs = 0;
  const clock: Clock = { ...systemClock, monotonic: () => systemClock.monotonic() + aheadMs };
  const parked = new ParkedConnections(clock);
  t.after(() => parked.close());
  const awaited = nodesAwaitedBy({ db: context.db, clock }, parked);
  assert.equal(await awaited(), null, "the fleet has no such node");
  const ids = ["a", "b", "c", "d", "e"];
  for (const id of ids)
    assert.equal((await client.withKey(token).post("/v1/nodes/register", keyedNode(id)(token))).status, 200);
  assert.equal(await awaited(), "nodes have not connected here yet: a, b, c and 2 others");
  for (const id of ids.slice(1)) parked.park(id, duplexPair()[0]);
  assert.equal(await awaited(), "nodes have not connected here yet: a");
  parked.park("a", duplexPair()[0]);
  assert.equal(await awaited(), null);

  const patient = nodesAwaitedBy({ db: context.db, clock }, new ParkedConnections(clock));
  assert.notEqual(await patient(), null);
  aheadMs = PATIENCE_MS;
  assert.equal(await patient(), null, "a node that cannot connect holds it back no longer");
});
